"""Make the golden renderings of chat templates for go/tokenizer.

Renders conversations with transformers' own code for four templates: SmolLM2's
(from its GGUF file), Qwen3's (from its published tokenizer_config.json), one in
the style of Llama 3 and one in the style of Mistral. A conversation that the
template refuses is recorded with the template's message.

Usage: tokenizer_chat.py GGUF QWEN3_TOKENIZER_CONFIG_JSON OUTPUT_FILE
(packages: transformers, gguf)
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

LLAMA3 = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message comes first, so it is taken out of the list. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary}.\n\n' }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- macro header(role, gap="\n\n") -%}
    <|start_header_id|>{{ role }}<|end_header_id|>{{ gap }}
{%- endmacro %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- header(message['role']) + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- header('assistant') }}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- header("ipython") }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- header('assistant') }}
{%- endif %}
"""

MISTRAL = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0, seen=[]) %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("Roles must alternate user/assistant/user/assistant/...") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{ bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {%- generation %}
        {{- " " + message["content"].strip() + eos_token }}
        {%- endgeneration %}
    {%- else %}
        {{- raise_exception("Only user and assistant are supported, not " + message["role"]) }}
    {%- endif %}
{%- endfor %}
{% if show is defined %}
  {{ show }} {{ none }} {{ [1, 2.0, 'a', none, true] }} {{ show | tojson }} {{ 3 / 2 }}
  {% for k, v in show.items() %}
    {{ k }}={{ v | string | upper }}{% if not loop.last %},{% endif %}
  {% endfor %}
{% endif %}
"""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather <now> & 'soon' in a city, e.g. Zürich\u2028or 東京",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "the city"},
                "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3},
                "bias": {"type": "number", "minimum": -1.0, "maximum": 1e16, "multipleOf": 1e-05},
                "units": {"enum": ["C", "F", None], "nullable": True},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {"type": "object", "properties": {}, "a": [], "z": [[1], {"y": 0.1}]},
    },
}


def call(name: str, arguments: Any, call_id: str = "call_1") -> dict[str, Any]:
    """Returns a tool call as OpenAI's API has it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def message(role: str, content: str, **extra: Any) -> dict[str, Any]:
    """Returns a message."""
    return {"role": role, "content": content, **extra}


def conversations() -> dict[str, dict[str, Any]]:
    """Returns the inputs by name: messages and, where set, tools and kwargs."""
    user, assistant, system = "user", "assistant", "system"
    tool_turns = [
        message(system, "Use the tools."),
        message(user, "Weather in Zürich & 東京?"),
        message(
            assistant,
            "",
            tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "bias": 1.0})],
        ),
        message("tool", '{"temp": 21.5, "sky": "☀️"}', tool_call_id="call_1"),
    ]
    thinking = "<think>\nLet me see.\n</think>\n\nIt is 4."
    return {
        "one user": {"messages": [message(user, "Hi there")]},
        "system": {"messages": [message(system, "Be brief."), message(user, "Hi")]},
        "turns": {
            "messages": [
                message(system, "  You are kind.\n"),
                message(user, " one "),
                message(assistant, "\ntwo\n"),
                message(user, "three"),
                message(assistant, "four"),
                message(user, "five"),
            ]
        },
        "unicode": {
            "messages": [message(user, "漢字 한국어 👩‍🚀🇯🇵 é <|im_end|> \"q\" 'a' \\ {{ x }} {% y %}\u3000\x1c")]
        },
        "unicode answer": {
            "messages": [
                message(user, "a"),
                message(assistant, "\u3000\x1f漢字\u2003\x85"),
                message(user, "b"),
            ]
        },
        "empty": {"messages": [message(user, "")]},
        "last is assistant": {"messages": [message(user, "2+2?"), message(assistant, thinking)]},
        "thought": {
            "messages": [
                message(user, "2+2?"),
                message(assistant, thinking),
                message(user, "sure?"),
            ]
        },
        "reasoning": {
            "messages": [
                message(user, "2+2?"),
                message(assistant, "4", reasoning_content="\nadd them\n"),
                message(user, "sure?"),
                message(assistant, "yes", reasoning="by counting", name=None),
            ]
        },
        "tools": {"messages": [message(user, "Weather?")], "tools": [WEATHER, SEARCH]},
        "tool turns": {"messages": tool_turns, "tools": [WEATHER]},
        "tool answers": {
            "messages": [
                *tool_turns[:2],
                message(
                    assistant,
                    "Looking.",
                    tool_calls=[call("search", '{"q": "a<b"}'), call("search", {}, "call_2")],
                ),
                message("tool", "first", tool_call_id="call_1"),
                message("tool", "second", tool_call_id="call_2"),
                message(assistant, "Done."),
                message(user, "Thanks"),
            ],
            "tools": [SEARCH],
        },
        "no thinking": {"messages": [message(user, "Hi")], "kwargs": {"enable_thinking": False}},
        "with thinking": {"messages": [message(user, "Hi")], "kwargs": {"enable_thinking": True}},
        "kwargs": {
            "messages": [message(user, "Hi")],
            "kwargs": {
                "date_string": "1 Jan 2030",
                "show": {"b": "it's", "a": 1.5, "n": None, "l": [True, "x\n\"'é"], "big": 1e16},
            },
        },
        "no prompt": {"messages": [message(user, "Hi")], "add_generation_prompt": False},
        "two users": {"messages": [message(user, "a"), message(user, "b")]},
        "assistant first": {"messages": [message(assistant, "a"), message(user, "b")]},
        "many tool calls": {
            "messages": [
                message(user, "a"),
                message(assistant, "", tool_calls=[call("x", {}), call("y", {})]),
            ]
        },
    }


def render(template: str, bos: str, eos: str, case: dict[str, Any]) -> dict[str, str]:
    """Returns the rendering, or the message that the template raised."""
    tok = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()),
        bos_token=bos,
        eos_token=eos,
        chat_template=template,
    )
    try:
        text = tok.apply_chat_template(
            case["messages"],
            tools=case.get("tools"),
            tokenize=False,
            add_generation_prompt=case.get("add_generation_prompt", True),
            **case.get("kwargs", {}),
        )
    except TemplateError as err:
        return {"error": str(err)}
    return {"want": text}


def main() -> None:
    """Writes all cases."""
    gguf, qwen_config, out = sys.argv[1:4]
    smollm = GGUFReader(gguf).fields["tokenizer.chat_template"].contents()
    qwen = json.loads(Path(qwen_config).read_text())["chat_template"]
    templates = {
        "smollm2": (smollm, "<|im_start|>", "<|im_end|>"),
        "qwen3": (qwen, "", "<|im_end|>"),
        "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
        "mistral": (MISTRAL, "<s>", "</s>"),
    }
    cases = []
    for name, (source, bos, eos) in templates.items():
        for title, case in conversations().items():
            cases.append({"template": name, "title": title, **case, **render(source, bos, eos, case)})
    value = {
        "templates": {name: {"source": s, "bos": b, "eos": e} for name, (s, b, e) in templates.items()},
        "cases": cases,
    }
    data = json.dumps(value, ensure_ascii=False, indent=1).encode()
    Path(out).write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main()
