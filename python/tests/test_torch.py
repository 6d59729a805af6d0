"""torch's tensors and dtypes, which LLM takes without needing torch; ``make test-torch`` runs this where torch is."""

from __future__ import annotations

from typing import Any

import pytest

from minisgl.core import SamplingParams
from minisgl.llm import LLM

torch: Any = pytest.importorskip("torch", reason="torch is not installed; make test-torch says how to run this")


@pytest.fixture
def short() -> SamplingParams:
    """Parameters whose numbers are torch's."""
    return SamplingParams(max_tokens=torch.tensor(4), temperature=torch.tensor(0.0), ignore_eos=True)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_tensors_of_token_ids(llm: LLM, short: SamplingParams, dtype: str) -> None:
    want = [out["token_ids"] for out in llm.generate([[1, 2, 3], [4, 5, 6]], short)]
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=getattr(torch, dtype))
    for prompts in (ids, list(ids), [list(row) for row in ids], ids.t().contiguous().t()):
        outputs = llm.generate(prompts, short)
        assert [out["token_ids"] for out in outputs] == want
        assert [out["prompt_token_ids"] for out in outputs] == [[1, 2, 3], [4, 5, 6]]
    assert [step.token_id for step in llm.stream(ids[0], short)] == want[0]
    assert llm.tokenizer.decode(ids[0]) == llm.tokenizer.decode([1, 2, 3])


def test_other_tensors_are_refused(llm: LLM, short: SamplingParams) -> None:
    with pytest.raises(TypeError, match=r"prompts\[0\]\[0\] must be a token id, got 1.0"):
        llm.generate([torch.tensor([1.0, 2.0])], short)
    with pytest.raises(TypeError, match="list of ints"):
        llm.generate(torch.tensor([1, 2, 3]), short)
    with pytest.raises(TypeError, match=r"prompts\[0\]\[0\] must be a token id"):
        llm.generate(torch.zeros((2, 2, 2), dtype=torch.int64), short)
    with pytest.raises(ValueError, match=r"prompts\[0\] is empty"):
        llm.generate([torch.tensor([], dtype=torch.int64)], short)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtypes(tiny: str, dtype: str) -> None:
    with LLM(tiny, dtype=getattr(torch, dtype), num_threads=1, num_page_override=64) as llm:
        assert llm.info["dtype"] == dtype


def test_other_dtypes_are_refused(tiny: str) -> None:
    with pytest.raises(ValueError, match=r"dtype must be one of .*, got torch\.int8"):
        LLM(tiny, dtype=torch.int8)
