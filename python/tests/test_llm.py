"""LLM on a tiny random model: right tokens, forms, errors, threads."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from minisgl.core import SamplingParams
from minisgl.llm import LLM

SHORT = SamplingParams(max_tokens=8, ignore_eos=True)


def texts_of(outputs: list[Any]) -> list[str]:
    return [output["text"] for output in outputs]


def test_greedy_tokens_are_those_of_transformers(llm: LLM, expected: list[dict[str, Any]]) -> None:
    prompts = [case["ids"] for case in expected]
    params = [SamplingParams(max_tokens=len(case["greedy"]), ignore_eos=True) for case in expected]
    outputs = llm.generate(prompts, params)
    assert [out["token_ids"] for out in outputs] == [case["greedy"] for case in expected]
    assert [out["prompt_tokens"] for out in outputs] == [len(ids) for ids in prompts]


def test_a45_outputs_are_in_the_order_of_prompts(llm: LLM) -> None:
    prompts: list[Any] = ["a", "Hello there", [5, 6, 7], "xyz " * 20, "b"]
    params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (9, 1, 5, 2, 12)]
    together = llm.generate(prompts, params)
    alone = [llm.generate([p], s)[0] for p, s in zip(prompts, params, strict=True)]
    assert [len(out["token_ids"]) for out in together] == [9, 1, 5, 2, 12]
    assert [out["token_ids"] for out in together] == [out["token_ids"] for out in alone]
    assert {out["finish_reason"] for out in together} == {"length"}


def test_an_output_tells_its_numbers(llm: LLM) -> None:
    (out,) = llm.generate([[1, 2, 3]], SHORT)
    assert out["text"] == llm.tokenizer.decode(out["token_ids"])
    assert (out["prompt_tokens"], out["completion_tokens"]) == (3, 8)
    assert 0 < out["ttft"] <= out["e2e"]


@pytest.mark.parametrize(("cache_type", "computed"), [("naive", 6656), ("radix", 656)])
def test_a_shared_prefix_is_computed_once(tiny: str, cache_type: str, computed: int) -> None:
    shared = [i % 200 for i in range(400)]
    prompts = [shared + [200 + i] * 16 for i in range(16)]
    with LLM(tiny, dtype="float32", num_threads=1, cache_type=cache_type) as llm:
        llm.generate(prompts[:1], SamplingParams(max_tokens=1))
        outputs = llm.generate(prompts[1:], SamplingParams(max_tokens=8, ignore_eos=True))
        assert llm.stats()["prompt_tokens"] == computed
    cached = 400 if cache_type == "radix" else 0
    assert [out["cached_tokens"] for out in outputs] == [cached] * 15


def test_a44_no_prompts_give_no_outputs(llm: LLM) -> None:
    assert llm.generate([]) == []
    assert llm.generate([], []) == []


def test_a_seed_repeats_random_choices(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=16, seed=7, ignore_eos=True)
    first, other = llm.generate(["a", "b"], params), llm.generate(["x", "a"], params)
    assert first[0]["token_ids"] == other[1]["token_ids"]


def test_max_tokens_ends_at_the_context(llm: LLM) -> None:
    prompt = [9] * 500
    (out,) = llm.generate([prompt], SamplingParams(max_tokens=10**9, ignore_eos=True))
    assert len(out["token_ids"]) == llm.info["max_seq_len"] - len(prompt)
    assert out["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("prompts", "hint"),
    [
        (["a", [9] * 600, "b"], r"prompts\[1\].*600.*512"),
        (["a", [10**6]], r"prompts\[1\].*1000000"),
    ],
)
def test_a45_one_bad_prompt_stops_all_before_any_work(llm: LLM, prompts: Any, hint: str) -> None:
    before = llm.stats()["prompt_tokens"]
    with pytest.raises(ValueError, match=hint):
        llm.generate(prompts, SHORT)
    assert llm.stats()["prompt_tokens"] == before


def test_broken_text_does_not_hurt(llm: LLM) -> None:
    odd = ["a\0b", "\ud800", "🦙 \x7f"]
    assert len(llm.generate(odd, SHORT)) == 3


def test_chat_is_generate_on_the_rendered_template(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    ids = llm.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    want = texts_of(llm.generate([ids], SHORT))
    assert texts_of(llm.chat(messages, SHORT)) == want
    assert texts_of(llm.chat([messages, messages], SHORT)) == want * 2


def test_chat_joins_text_parts_and_names_other_ones(llm: LLM) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    plain = llm.chat([{"role": "user", "content": "hi"}], SHORT)
    assert texts_of(llm.chat([{"role": "user", "content": parts}], SHORT)) == texts_of(plain)
    image = [{"role": "user", "content": [{"type": "image_url"}]}]
    with pytest.raises(ValueError, match=r"messages\[1\]\[0\].*image_url"):
        llm.chat([[{"role": "user", "content": "a"}], image])


def test_the_tokenizer(llm: LLM) -> None:
    tok = llm.tokenizer
    ids = tok.encode("Hello, wörld", add_special_tokens=False)
    assert tok.decode(ids) == "Hello, wörld"
    assert tok.decode([]) == ""
    rendered = tok.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n"
    assert llm.eos_token_id == tok.eos_token_id == 258
    with pytest.raises(TypeError, match="text must be a str"):
        tok.encode(5)  # type: ignore[arg-type]
    for other in (5, "5", None):
        with pytest.raises(TypeError, match="ids must be a list of token ids"):
            tok.decode(other)


def test_a48_threads_share_one_llm(llm: LLM) -> None:
    prompts = [[i + 1, i + 2] for i in range(8)]
    want = [llm.generate([p], SHORT)[0]["token_ids"] for p in prompts]

    def ten_times(i: int) -> list[list[int]]:
        got = []
        for _ in range(10):
            got.append(llm.generate([prompts[i]], SHORT)[0]["token_ids"])
            gc.collect(0)
        return got

    with ThreadPoolExecutor(8) as pool:
        for i, got in enumerate(pool.map(ten_times, range(8))):
            assert got == [want[i]] * 10


def test_a48_other_threads_run_during_generate(llm: LLM) -> None:
    ended, ticks = threading.Event(), 0

    def tick() -> None:
        nonlocal ticks
        while not ended.wait(0.001):
            ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    llm.generate([[1]] * 16, SamplingParams(max_tokens=200, ignore_eos=True))
    ended.set()
    thread.join()
    assert ticks > 3


def test_the_progress_bar(llm: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    llm.generate([[1]] * 6, SHORT)
    assert capfd.readouterr().err == ""  # not a terminal
    llm.generate([[1]] * 6, SHORT, use_tqdm=True)
    assert "6/6" in capfd.readouterr().err


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "auto", "torch.float32"])
def test_dtypes(tiny: str, dtype: str) -> None:
    with LLM(tiny, dtype=dtype, num_threads=1) as llm:
        assert llm.info["dtype"] == ("bfloat16" if dtype == "bfloat16" else "float32")
        assert len(llm.generate(["a"], SHORT)[0]["token_ids"]) == 8


def test_a49_two_llms_at_once(llm: LLM, tiny: str) -> None:
    want = llm.generate(["a"], SHORT)[0]["token_ids"]
    with LLM(tiny, dtype="float32", num_threads=1, page_size=16, max_running_req=2) as other:
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(e.generate, ["a"] * 5, SHORT) for e in (llm, other)]
        for future in futures:
            assert [out["token_ids"] for out in future.result()] == [want] * 5
    assert llm.generate(["a"], SHORT)[0]["token_ids"] == want


def test_speculation_keeps_the_tokens(llm: LLM, tiny: str) -> None:
    prompts = [[5, 6, 7] * 8, [9] * 20]
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    want = [out["token_ids"] for out in llm.generate(prompts, params)]
    options: dict[str, Any] = {"speculative_algorithm": "ngram", "speculative_num_draft_tokens": 4}
    with LLM(tiny, dtype="float32", num_threads=1, **options) as other:
        assert [out["token_ids"] for out in other.generate(prompts, params)] == want
        assert other.stats()["accept_length"] >= 1
    with pytest.raises(ValueError, match="speculative_algorithm: must be ngram"):
        LLM(tiny, speculative_algorithm="eagle")


def test_a_missing_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        LLM(str(tmp_path / "nowhere"))


def test_a_damaged_model_is_a_value_error(tiny: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny, model, ignore=shutil.ignore_patterns("*.gguf", "sharded"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        LLM(str(model))


def test_the_engine_checks_options_too(tiny: str) -> None:
    with pytest.raises(ValueError, match="cache_type"):
        LLM(tiny, cache_type="no-such-cache")
    with pytest.raises(ValueError, match="page_size"):
        LLM(tiny, page_size=10**6)


def test_a49_a_cell_that_runs_again(tiny: str) -> None:
    """A notebook's cells run inside an event loop, and a name's old LLM goes when the new one is there."""

    async def run_three_times() -> list[list[int]]:
        tokens = []
        for _ in range(3):
            llm = LLM(tiny, dtype="float32", num_threads=1, num_page_override=64)
            tokens.append(llm.generate(["a"], SHORT)[0]["token_ids"])
        return tokens

    first, *others = asyncio.run(run_three_times())
    assert others == [first] * 2


def test_a49_after_shutdown(tiny: str) -> None:
    with LLM(tiny, dtype="float32", num_threads=1) as llm:
        llm.generate(["a"], SHORT)
    llm.shutdown()
    for use in (llm.stats, lambda: llm.generate(["a"]), lambda: llm.generate([])):
        with pytest.raises(RuntimeError, match="shut down"):
            use()
    with pytest.raises(RuntimeError, match="shut down"):
        llm.tokenizer.encode("a")
    assert "shut down" in repr(llm)


def test_shutdown_ends_what_runs_in_other_threads(tiny: str) -> None:
    llm = LLM(tiny, dtype="float32", num_threads=1)
    many = [[1]] * 2000
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(llm.generate, many, SamplingParams(max_tokens=500, ignore_eos=True))
        while not llm.stats()["running"] and not future.done():
            pass
        llm.shutdown()
        with pytest.raises(RuntimeError):
            future.result()
