"""An answer that is printed as it comes, then TTFT and tokens a second."""

from __future__ import annotations

import argparse
import time

from minisgl.core import SamplingParams
from minisgl.llm import LLM


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("question", nargs="?", default="Why is the sky blue?")
    args = parser.parse_args()
    with LLM(args.model) as llm:
        messages = [{"role": "user", "content": args.question}]
        start, times = time.perf_counter(), []
        for step in llm.stream_chat(messages, SamplingParams(max_tokens=args.max_tokens)):
            times.append(time.perf_counter())
            print(step.text, end="", flush=True)
    speed = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    print(f"\n[TTFT {1000 * (times[0] - start):.0f} ms, {speed:.1f} tok/s]")


if __name__ == "__main__":
    main()
