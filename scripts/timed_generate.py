"""The Python side of ``make bench-python``: LLM.generate, timed, for the Go program that asks over a pipe.

The first line of standard input has the arguments of LLM as JSON, each other one a list of prompts of token ids
and max_tokens. Each is answered with a line of JSON: the seconds that the call took, and the tokens that it gave.
"""

from __future__ import annotations

import json
import sys
import time

from minisgl.core import SamplingParams
from minisgl.llm import LLM


def main() -> None:
    """Answers until the input ends."""
    with LLM(**json.loads(sys.stdin.readline())) as llm:
        for line in sys.stdin:
            load = json.loads(line)
            params = SamplingParams(max_tokens=load["max_tokens"], ignore_eos=True)
            start = time.perf_counter()
            outputs = llm.generate(load["prompts"], params)
            seconds = time.perf_counter() - start
            print(json.dumps({"seconds": seconds, "token_ids": [out["token_ids"] for out in outputs]}), flush=True)


if __name__ == "__main__":
    main()
