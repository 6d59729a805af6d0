"""Conversations of several turns with the radix and the naive prefix cache: TTFT by turn.

Each turn's prompt is all that was said before, and something new. With the radix cache only
the new part is computed, so that TTFT stays level; the naive cache computes everything again.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from statistics import median

from minisgl.core import SamplingParams
from minisgl.llm import LLM


def turn(llm: LLM, prompt: list[int], tokens: int) -> tuple[float, list[int]]:
    """Returns the seconds to the first token, and the answer."""
    start, ttft, answer = time.perf_counter(), 0.0, []
    for step in llm.stream(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True)):
        if step.token_id is not None:
            ttft = ttft or time.perf_counter() - start
            answer.append(step.token_id)
    return ttft, answer


def converse(llm: LLM, users: int, turns: int, new: int, tokens: int) -> list[list[float]]:
    """Lets users hold a conversation each, a turn of each in turns; returns the TTFTs of every turn."""
    random = Random(0)
    said: list[list[int]] = [[] for _ in range(users)]
    ttfts: list[list[float]] = []
    for _ in range(turns):
        ttfts.append([])
        for history in said:
            history += [random.randint(0, 9999) % llm.tokenizer.vocab_size for _ in range(new)]
            ttft, answer = turn(llm, history, tokens)
            ttfts[-1].append(ttft)
            history += answer
    return ttfts


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=64, help="that a user adds in a turn")
    parser.add_argument("--max-tokens", type=int, default=16, help="of an answer")
    args = parser.parse_args()
    length = args.turns * (args.new_tokens + args.max_tokens) + 1
    for cache in ("naive", "radix"):
        with LLM(
            args.model, cache_type=cache, max_seq_len_override=length, num_page_override=length * args.users
        ) as llm:
            llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))
            ttfts = converse(llm, args.users, args.turns, args.new_tokens, args.max_tokens)
            stats = llm.stats()
        row = "  ".join(f"{1000 * median(times):6.1f}" for times in ttfts)
        print(f"{cache}: TTFT by turn (ms) {row}   {stats['prompt_tokens']} prompt tokens computed", flush=True)


if __name__ == "__main__":
    main()
