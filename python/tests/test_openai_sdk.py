"""OpenAI's Python SDK against a server: every field, and its types in strict mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import openai
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel
from server import Server

T = TypeVar("T", bound=BaseModel)

MESSAGES: Any = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
]
# Every field of a chat that a server of texts can honour.
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": MESSAGES,
    "max_completion_tokens": 8,
    "temperature": 1.0,
    "top_p": 0.9,
    "n": 2,
    "seed": 7,
    "stop": ["#"],
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "logit_bias": {"65": 40, "66": 40, "67": 40},
    "logprobs": True,
    "top_logprobs": 2,
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "response_format": {"type": "text"},
    "user": "u",
    "store": False,
    "metadata": {"a": "b"},
    "extra_body": {
        "top_k": 20,
        "min_p": 0.01,
        "min_tokens": 3,
        "repetition_penalty": 1.1,
        "ignore_eos": True,
        "stop_token_ids": [7],
        "chat_template_kwargs": {"enable_thinking": False},
    },
}


@pytest.fixture
def client(tiny_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny_server.url}/v1", api_key="k", max_retries=0) as made:
        yield made


def strict(kind: type[T], text: str | bytes) -> T:
    """Returns JSON as one of the SDK's types, which must know all of it as it stands."""
    return kind.model_validate_json(text, strict=True)


def test_chat_in_one_piece(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(**CHAT)
    answer = strict(ChatCompletion, raw.content)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.finish_reason == "length"
        assert choice.message.role == "assistant"
        assert choice.message.content is not None
        assert len(choice.message.content) == 8
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        tokens = choice.logprobs.content
        assert "".join(token.token for token in tokens) == choice.message.content
        assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens)
        assert bytes(b for token in tokens for b in token.bytes or []) == choice.message.content.encode()
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 16


def test_streamed_chat_is_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**CHAT)
    options = {"include_usage": True, "continuous_usage_stats": True}
    with client.chat.completions.with_streaming_response.create(**CHAT, stream=True, stream_options=options) as raw:
        lines = [line.removeprefix("data: ") for line in raw.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    chunks = [strict(ChatCompletionChunk, line) for line in lines]
    assert {(chunk.id, chunk.object) for chunk in chunks} == {(chunks[0].id, "chat.completion.chunk")}
    for want in whole.choices:
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices and chunk.choices[0].index == want.index]
        assert "".join(choice.delta.content or "" for choice in mine) == want.message.content
        assert [choice.finish_reason for choice in mine] == [None] * 8 + ["length"]
        assert mine[0].delta.role == "assistant"
        assert want.logprobs is not None
        assert [t for choice in mine if choice.logprobs for t in choice.logprobs.content or []] == want.logprobs.content
    assert chunks[-1].choices == []
    assert all(chunk.usage is not None for chunk in chunks)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 16


def test_completions(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {
        "model": "m",
        "max_tokens": 5,
        "temperature": 1.0,
        "top_p": 0.9,
        "seed": 1,
        "n": 2,
        "best_of": None,
        "logprobs": 1,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "logit_bias": {"65": 50, "66": 50},
        "stop": "#",
        "suffix": None,
        "user": "u",
        "extra_body": {"ignore_eos": True},
    }
    prompts: list[Any] = ["ab", ["ab", "cd"], [1, 2], [[1, 2], [3]]]
    for prompt in prompts:
        count = 2 * len(prompt) if isinstance(prompt[0], (str, list)) and not isinstance(prompt, str) else 2
        answer = strict(Completion, client.completions.with_raw_response.create(prompt=prompt, **options).content)
        assert len(answer.choices) == count
        texts = [""] * count
        for chunk in client.completions.create(prompt=prompt, stream=True, **options):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        for choice in answer.choices:
            assert texts[choice.index] == choice.text
            assert choice.logprobs is not None
            assert "".join(choice.logprobs.tokens or []) == choice.text
    echo = client.completions.create(model="m", prompt="abc", echo=True, logprobs=0, max_tokens=1)
    assert echo.choices[0].text.startswith("abc")
    assert echo.choices[0].logprobs is not None
    assert (echo.choices[0].logprobs.tokens or [])[:3] == ["a", "b", "c"]
    assert (echo.choices[0].logprobs.token_logprobs or [0])[0] is None


def test_models(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    strict(Model, client.models.with_raw_response.retrieve(model.id).content)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"n": 0}, "n"),
        ({"stop": [""]}, "stop[0]"),
        ({"messages": []}, "messages"),
        ({"response_format": {"type": "nonsense"}}, "response_format.type"),
    ],
)
def test_errors_are_the_sdks(client: openai.OpenAI, change: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as failure:
        client.chat.completions.create(**{**CHAT, **change})
    assert failure.value.param == param
    assert failure.value.type == "invalid_request_error"
