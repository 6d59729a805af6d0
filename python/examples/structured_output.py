"""Structured output with a small real model: JSON by a schema, a regular expression, rules.

Run it with: .venv/bin/python python/examples/structured_output.py [MODEL]
"""

from __future__ import annotations

import json
import sys
from typing import Any

from minisgl.core import SamplingParams
from minisgl.llm import LLM

# A Pydantic model class does as well: json_schema=Person.
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "born": {"type": "integer", "minimum": 1000, "maximum": 2030},
        "fields": {"type": "array", "items": {"enum": ["physics", "chemistry", "music"]}, "maxItems": 3},
    },
    "required": ["name", "born", "fields"],
    "additionalProperties": False,
}

SUM = """
root   ::= number (" + " number){1,2} " = " number
number ::= [1-9] [0-9]?
"""


def main() -> None:
    """Asks the model four questions, each of which has an answer of a certain form."""
    questions = {
        "Who was Marie Curie? Answer in JSON.": SamplingParams(json_schema=PERSON, max_tokens=100),
        "On which date did the Berlin Wall fall?": SamplingParams(regex=r"\d{4}-\d{2}-\d{2}"),
        "Is the sky blue?": SamplingParams(regex="yes|no"),
        "Add three numbers.": SamplingParams(ebnf=SUM),
    }
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m") as llm:
        outs = llm.chat([[{"role": "user", "content": q}] for q in questions], list(questions.values()))
    for question, out in zip(questions, outs, strict=True):
        print(f"{question}\n    {out['text']}")
    print("parsed:", json.loads(outs[0]["text"]))


if __name__ == "__main__":
    main()
