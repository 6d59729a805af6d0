"""LLM's keyword arguments: passed on, without effect, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minisgl.env import Env
from minisgl.llm.options import dtype_name, engine_options


def test_options_pass_under_the_engines_names() -> None:
    options = {"max_running_req": 4, "cache_type": "naive", "use_dummy_weight": True, "model_source": "modelscope"}
    options |= {"attention_backend": "fa,fi", "cuda_graph_max_bs": 0, "cuda_graph_bs": [1, 2, 4]}
    options |= {"speculative_algorithm": "ngram", "speculative_num_draft_tokens": 4, "disable_jump_forward": True}
    got = engine_options("m", "float32", options)
    assert got == {"model_path": "m", "dtype": "float32", **options}


def test_none_is_the_default() -> None:
    got = engine_options("m", "auto", {"max_seq_len_override": None, "num_page_override": None})
    assert got == {"model_path": "m", "dtype": "auto"}


def test_overlap_is_off_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minisgl.llm.options.ENV", Env(DISABLE_OVERLAP_SCHEDULING=True))
    assert engine_options("m", "auto", {})["disable_overlap"] is True
    assert engine_options("m", "auto", {"disable_overlap": False})["disable_overlap"] is False


def test_a_path_object_is_a_model_path() -> None:
    assert engine_options(Path("a") / "b", "auto", {})["model_path"] == "a/b"
    for other in (None, 3, b"a"):
        with pytest.raises(TypeError, match="model_path must be a str or a path"):
            engine_options(other, "auto", {})


def test_mini_sglangs_neutral_values_are_taken() -> None:
    neutral = {
        "moe_backend": "fused",
        "distributed_timeout": 60.0,
        "use_pynccl": True,
        "offline_mode": True,
        "tp_info": None,
        "_unique_suffix": ".pid=7",
    }
    assert engine_options("m", "auto", neutral) == {"model_path": "m", "dtype": "auto"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention_backend", "xformers"),
        ("moe_backend", "deepep"),
        ("tp_info", object()),
        ("cuda_graph_max_bs", -1),
        ("cuda_graph_bs", [1, 0]),
        ("cuda_graph_bs", []),
        ("distributed_timeout", 0),
        ("max_running_req", 0),
        ("page_size", -1),
        ("speculative_num_draft_tokens", 0),
        ("memory_ratio", 0),
        ("memory_ratio", float("nan")),
        ("memory_ratio", 1.5),
    ],
)
def test_what_is_not_there_is_a_value_error(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        engine_options("m", "auto", {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_running_req", 1.5),
        ("max_running_req", "4"),
        ("max_running_req", True),
        ("cache_type", 3),
        ("use_pynccl", "yes"),
        ("cuda_graph_bs", 4),
    ],
)
def test_a_wrong_type_is_a_type_error(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be"):
        engine_options("m", "auto", {name: value})


@pytest.mark.parametrize(
    ("name", "near"),
    [("max_running_reqs", "max_running_req"), ("cachetype", "cache_type"), ("dtyp", "dtype")],
)
def test_an_unknown_name_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"{name!r}; did you mean {near!r}"):
        engine_options("m", "auto", {name: 1})


class FakeTorchDtype:
    def __str__(self) -> str:
        return "torch.bfloat16"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("auto", "auto"),
        ("float32", "float32"),
        ("torch.float32", "float32"),
        (FakeTorchDtype(), "bfloat16"),
    ],
)
def test_dtype_forms(dtype: Any, name: str) -> None:
    assert dtype_name(dtype) == name


@pytest.mark.parametrize("dtype", ["float8", "torch.int32", "int8", None, 16, ""])
def test_other_dtypes_are_refused_with_the_list(dtype: Any) -> None:
    with pytest.raises(ValueError, match="dtype must be one of auto, bfloat16, float16, float32"):
        dtype_name(dtype)
