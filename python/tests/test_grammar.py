"""Structured output: what comes is what the schema, the expression or the rules say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from server import Server

from minisgl.core import SamplingParams
from minisgl.llm import LLM

SCHEMAS = Path(__file__).resolve().parents[2] / "go/internal/grammar/testdata/schemas.json"


class Wheel(BaseModel):
    size: int = Field(ge=10, le=30)


class Car(BaseModel):
    colour: Literal["red", "green"]
    wheels: list[Wheel] = Field(min_length=1, max_length=2)
    name: str = Field(max_length=8)


@pytest.fixture(scope="module")
def random_llm(tiny: str) -> Iterator[LLM]:
    """Random weights: it writes whatever it may."""
    with LLM(tiny, dtype="float32", use_dummy_weight=True) as engine:
        yield engine


def closing(llm: LLM) -> dict[int, float]:
    """Biases for what closes a string, a list or an object, so that outputs come to an end."""
    return {llm.tokenizer.encode(mark)[0]: 6.0 for mark in '"]}'}


def test_every_output_validates(random_llm: LLM) -> None:
    schemas = [case["schema"] for case in json.loads(SCHEMAS.read_text())]
    assert len(schemas) == 200
    bias = closing(random_llm)
    params = [
        SamplingParams(json_schema=schema, temperature=1.0, seed=seed, max_tokens=400, logit_bias=bias)
        for schema in schemas
        for seed in range(5)
    ]
    outs = random_llm.generate(["JSON: "] * len(params), params)
    ended = 0
    for out, schema in zip(outs, [s for s in schemas for _ in range(5)], strict=True):
        if out["finish_reason"] == "stop":
            ended += 1
            checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
            assert checker.is_valid(json.loads(out["text"])), (schema, out["text"])
    assert ended >= 0.98 * len(params)


@pytest.mark.parametrize(
    "regex",
    [
        r"\d{3}-\d{4}",
        r"^(yes|no)$",
        r"[a-z]{1,8}(\.[a-z]{2,3})?",
        r"(ab|cd){1,3}!",
        r"#[0-9a-f]{6}",
        r"\$\d+\.\d\d",
        r"[^\W\d]{1,5}",
    ],
)
def test_regex_matches_the_whole_output(random_llm: LLM, regex: str) -> None:
    params = [SamplingParams(regex=regex, temperature=1.0, seed=seed, max_tokens=60) for seed in range(10)]
    outs = random_llm.generate(["x"] * len(params), params)
    texts = [out["text"] for out in outs if out["finish_reason"] == "stop"]
    assert texts
    assert all(re.fullmatch(regex, text) for text in texts), texts


def test_ebnf_and_structural_tag(llm: LLM) -> None:
    [out] = llm.generate(["x"], SamplingParams(ebnf='root ::= "<" [a-c]{3} ">"'))
    assert re.fullmatch("<[abc]{3}>", out["text"])
    tag = {"begin": "<f>", "schema": {"enum": [1]}, "end": "</f>"}
    params = SamplingParams(structural_tag={"structures": [tag], "triggers": ["<f"]}, max_tokens=20)
    [out] = llm.generate(["x"], params)
    assert "<f" not in out["text"] or "<f>1</f>" in out["text"]


def test_pydantic_model(llm: LLM) -> None:
    [out] = llm.generate(["A car: "], SamplingParams(json_schema=Car, max_tokens=300, logit_bias=closing(llm)))
    assert Car.model_validate_json(out["text"])


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ({"json_schema": {"type": "strin"}}, ValueError, "json_schema.*strin"),
        ({"json_schema": "{"}, ValueError, "json_schema.*not valid JSON"),
        ({"json_schema": {"properties": {"a": {"not": {}}}}}, ValueError, r"at #/properties/a"),
        ({"regex": "("}, ValueError, "regex.*unclosed"),
        ({"ebnf": "root ::= x"}, ValueError, "ebnf.*x, which is not there"),
    ],
)
def test_a_bad_grammar_is_a_value_error(llm: LLM, fields: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        llm.generate(["x"], SamplingParams(**fields))


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ({"json_schema": 5}, TypeError, "json_schema must be a dict"),
        ({"regex": b"a"}, TypeError, "regex must be a str"),
        ({"regex": "a", "ebnf": "b"}, ValueError, "regex and ebnf must be given one at a time"),
        ({"regex": "a", "min_tokens": 2}, ValueError, "min_tokens must be 0"),
    ],
)
def test_fields_are_checked(fields: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        SamplingParams(**fields)


@pytest.fixture
def client(tiny_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny_server.url}/v1", api_key="k", max_retries=0) as made:
        yield made


ASK: Any = [{"role": "user", "content": "Describe a car."}]


def test_sdk_parses_a_pydantic_model(client: openai.OpenAI, llm: LLM) -> None:
    bias = {str(token): value for token, value in closing(llm).items()}
    done = client.chat.completions.parse(
        model="m", messages=ASK, response_format=Car, max_tokens=300, seed=1, extra_body={"logit_bias": bias}
    )
    assert done.choices[0].finish_reason == "stop"
    assert isinstance(done.choices[0].message.parsed, Car)


def test_sdk_streams_a_pydantic_model(client: openai.OpenAI, llm: LLM) -> None:
    bias = {str(token): value for token, value in closing(llm).items()}
    with client.chat.completions.stream(
        model="m", messages=ASK, response_format=Car, max_tokens=300, seed=2, extra_body={"logit_bias": bias}
    ) as stream:
        done = stream.get_final_completion()
    assert isinstance(done.choices[0].message.parsed, Car)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 5}}}},
            "response_format.json_schema.schema",
        ),
        ({"extra_body": {"guided_regex": "("}}, "guided_regex"),
        ({"extra_body": {"ebnf": "root ::= ("}}, "ebnf"),
        ({"extra_body": {"regex": "a", "guided_choice": ["b"]}}, "guided_choice"),
    ],
)
def test_a_bad_grammar_is_a_400(client: openai.OpenAI, body: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="m", messages=ASK, **body)
    assert refused.value.param == param


TAG: dict[str, Any] = {
    "type": "tag",
    "begin": "<n>",
    "content": {"type": "regex", "pattern": "[0-9]{2}"},
    "end": "</n>",
}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"structured_outputs": {"regex": "[ab]{4}!"}}, "[ab]{4}!"),
        ({"structured_outputs": {"choice": ["red", "green"]}}, "red|green"),
        ({"structured_outputs": {"grammar": 'root ::= "<" [a-c]{3} ">"'}}, "<[a-c]{3}>"),
        ({"structured_outputs": {"json": {"enum": ["x", 7]}}}, '"x"|7'),
        ({"structured_outputs": {"structural_tag": {"type": "structural_tag", "format": TAG}}}, "<n>[0-9]{2}</n>"),
        ({"response_format": {"type": "structural_tag", "format": TAG}}, "<n>[0-9]{2}</n>"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ],
)
def test_every_name_of_a_grammar(client: openai.OpenAI, fields: dict[str, Any], want: str) -> None:
    chat = client.chat.completions.create(model="m", messages=ASK, max_tokens=40, extra_body=fields)
    assert re.fullmatch(want, chat.choices[0].message.content or ""), chat
    plain = client.completions.create(model="m", prompt="x", max_tokens=40, extra_body=fields)
    assert re.fullmatch(want, plain.choices[0].text), plain


def test_allowed_tools_bound_the_calls(client: openai.OpenAI) -> None:
    functions = [
        {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"n": {"enum": [1, 2]}},
                "required": ["n"],
                "additionalProperties": False,
            },
        }
        for name in ("first", "second")
    ]
    tools: Any = [{"type": "function", "function": function} for function in functions]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "second"}}]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": allowed}
    for seed in range(4):
        done = client.chat.completions.create(
            model="m",
            messages=ASK,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=False,
            seed=seed,
            max_tokens=80,
        )
        [call] = done.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "second"
        assert json.loads(call.function.arguments)["n"] in (1, 2)


def test_generate_endpoint(tiny_server: Server) -> None:
    with tiny_server.open(
        "/generate", {"text": "x", "sampling_params": {"regex": "(ab){2}", "temperature": 0, "max_new_tokens": 9}}
    ) as answer:
        assert json.load(answer)["text"] == "abab"
