"""Measures llama.cpp as `minisgl bench --json` measures minisgl: the same cases, through its C API.

    python scripts/peers/llama_cpp_bench.py MODEL.gguf --threads 2 --cases 512,16x32+64

Prints one JSON object with tokens per second. Flash attention is on; decoding needs no sampler, so none is
timed. Runs in the environment that scripts/bench_peers.py makes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import re
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import llama_cpp as lib

MAX_BATCH = 2048


@dataclass
class Case:
    """batch requests of prompt tokens, then output tokens of each; without output, the prompt's speed."""

    batch: int
    prompt: int
    output: int


def parse(text: str) -> Case:
    """Reads 512 or 16x32+64."""
    match = re.fullmatch(r"(?:(\d+)x)?(\d+)(?:\+(\d+))?", text)
    if not match:
        raise SystemExit(f"case {text!r} is neither PROMPT nor BATCHxPROMPT+OUTPUT")
    return Case(int(match[1] or 1), int(match[2]), int(match[3] or 0))


class Peer:
    """A model of llama.cpp, and a context for one case at a time."""

    def __init__(self, path: Path, threads: int) -> None:
        lib.llama_log_set(_quiet, ctypes.c_void_p(0))
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp could not load {path}")
        self.threads = threads
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.rng = random.Random(1)

    def measure(self, case: Case, repeat: int) -> list[float]:
        """Tokens per second of each run."""
        params = lib.llama_context_default_params()
        params.n_ctx = case.batch * (-(-(case.prompt + case.output + 1) // 256) * 256)
        params.n_batch, params.n_ubatch = MAX_BATCH, 512
        params.n_seq_max = case.batch
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        context = lib.llama_init_from_model(self.model, params)
        batch = lib.llama_batch_init(MAX_BATCH, 0, 1)
        try:
            self._run(context, batch, Case(1, 16, 4))  # warms up
            return [self._run(context, batch, case) for _ in range(repeat)]
        finally:
            lib.llama_batch_free(batch)
            lib.llama_free(context)

    def _run(self, context: lib.llama_context_p, batch: lib.llama_batch, case: Case) -> float:
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        rows = [(seq, pos, pos == case.prompt - 1) for seq in range(case.batch) for pos in range(case.prompt)]
        start = time.perf_counter()
        for first in range(0, len(rows), MAX_BATCH):
            self._decode(context, batch, rows[first : first + MAX_BATCH])
        if case.output == 0:
            return case.prompt / (time.perf_counter() - start)
        start = time.perf_counter()
        for step in range(case.output):
            self._decode(context, batch, [(seq, case.prompt + step, True) for seq in range(case.batch)])
        return case.batch * case.output / (time.perf_counter() - start)

    def _decode(self, context: lib.llama_context_p, batch: lib.llama_batch, rows: list[tuple[int, int, bool]]) -> None:
        batch.n_tokens = len(rows)
        for i, (seq, pos, logits) in enumerate(rows):
            batch.token[i] = self.rng.randrange(self.vocab)
            batch.pos[i] = pos
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = seq
            batch.logits[i] = logits
        if lib.llama_decode(context, batch) != 0:
            raise SystemExit("llama.cpp could not decode a batch")
        lib.llama_synchronize(context)


@lib.llama_log_callback
def _quiet(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", default="512,1x32+64")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    peer = Peer(args.model, args.threads)
    results = []
    for case in map(parse, args.cases.split(",")):
        runs = peer.measure(case, args.repeat)
        results.append(asdict(case) | {"runs": runs, "tokens_per_second": statistics.median(runs)})
    print(json.dumps({"model": str(args.model), "results": results}))


if __name__ == "__main__":
    main()
