"""Checks prompts and makes the engine's requests of them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from minisgl.core import GRAMMARS, SamplingParams

_INT32_MAX = 2**31 - 1
_ADVICE = "give a list of strings or of lists of token ids, such as"


def generate_requests(prompts: Any, sampling_params: Any) -> list[dict[str, Any]]:
    """Returns one request for each prompt, a string or a list of token ids.

    Raises:
        TypeError: A form that isn't a list of prompts; the message says which one is.
        ValueError: An empty prompt, or numbers of prompts and params that differ.
    """
    items = _items(prompts)
    params = _params(sampling_params, len(items))
    return [
        {**_prompt(item, f"prompts[{i}]"), "params": param, "name": f"prompts[{i}]"}
        for i, (item, param) in enumerate(zip(items, params, strict=True))
    ]


def chat_requests(messages: Any, sampling_params: Any, template: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns one request for each conversation; a single one may stand alone."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise TypeError(f"messages must be a list of dicts, got {messages!r}")
    alone = any(isinstance(item, Mapping) for item in messages)
    conversations = [messages] if alone else messages
    params = _params(sampling_params, len(conversations))
    requests = []
    for i, (conversation, param) in enumerate(zip(conversations, params, strict=True)):
        name = "messages" if alone else f"messages[{i}]"
        checked = check_messages(conversation, name)
        requests.append({"messages": checked, "template": template, "params": param, "name": name})
    return requests


def one_request(prompt: Any, sampling_params: Any) -> dict[str, Any]:
    """Returns the request for one prompt, a string or a list of token ids."""
    return {**_prompt(prompt, "prompt"), "params": _param(sampling_params), "name": "prompt"}


def one_chat_request(messages: Any, sampling_params: Any, template: dict[str, Any]) -> dict[str, Any]:
    """Returns the request for one conversation."""
    checked = check_messages(messages, "messages")
    return {"messages": checked, "template": template, "params": _param(sampling_params), "name": "messages"}


def check_messages(messages: Any, name: str) -> list[dict[str, Any]]:
    """Returns a conversation as a list of dicts.

    Raises:
        TypeError: Something that isn't a list of dicts with a role.
        ValueError: An empty conversation.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise TypeError(f"{name} must be a list of dicts, got {messages!r}")
    if not messages:
        raise ValueError(f"{name} is empty; a conversation needs at least one message")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TypeError(f"{name}[{i}] must be a dict with role and content, got {message!r}")
    return [dict(message) for message in messages]


def token_ids(value: Any, name: str) -> list[int]:
    """Returns token ids as ints; arrays of numpy or torch are taken too."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a list of token ids, got {value!r}")
    return [_token_id(item, name, i) for i, item in enumerate(value)]


def _token_id(value: Any, name: str, position: int) -> int:
    number: int = value
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name}[{position}] must be a token id, got {value!r}")
        number = operator.index(value)
    if not 0 <= number <= _INT32_MAX:
        raise ValueError(f"{name}[{position}] must be a token id, which {number} can't be")
    return number


def _items(prompts: Any) -> list[Any]:
    if isinstance(prompts, str):
        raise TypeError(f"prompts is one string; {_ADVICE} [{prompts[:20]!r}]")
    if hasattr(prompts, "tolist"):
        prompts = prompts.tolist()
    if not isinstance(prompts, (list, tuple)):
        raise TypeError(f"prompts is a {type(prompts).__name__}; {_ADVICE} ['Hello']")
    if any(isinstance(item, int) for item in prompts):
        raise TypeError(f"prompts is a list of ints; {_ADVICE} [[1, 2, 3]]")
    return list(prompts)


def _prompt(item: Any, name: str) -> dict[str, Any]:
    if isinstance(item, str):
        return {"text": item}
    if not isinstance(item, (list, tuple)) and not hasattr(item, "tolist"):
        raise TypeError(f"{name} must be a string or a list of token ids, got {item!r}")
    ids = token_ids(item, name)
    if not ids:
        raise ValueError(f"{name} is empty; a prompt needs at least one token")
    return {"token_ids": ids}


def _params(sampling_params: Any, count: int) -> list[dict[str, Any]]:
    if sampling_params is None:
        sampling_params = SamplingParams()
    if isinstance(sampling_params, SamplingParams):
        return [_param_fields(sampling_params)] * count
    if not isinstance(sampling_params, (list, tuple)):
        raise TypeError(f"sampling_params must be SamplingParams or a list of them, got {sampling_params!r}")
    if len(sampling_params) != count:
        raise ValueError(
            f"{len(sampling_params)} sampling_params for {count} prompts; give one for all or one for each"
        )
    for i, param in enumerate(sampling_params):
        if not isinstance(param, SamplingParams):
            raise TypeError(f"sampling_params[{i}] must be SamplingParams, got {param!r}")
    return [_param_fields(param) for param in sampling_params]


def _param(sampling_params: Any) -> dict[str, Any]:
    if sampling_params is None:
        sampling_params = SamplingParams()
    if not isinstance(sampling_params, SamplingParams):
        raise TypeError(f"sampling_params must be SamplingParams, got {sampling_params!r}")
    return _param_fields(sampling_params)


def _param_fields(params: SamplingParams) -> dict[str, Any]:
    params.__post_init__()  # fields may have been set since
    return {
        "temperature": params.temperature,
        "top_k": min(params.top_k, _INT32_MAX),  # any more is the same
        "top_p": params.top_p,
        "min_p": params.min_p,
        "max_tokens": min(params.max_tokens, _INT32_MAX),
        "ignore_eos": params.ignore_eos,
        "seed": params.seed,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": params.repetition_penalty,
        "logit_bias": list((params.logit_bias or {}).items()),
        "min_tokens": min(params.min_tokens, _INT32_MAX),
        "logprobs": params.logprobs,
        "prompt_logprobs": params.prompt_logprobs,
        **{name: getattr(params, name) for name in GRAMMARS},
    }
