"""Checks the keyword arguments of LLM and makes the engine's options of them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from typing import Any

from minisgl.core import as_bool, as_float, as_int, check
from minisgl.env import ENV

DTYPES = ("auto", "bfloat16", "float16", "float32")

Check = Callable[[str, Any], Any]


def engine_options(model_path: Any, dtype: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options for the engine, under the names of Go's llm.Config.

    Raises:
        TypeError: An unknown name, or a value of the wrong type.
        ValueError: A value out of range, or one that asks for what this build lacks.
    """
    options: dict[str, Any] = {"model_path": _path(model_path), "dtype": dtype_name(dtype)}
    if ENV.DISABLE_OVERLAP_SCHEDULING:
        options["disable_overlap"] = True
    for name, value in kwargs.items():
        if name in _PASSED:
            if value is not None:
                options[name] = _PASSED[name](name, value)
        elif name in _WITHOUT_EFFECT:
            _WITHOUT_EFFECT[name](name, value)
        else:
            raise TypeError(_unknown(name))
    return options


def _path(value: Any) -> str:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise TypeError(f"model_path must be a str or a path, got {value!r}")
    return path


def dtype_name(dtype: Any) -> str:
    """Returns the name of a torch.dtype (torch itself isn't needed) or of a string."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    return name


def _unknown(name: str) -> str:
    known = [*_PASSED, *_WITHOUT_EFFECT, "model_path", "dtype"]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"LLM got an unknown option {name!r}{hint}"


def _positive(name: str, value: Any) -> int:
    number = as_int(name, value)
    check(number >= 1, name, "at least 1", value)
    return number


def _not_negative(name: str, value: Any) -> int:
    number = as_int(name, value)
    check(number >= 0, name, "at least 0", value)
    return number


def _ratio(name: str, value: Any) -> float:
    number = as_float(name, value)
    check(0 < number <= 1, name, "in (0, 1]", value)
    return number


def _name(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} must be a name, got {value!r}")
    return value


def _attention(name: str, value: Any) -> str:
    names = str(value).split(",")
    known = len(names) <= 2 and all(n in ("auto", "ours", "fa", "fi", "trtllm") for n in names)
    check(known, name, "auto, ours, fa, fi, trtllm or a pair of these; on the CPU all mean the same", value)
    return str(value)


def _moe(name: str, value: Any) -> None:
    check(value in ("auto", "fused"), name, "auto or fused; on the CPU both mean the same", value)


def _one_rank(name: str, value: Any) -> None:
    if value is not None and getattr(value, "size", None) != 1:
        raise ValueError(f"{name} must be None or have size 1: one process runs all ranks, use tp_size; got {value!r}")


def _batch_sizes(name: str, value: Any) -> list[int]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a list of batch sizes or None, got {value!r}")
    if not value:
        raise ValueError(f"{name} must be at least one size; cuda_graph_max_bs=0 is for no graphs")
    return [_positive(name, size) for size in value]


def _seconds(name: str, value: Any) -> None:
    check(as_float(name, value) > 0, name, "positive", value)


# None means the default for each of these.
_PASSED: dict[str, Check] = {
    "model_source": _name,
    "use_dummy_weight": as_bool,
    "quantization": _name,
    "kv_cache_dtype": _name,
    "device": _name,
    "tp_size": _positive,
    "num_threads": _positive,
    "max_running_req": _positive,
    "max_seq_len_override": _positive,
    "num_page_override": _positive,
    "page_size": _positive,
    "max_extend_tokens": _positive,
    "memory_ratio": _ratio,
    "cache_type": _name,
    "schedule_policy": _name,
    "admission": _name,
    "mixed_prefill_tokens": _not_negative,
    "disable_overlap": as_bool,
    "disable_jump_forward": as_bool,
    "speculative_algorithm": _name,
    "speculative_num_draft_tokens": _positive,
    "seed": _not_negative,
    "chat_template": _name,
    "attention_backend": _attention,
    "cuda_graph_max_bs": _not_negative,
    "cuda_graph_bs": _batch_sizes,
}

# mini-sglang's names for what has no effect here: hints about several ranks,
# which can't change a result, and choices of which only one exists.
_WITHOUT_EFFECT: dict[str, Check] = {
    "moe_backend": _moe,
    "distributed_timeout": _seconds,
    "use_pynccl": as_bool,
    "offline_mode": as_bool,
    "tp_info": _one_rank,
    "_unique_suffix": _name,
}
