"""Offline throughput: all requests at once, output tokens a second.

``python -m minisgl.benchmark.offline --model MODEL`` runs it; the engine's flags are
taken too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from random import Random
from typing import Any, TypedDict

from minisgl.core import SamplingParams
from minisgl.llm import LLM
from minisgl.llm.flags import add_engine_flags, engine_arguments

_LARGEST_ID = 10000


class OfflineResult(TypedDict):
    """What a run measured; throughput is output tokens a second."""

    output_tokens: int
    seconds: float
    throughput: float


def workload(
    num_seqs: int, max_input_len: int, max_output_len: int, vocab_size: int
) -> tuple[list[list[int]], list[SamplingParams]]:
    """Draws prompts and parameters, the same ones each time.

    Lengths are uniform from a tenth of the maximum up to it, and ids uniform in 0 to
    10000. A model with fewer ids gets them modulo its vocabulary's size, so that the
    lengths are the same for all models. Each request goes on up to its max_tokens.
    """
    random = Random(0)
    prompts = [
        [random.randint(0, _LARGEST_ID) for _ in range(random.randint(max_input_len // 10, max_input_len))]
        for _ in range(num_seqs)
    ]
    params = [
        SamplingParams(
            temperature=0.6,
            ignore_eos=True,
            max_tokens=random.randint(max_output_len // 10, max_output_len),
        )
        for _ in range(num_seqs)
    ]
    return [[token % vocab_size for token in prompt] for prompt in prompts], params


def run(
    model: str,
    num_seqs: int,
    max_input_len: int,
    max_output_len: int,
    dtype: Any = "bfloat16",
    **llm_kwargs: Any,
) -> OfflineResult:
    """Generates for num_seqs random prompts at once and returns the throughput.

    Args:
        model: As for LLM.
        num_seqs: Number of requests.
        max_input_len: Tokens of the longest prompt, at least 10.
        max_output_len: Tokens of the longest output, at least 10.
        dtype: As for LLM.
        **llm_kwargs: As for LLM.

    Raises:
        ValueError: A number is too small, or what LLM raises.
    """
    for name, value, least in (
        ("num_seqs", num_seqs, 1),
        ("max_input_len", max_input_len, 10),
        ("max_output_len", max_output_len, 10),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")
    with LLM(model, dtype=dtype, **llm_kwargs) as llm:
        prompts, params = workload(num_seqs, max_input_len, max_output_len, llm.tokenizer.vocab_size)
        llm.generate(["Benchmark: "], SamplingParams(max_tokens=4))  # the first call pays for what is made on demand
        start = time.perf_counter()
        outputs = llm.generate(prompts, params)
        seconds = time.perf_counter() - start
    total = sum(len(output["token_ids"]) for output in outputs)
    return {"output_tokens": total, "seconds": seconds, "throughput": total / seconds}


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m minisgl.benchmark.offline", description=__doc__.split("\n")[0])
    parser.add_argument("--num-seqs", type=int, default=256, help="requests (default %(default)s)")
    parser.add_argument("--max-input-len", type=int, default=1024, help="of the prompts (default %(default)s)")
    parser.add_argument("--max-output-len", type=int, default=1024, help="of the outputs (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_engine_flags(parser)
    parser.set_defaults(dtype="bfloat16")
    parsed = parser.parse_args(args)
    arguments = engine_arguments(parsed)
    try:
        result = run(
            arguments.pop("model_path"),
            parsed.num_seqs,
            parsed.max_input_len,
            parsed.max_output_len,
            **arguments,
        )
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if parsed.json:
        print(json.dumps(result))
    else:
        print(
            f"Total: {result['output_tokens']}tok, Time: {result['seconds']:.2f}s, "
            f"Throughput: {result['throughput']:.2f}tok/s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
