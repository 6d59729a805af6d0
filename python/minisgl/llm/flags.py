"""The engine's command-line flags, as the server has them, for programs in Python."""

from __future__ import annotations

import argparse
from typing import Any


def batch_sizes(text: str) -> list[int]:
    """Reads numbers with commas between them."""
    return [int(size) for size in text.split(",")]


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of an engine; ``engine_arguments`` reads them."""
    add = parser.add_argument_group("engine").add_argument
    add("--model-path", "--model", required=True, help="the model: a name, a directory or a .gguf file")
    add("--model-source", help="where a model's name is looked up: huggingface or modelscope")
    add("--dtype", default="auto", help="type of weights: auto, float32, bfloat16 or float16")
    add(
        "--quantization",
        help="of weights: auto (quantized ones are used as they are, unless --dtype float32), none, int8, int4 or fp8",
    )
    add("--kv-cache-dtype", help="of keys and values: auto (that of --dtype), float32, bfloat16, float16, int8 or fp8")
    add("--device", help="auto (a GPU if there is one), cpu, cuda, or ref (slow; to compare results with)")
    add("--threads", dest="num_threads", type=int, help="CPU threads (default: the cores that the process may use)")
    add("--max-running-requests", dest="max_running_req", type=int, help="requests that run at once")
    add("--max-seq-len-override", type=int, help="tokens of prompt and answer together (default: the model's)")
    add("--memory-ratio", type=float, help="share of the free memory for weights and KV")
    add(
        "--max-prefill-length",
        "--max-extend-length",
        dest="max_extend_tokens",
        type=int,
        help="prompt tokens that a batch computes at most",
    )
    add("--num-pages", dest="num_page_override", type=int, help="pages of the KV cache (default: by --memory-ratio)")
    add("--page-size", type=int, help="tokens of a page")
    add("--cache-type", help="prefix cache: radix or naive")
    add("--schedule-policy", help="which waiting request is first: fcfs, or lpm (the longest cached prefix)")
    add("--admission", help="KV pages to reserve: optimistic or conservative (all of max_tokens)")
    add("--mixed-prefill-tokens", type=int, help="prompt tokens that may run beside decoding requests in one batch")
    add(
        "--disable-overlap-schedule",
        dest="disable_overlap",
        action="store_true",
        default=None,
        help="plan a batch only when the one before is done",
    )
    add(
        "--disable-jump-forward",
        action="store_true",
        default=None,
        help="sample also the tokens that a grammar forces, one by one",
    )
    add("--speculative-algorithm", help="guess tokens and verify several in one step, where that pays: ngram")
    add("--speculative-num-draft-tokens", type=int, help="guesses in a step at most")
    add("--tensor-parallel-size", "--tp-size", dest="tp_size", type=int, help="ranks to split the model over")
    add("--seed", type=int, help="for the random numbers of requests that bring no seed")
    add("--attention-backend", "--attn", default="auto", help="of a GPU: ours, fa, fi or a pair")
    add("--moe-backend", default="auto", help="of a GPU")
    add("--cuda-graph-max-bs", "--graph", type=int, help="of a GPU; 0: no graphs")
    add("--cuda-graph-bs", type=batch_sizes, metavar="N,N", help="those numbers of requests instead: 1,2,4,8")
    add("--disable-pynccl", dest="use_pynccl", action="store_false", default=True, help="of several GPUs")
    add("--dummy-weight", dest="use_dummy_weight", action="store_true", default=None, help="random weights")


def engine_arguments(parsed: argparse.Namespace) -> dict[str, Any]:
    """Returns the keyword arguments for LLM that the flags stand for."""
    return {name: getattr(parsed, name) for name in _NAMES if getattr(parsed, name) is not None}


_NAMES = (
    "model_path",
    "model_source",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "device",
    "tp_size",
    "num_threads",
    "max_running_req",
    "max_seq_len_override",
    "memory_ratio",
    "max_extend_tokens",
    "num_page_override",
    "page_size",
    "cache_type",
    "schedule_policy",
    "admission",
    "mixed_prefill_tokens",
    "disable_overlap",
    "disable_jump_forward",
    "speculative_algorithm",
    "speculative_num_draft_tokens",
    "seed",
    "attention_backend",
    "moe_backend",
    "cuda_graph_max_bs",
    "cuda_graph_bs",
    "use_pynccl",
    "use_dummy_weight",
)
