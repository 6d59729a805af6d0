"""The two ablations of the book's chapter on benchmarks: batch size, and prefix cache.

``python python/examples/ablations.py`` runs them on SmolLM2-135M (a minute on two cores).
"""

from __future__ import annotations

import argparse
import time
from random import Random

from minisgl.core import SamplingParams
from minisgl.llm import LLM
from minisgl.llm.forward import ForwardInput


def batch_size(model: str, requests: int, tokens: int) -> None:
    """Runs the same requests with 1, 4 and all of them at once."""
    random = Random(0)
    prompts = [[random.randint(100, 10000) for _ in range(random.randint(32, 64))] for _ in range(requests)]
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0.6)
    print(f"Requests at once ({requests} requests, prompts of 32 to 64 tokens, outputs of {tokens})")
    for running in sorted({1, min(4, requests), requests}):
        with LLM(model, max_running_req=running, num_page_override=4096, max_seq_len_override=256) as llm:
            usable = [[token % llm.tokenizer.vocab_size for token in prompt] for prompt in prompts]
            llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))  # the first call pays for what is made on demand
            start = time.perf_counter()
            outputs = llm.generate(usable, params)
            seconds = time.perf_counter() - start
        count = sum(len(output["token_ids"]) for output in outputs)
        print(f"  max_running_req={running:<3} {seconds:6.2f} s  {count / seconds:7.1f} output tok/s", flush=True)


def prefix_cache(model: str, requests: int, tokens: int) -> None:
    """Counts the prompt tokens that each cache computes for requests with a prefix of 400 in common."""
    random = Random(0)
    shared = [random.randint(100, 10000) for _ in range(400)]
    prompts = [shared + [random.randint(100, 10000) for _ in range(16)] for _ in range(requests)]
    print(f"Prefix cache ({requests} requests that share 400 tokens, and 16 of their own)")
    for cache in ("naive", "radix"):
        pages = requests * 512
        with LLM(
            model, max_running_req=requests, num_page_override=pages, max_seq_len_override=512, cache_type=cache
        ) as llm:
            usable = [[token % llm.tokenizer.vocab_size for token in prompt] for prompt in prompts]
            llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))
            computed = count_prefill(llm)
            start = time.perf_counter()
            llm.generate(usable[:1], SamplingParams(max_tokens=1))  # its prefix is there for the others
            llm.generate(usable[1:], SamplingParams(max_tokens=tokens, ignore_eos=True))
            seconds = time.perf_counter() - start
        print(f"  {cache:<5} {sum(computed):>6} prompt tokens computed in {seconds:5.2f} s", flush=True)


def count_prefill(llm: LLM) -> list[int]:
    """Returns a list that grows by the prompt tokens of each batch that has some."""
    computed: list[int] = []
    forward = llm._forward

    def counting(fi: ForwardInput) -> None:
        if fi.batch.is_prefill:
            computed.append(len(fi.batch.positions))
        forward(fi)

    llm._forward = counting  # type: ignore[method-assign]
    return computed


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--batch-tokens", type=int, default=32, help="output tokens of the first ablation")
    parser.add_argument("--cache-tokens", type=int, default=8, help="output tokens of the second")
    args = parser.parse_args()
    batch_size(args.model, args.requests, args.batch_tokens)
    prefix_cache(args.model, args.requests, args.cache_tokens)


if __name__ == "__main__":
    main()
