"""Tool calls and reasoning with OpenAI's SDK and OpenAI's Agents SDK, on answers that are written here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import agents
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel
from scripted import ScriptedServer

Scripted = Callable[..., ScriptedServer]

MESSAGES: Any = [{"role": "user", "content": "Weather in Zürich and Oslo?"}]
QWEN = ("-tool-call-parser", "qwen", "-reasoning-parser", "qwen3")


class GetWeather(BaseModel):
    """A tool."""

    city: str
    days: int


WEATHER = openai.pydantic_function_tool(GetWeather, name="get_weather")


def call(name: str, arguments: dict[str, Any]) -> str:
    """Returns a call as Qwen writes it."""
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


ZURICH: dict[str, Any] = {"city": 'Zürich </tool_call> "x"', "days": 2}
OSLO: dict[str, Any] = {"city": "Oslo\n", "days": 1}
TWO_CALLS = "I'll look.\n" + call("get_weather", ZURICH) + "\n" + call("get_weather", OSLO)


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


@pytest.fixture
def two_calls(scripted: Scripted) -> Iterator[openai.OpenAI]:
    """A client that gets the same two calls twice."""
    with scripted([TWO_CALLS] * 2, *QWEN) as url, client_of(url) as client:
        yield client


def test_parse_helper(two_calls: openai.OpenAI) -> None:
    raw = two_calls.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, tools=[WEATHER])
    ChatCompletion.model_validate_json(raw.content, strict=True)
    answer = two_calls.chat.completions.parse(model="m", messages=MESSAGES, tools=[WEATHER]).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content == "I'll look."
    calls = answer.message.tool_calls or []
    assert [c.function.parsed_arguments for c in calls] == [GetWeather(**ZURICH), GetWeather(**OSLO)]
    assert len({c.id for c in calls}) == 2


def test_streaming_helper(two_calls: openai.OpenAI) -> None:
    deltas: list[list[str]] = []
    done = []
    with two_calls.chat.completions.stream(model="m", messages=MESSAGES, tools=[WEATHER]) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                while len(deltas) <= event.index:
                    deltas.append([])
                deltas[event.index].append(event.arguments_delta)
            elif event.type == "tool_calls.function.arguments.done":
                done.append((event.name, event.parsed_arguments))
        message = stream.get_final_completion().choices[0].message
    assert done == [("get_weather", GetWeather(**ZURICH)), ("get_weather", GetWeather(**OSLO))]
    assert [json.loads("".join(parts)) for parts in deltas] == [ZURICH, OSLO]
    assert all(len(parts) > 5 for parts in deltas), "arguments should come as they are written"
    assert message.content == "I'll look."


def test_streamed_chunks(two_calls: openai.OpenAI) -> None:
    begun: list[int] = []
    with two_calls.chat.completions.with_streaming_response.create(
        model="m", messages=MESSAGES, tools=[WEATHER], stream=True
    ) as raw:
        lines = [line.removeprefix("data: ") for line in raw.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    for line in lines:
        for part in ChatCompletionChunk.model_validate_json(line, strict=True).choices[0].delta.tool_calls or []:
            assert part.function is not None
            if part.index in begun:
                assert (part.id, part.type, part.function.name) == (None, None, None)
                continue
            begun.append(part.index)
            assert (part.type, part.function.name, part.function.arguments) == ("function", "get_weather", "")
            assert part.id
    assert begun == [0, 1]


def test_reasoning(scripted: Scripted) -> None:
    with scripted(["<think>\nTwo and two.\n</think>\n\nFour."] * 2, *QWEN) as url, client_of(url) as client:
        message = client.chat.completions.create(model="m", messages=MESSAGES).choices[0].message
        assert (message.content, (message.model_extra or {})["reasoning_content"]) == ("Four.", "Two and two.")
        content, reasoning = "", ""
        for chunk in client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
            delta = chunk.choices[0].delta
            thought = (delta.model_extra or {}).get("reasoning_content") or ""
            assert not (thought and delta.content)
            content, reasoning = content + (delta.content or ""), reasoning + thought
        assert (content, reasoning) == ("Four.", "Two and two.")


def agent_of(url: str) -> tuple[agents.Agent[Any], list[tuple[str, Any]]]:
    """Returns an agent with two tools and the list of what it calls."""
    agents.set_tracing_disabled(True)
    called: list[tuple[str, Any]] = []

    @agents.function_tool
    def get_weather(city: str, days: int) -> str:
        """Returns the weather."""
        called.append(("get_weather", (city, days)))
        return json.dumps({"sky": "sunny", "in": city})

    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Adds numbers."""
        called.append(("add", (a, b)))
        return a + b

    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    model = agents.OpenAIChatCompletionsModel(model="m", openai_client=client)
    return agents.Agent(name="a", instructions="Use the tools.", model=model, tools=[get_weather, add]), called


LOOP = [
    "<think>\nFirst the weather.\n</think>\n\n" + call("get_weather", ZURICH) + "\n" + call("get_weather", OSLO),
    call("add", {"a": 2, "b": 3}),
    "Sunny, and 5.",
]
CALLED = [
    ("get_weather", (ZURICH["city"], ZURICH["days"])),
    ("get_weather", (OSLO["city"], OSLO["days"])),
    ("add", (2, 3)),
]


def test_agent_with_two_tools(scripted: Scripted) -> None:
    with scripted(LOOP, *QWEN) as url:
        agent, called = agent_of(url)
        result = agents.Runner.run_sync(agent, "Weather? And 2 + 3?")
    assert result.final_output == "Sunny, and 5."
    assert sorted(called) == sorted(CALLED)


def test_agent_streams(scripted: Scripted) -> None:
    async def run(agent: agents.Agent[Any]) -> str:
        result = agents.Runner.run_streamed(agent, "Weather? And 2 + 3?")
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    with scripted(LOOP, *QWEN) as url:
        agent, called = agent_of(url)
        assert asyncio.run(run(agent)) == "Sunny, and 5."
    assert sorted(called) == sorted(CALLED)


class Report(BaseModel):
    """What an agent has to return."""

    sky: str


def test_agent_with_an_output_type(scripted: Scripted) -> None:
    # An answer that is no call is begun anew, with the grammar of the type.
    with scripted([LOOP[0], "Sunny.", '{"sky": "sunny"}'], *QWEN) as url:
        agent, called = agent_of(url)
        result = agents.Runner.run_sync(agent.clone(output_type=Report), "Weather?")
    assert result.final_output == Report(sky="sunny")
    assert len(called) == 2


@pytest.mark.parametrize(
    ("parser", "answer"),
    [
        ("hermes", call("add", {"a": 2, "b": 3})),
        ("llama3", '<|python_tag|>{"name": "add", "parameters": {"a": 2, "b": 3}}'),
        ("llama3", '{"name": "add", "parameters": {"a": 2, "b": 3}}'),
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {"a": 2, "b": 3}}]'),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 2, "b": 3}'),
    ],
)
def test_agent_of_each_format(scripted: Scripted, parser: str, answer: str) -> None:
    with scripted([answer, "5"], "-tool-call-parser", parser) as url:
        agent, called = agent_of(url)
        assert agents.Runner.run_sync(agent, "2 + 3?").final_output == "5"
    assert called == [("add", (2, 3))]
