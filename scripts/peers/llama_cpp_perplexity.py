"""llama.cpp's perplexity of a text, as `minisgl perplexity` computes it; and requantized files to compare.

    python scripts/peers/llama_cpp_perplexity.py MODEL.gguf scripts/peers/text.txt
    python scripts/peers/llama_cpp_perplexity.py --requantize bf16|q8_0|q4_0 MODEL.gguf OUTPUT.gguf

Runs in the environment that scripts/bench_peers.py makes.
"""

from __future__ import annotations

import argparse
import ctypes
import math
from pathlib import Path

import llama_cpp as lib
import numpy as np
from llama_cpp_quantize import KINDS, requantize

WINDOW = 256


@lib.llama_log_callback
def _quiet(_level: int, _text: bytes, _data: ctypes.c_void_p) -> None:
    pass


def tokenize(model: lib.llama_model_p, text: bytes) -> list[int]:
    """The text's tokens, without any that the text does not hold."""
    vocab = lib.llama_model_get_vocab(model)
    room = (lib.llama_token * len(text))()
    count = lib.llama_tokenize(vocab, text, len(text), room, len(room), False, False)
    return list(room[:count])


def perplexity(path: Path, text: Path, threads: int) -> tuple[float, int]:
    """exp of the mean negative log-probability of all tokens but each window's first."""
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp could not load {path}")
    ids = tokenize(model, text.read_bytes())
    size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    context_params = lib.llama_context_default_params()
    context_params.n_ctx = context_params.n_batch = context_params.n_ubatch = WINDOW
    context_params.n_threads = context_params.n_threads_batch = threads
    context_params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
    context = lib.llama_init_from_model(model, context_params)
    batch = lib.llama_batch_init(WINDOW, 0, 1)
    total, count = 0.0, 0
    for first in range(0, len(ids) - 1, WINDOW):
        window = ids[first : first + WINDOW]
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        batch.n_tokens = len(window)
        for i, token in enumerate(window):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
            batch.seq_id[i][0] = 0
        if lib.llama_decode(context, batch) != 0:
            raise SystemExit("llama.cpp could not decode a batch")
        for i, following in enumerate(window[1:]):
            logits = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, i), (size,)).astype(np.float64)
            most = logits.max()
            total += most + math.log(np.exp(logits - most).sum()) - logits[following]
            count += 1
    return math.exp(total / count), count


def main() -> None:
    """Measures, or makes a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requantize", choices=KINDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("model", type=Path)
    parser.add_argument("other", type=Path, help="the text, or the file to make")
    args = parser.parse_args()
    lib.llama_log_set(_quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    if args.requantize:
        requantize(args.model, args.other, args.requantize)
        return
    value, count = perplexity(args.model, args.other, args.threads)
    print(f"perplexity {value:.4f} over {count} tokens")


if __name__ == "__main__":
    main()
