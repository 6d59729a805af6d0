"""numpy's arrays and numbers, which LLM takes without needing numpy."""

from __future__ import annotations

import numpy as np
import pytest

from minisgl.core import SamplingParams
from minisgl.llm import LLM

SHORT = SamplingParams(max_tokens=np.int64(4), temperature=np.float32(0), ignore_eos=True)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16])
def test_a44_arrays_of_token_ids(llm: LLM, dtype: type) -> None:
    want = llm.generate([[1, 2, 3], [4, 5, 6]], SHORT)
    ids = np.array([[1, 2, 3], [4, 5, 6]], dtype)
    for prompts in (ids, list(ids), [list(row) for row in ids]):
        outputs = llm.generate(prompts, SHORT)
        assert [out["token_ids"] for out in outputs] == [out["token_ids"] for out in want]
        assert [out["prompt_token_ids"] for out in outputs] == [[1, 2, 3], [4, 5, 6]]
    assert [step.token_id for step in llm.stream(ids[0], SHORT)] == want[0]["token_ids"]
    assert llm.tokenizer.decode(ids[0]) == llm.tokenizer.decode([1, 2, 3])


def test_other_arrays_are_refused(llm: LLM) -> None:
    with pytest.raises(TypeError, match=r"prompts\[0\]\[0\] must be a token id, got 1.0"):
        llm.generate([np.array([1.0, 2.0])], SHORT)
    with pytest.raises(TypeError, match="list of ints"):
        llm.generate(np.array([1, 2, 3]), SHORT)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"prompts\[0\]\[0\] must be a token id"):
        llm.generate(np.zeros((2, 2, 2), int), SHORT)  # type: ignore[arg-type]
