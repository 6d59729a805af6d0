"""LLM._forward replaced by the user, and prefill_budget."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from minisgl.core import SamplingParams
from minisgl.llm import LLM, Batch, ForwardInput

SHORT = SamplingParams(max_tokens=8, ignore_eos=True)
PROMPTS = [[1, 2, 3], [4, 5], [6]]


@pytest.fixture
def fresh(llm: LLM) -> Iterator[LLM]:
    """The shared LLM, which must be as it was when the test ends."""
    want = tokens_of(llm.generate(PROMPTS, SHORT))
    yield llm
    llm.__dict__.pop("_forward", None)
    assert tokens_of(llm.generate(PROMPTS, SHORT)) == want
    wait_until_idle(llm)


def tokens_of(outputs: list[Any]) -> list[list[int]]:
    return [output["token_ids"] for output in outputs]


def wait_until_idle(llm: LLM) -> None:
    """Waits until the statistics tell of the engine's last step: no page is held."""
    for _ in range(500):
        stats = llm.stats()
        unowned = stats["free_pages"] + stats["evictable_pages"]
        if stats["running"] + stats["waiting"] == 0 and unowned == stats["total_pages"]:
            return
        time.sleep(0.01)
    raise AssertionError(f"requests or pages are left: {stats}")


def record(llm: LLM) -> list[Batch]:
    """Makes llm add each batch to a list."""
    batches: list[Batch] = []
    original = llm._forward

    def forward(fi: ForwardInput) -> None:
        batches.append(fi.batch)
        original(fi)

    llm._forward = forward  # type: ignore[method-assign]
    return batches


@pytest.mark.parametrize(("cache", "want"), [("naive", 6656), ("radix", 656)])
def test_counting_prefill_tokens(tiny: str, cache: str, want: int) -> None:
    random = Random(0)
    shared = [random.randint(100, 255) for _ in range(400)]
    prompts = [shared + [random.randint(100, 255) for _ in range(16)] for _ in range(16)]
    params = SamplingParams(max_tokens=8, ignore_eos=True)

    def run(hooked: bool) -> tuple[int, list[list[int]]]:
        llm = LLM(
            tiny,
            dtype="float32",
            max_running_req=16,
            num_page_override=16384,
            max_seq_len_override=512,
            cache_type=cache,
        )
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))
        computed: list[int] = []
        if hooked:
            orig = llm._forward
            llm._forward = lambda fi: (  # type: ignore[method-assign]
                computed.append(len(fi.batch.positions)) if fi.batch.is_prefill else None,
                orig(fi),
            )[1]
        first = llm.generate(prompts[:1], SamplingParams(max_tokens=1))
        rest = llm.generate(prompts[1:], params)
        llm.shutdown()
        return sum(computed), tokens_of(first + rest)

    computed, tokens = run(hooked=True)
    assert computed == want
    assert tokens == run(hooked=False)[1]


def test_a_hook_sees_every_batch(fresh: LLM) -> None:
    before = fresh.stats()
    batches = record(fresh)
    prompts = [[210 + i, *ids] for i, ids in enumerate(PROMPTS)]  # none is in the cache
    outputs = fresh.generate(prompts, SHORT)
    after = fresh.stats()
    assert len([b for b in batches if b.is_prefill]) == after["prefill_batches"] - before["prefill_batches"]
    assert len([b for b in batches if b.is_decode]) == after["decode_steps"] - before["decode_steps"]
    prefill, first_step = batches[:2]
    assert (prefill.phase, prefill.is_prefill, prefill.is_decode) == ("prefill", True, False)
    assert (prefill.size, prefill.padded_size, len(prefill.reqs)) == (3, 3, 3)
    assert prefill.input_ids == [token for ids in prompts for token in ids]
    assert prefill.positions == [p for ids in prompts for p in range(len(ids))]
    assert [req.extend_len for req in prefill.reqs] == [4, 3, 2]
    assert (first_step.phase, first_step.is_prefill, first_step.is_decode) == ("decode", False, True)
    assert first_step.positions == [4, 3, 2]
    assert first_step.input_ids == [out["token_ids"][0] for out in outputs]
    assert [req.extend_len for req in first_step.reqs] == [1, 1, 1]
    assert [req.uid for req in first_step.reqs] == [req.uid for req in prefill.reqs]


def test_tokens_are_the_same_and_the_hook_runs_in_the_caller(fresh: LLM) -> None:
    params = SamplingParams(temperature=0.9, seed=3, max_tokens=20, ignore_eos=True)
    want = tokens_of(fresh.generate(PROMPTS, params))
    original, threads = fresh._forward, set()

    def forward(fi: ForwardInput) -> None:
        threads.add(threading.get_ident())
        assert original(fi) is None

    fresh._forward = forward  # type: ignore[method-assign]
    assert tokens_of(fresh.generate(PROMPTS, params)) == want
    messages = [{"role": "user", "content": "hi"}]
    answer = tokens_of(fresh.chat(messages, SHORT))
    assert threads == {threading.get_ident()}
    del fresh._forward  # type: ignore[method-assign]
    assert tokens_of(fresh.chat(messages, SHORT)) == answer


def test_a_subclass_may_override_it(tiny: str) -> None:
    class Counting(LLM):
        batches = 0

        def _forward(self, fi: ForwardInput) -> None:
            self.batches += 1
            super()._forward(fi)

    with Counting(tiny, dtype="float32", num_threads=1) as llm:
        llm.generate(["a"], SHORT)
        assert llm.batches == 8


def test_without_a_replacement_python_is_not_called(fresh: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("called")

    monkeypatch.setattr(LLM, "_step", refuse)
    fresh.generate(["a"], SHORT)
    original = fresh._forward
    record(fresh)
    with pytest.raises(AssertionError, match="called"):
        fresh.generate(["a"], SHORT)
    fresh._forward = original  # type: ignore[method-assign]
    fresh.generate(["a"], SHORT)
    del fresh._forward  # type: ignore[method-assign]
    monkeypatch.undo()
    monkeypatch.setattr(LLM, "_forward", refuse)  # for all instances
    with pytest.raises(AssertionError, match="called"):
        fresh.generate(["a"], SHORT)


def test_a_hook_must_call_the_original(fresh: LLM) -> None:
    calls: list[int] = []
    fresh._forward = lambda fi: calls.append(fi.batch.size)  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="must call the original"):
        fresh.generate(PROMPTS * 100, SHORT)
    assert len(calls) == 1


def test_a_hook_must_call_the_original_once(fresh: LLM) -> None:
    original = fresh._forward
    fresh._forward = lambda fi: (original(fi), original(fi))  # type: ignore[func-returns-value,method-assign]
    with pytest.raises(RuntimeError, match="twice"):
        fresh.generate(PROMPTS, SHORT)

    def swallow(fi: ForwardInput) -> None:
        original(fi)
        with pytest.raises(RuntimeError, match="twice"):
            original(fi)

    fresh._forward = swallow  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="twice"):
        fresh.generate(PROMPTS, SHORT)


class OddError(Exception):
    """Not one of the engine's."""


@pytest.mark.parametrize("kind", [OddError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("after_original", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_an_exception_in_the_hook_ends_the_call(
    fresh: LLM, kind: type[BaseException], after_original: bool, batch: int
) -> None:
    original, error, seen = fresh._forward, kind("odd"), []

    def forward(fi: ForwardInput) -> None:
        seen.append(fi)
        if after_original:
            original(fi)
        if len(seen) == batch:
            raise error
        if not after_original:
            original(fi)

    fresh._forward = forward  # type: ignore[method-assign]
    with pytest.raises(kind) as caught:
        fresh.generate(PROMPTS * 100, SHORT)
    assert caught.value is error
    assert len(seen) == batch
    wait_until_idle(fresh)


def test_a_batch_that_is_over_can_not_run(fresh: LLM) -> None:
    original, kept = fresh._forward, []

    def forward(fi: ForwardInput) -> None:
        if kept:
            with pytest.raises(RuntimeError, match="is over"):
                original(kept[-1])
        kept.append(fi)
        original(fi)

    fresh._forward = forward  # type: ignore[method-assign]
    fresh.generate(PROMPTS, SHORT)
    assert len(kept) > 1
    with pytest.raises(RuntimeError):
        original(kept[-1])


def test_a_hook_can_not_generate(fresh: LLM) -> None:
    original = fresh._forward

    def forward(fi: ForwardInput) -> None:
        with pytest.raises(RuntimeError, match="inside its _forward"):
            fresh.generate(["a"])
        assert fresh.stats()["total_pages"] > 0
        assert fresh.tokenizer.encode("a")
        original(fi)

    fresh._forward = forward  # type: ignore[method-assign]
    assert len(fresh.generate(["a"], SHORT)) == 1


def test_a_hook_may_be_taken_away_by_itself(fresh: LLM) -> None:
    batches = record(fresh)
    inner = fresh._forward

    def once(fi: ForwardInput) -> None:
        inner(fi)
        del fresh._forward  # type: ignore[method-assign]

    fresh._forward = once  # type: ignore[method-assign]
    assert len(fresh.generate(["a"], SHORT)[0]["token_ids"]) == 8
    assert len(batches) == 1


def test_bad_prompts_are_refused_before_any_batch(fresh: LLM) -> None:
    batches = record(fresh)
    with pytest.raises(ValueError, match=r"prompts\[1\].*1000000"):
        fresh.generate(["a", [10**6]], SHORT)
    assert fresh.generate([]) == []
    assert batches == []


def test_threads_take_turns_with_a_hook(fresh: LLM) -> None:
    prompts = [[i + 1, i + 2] for i in range(6)]
    want = [tokens_of(fresh.generate([ids], SHORT))[0] for ids in prompts]
    original, inside, callers = fresh._forward, threading.Lock(), []

    def forward(fi: ForwardInput) -> None:
        assert inside.acquire(blocking=False), "two threads are in the hook"
        try:
            assert fi.batch.size == 1  # no other call's request
            callers.append(threading.get_ident())
            original(fi)
        finally:
            inside.release()

    fresh._forward = forward  # type: ignore[method-assign]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda ids: tokens_of(fresh.generate([ids], SHORT))[0], prompts))
    assert got == want
    assert len(callers) == 6 * 8


def test_a_failing_hook_leaves_other_threads_calls_alone(fresh: LLM) -> None:
    long = SamplingParams(max_tokens=400, ignore_eos=True)
    (want,) = tokens_of(fresh.generate([[1, 2, 3]], long))

    def refuse(fi: ForwardInput) -> None:
        raise OddError

    with ThreadPoolExecutor(1) as pool:
        before = fresh.stats()["decode_steps"]
        plain = pool.submit(fresh.generate, [[1, 2, 3]], long)  # began without a hook
        while fresh.stats()["decode_steps"] == before:
            time.sleep(0.001)
        fresh._forward = refuse  # type: ignore[method-assign]
        with pytest.raises(OddError):
            fresh.generate(PROMPTS, SHORT)
        assert tokens_of(plain.result()) == [want]


@pytest.mark.parametrize("inside", [False, True])
def test_shutdown_while_the_hook_runs(tiny: str, inside: bool) -> None:
    llm = LLM(tiny, dtype="float32", num_threads=1)
    original, entered, closed = llm._forward, threading.Event(), threading.Event()

    def forward(fi: ForwardInput) -> None:
        if inside:
            llm.shutdown()
        entered.set()
        assert closed.wait(30)
        original(fi)

    llm._forward = forward  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(llm.generate, ["a"], SHORT)
        assert entered.wait(30)
        llm.shutdown()
        closed.set()
        with pytest.raises(RuntimeError, match=r"is over|shut down"):
            future.result(timeout=30)


def test_ctrl_c_while_the_hook_runs(python: Callable[[str], subprocess.Popen[str]]) -> None:
    process = python("""
        import os, signal
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams

        llm = LLM(TINY, dtype="float32", num_threads=1)
        endless = SamplingParams(max_tokens=400, ignore_eos=True)
        original = llm._forward
        batches = 0

        def forward(fi):
            global batches
            batches += 1
            if batches == 5:
                os.kill(os.getpid(), signal.SIGINT)
            original(fi)

        llm._forward = forward
        try:
            llm.generate([[1, 2]] * 100, endless)
        except KeyboardInterrupt:
            print("interrupted", batches)
        print(len(llm.generate(["a"], SamplingParams(max_tokens=4, ignore_eos=True))[0]["token_ids"]), batches)
    """)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == "interrupted 5\n4 9\n"


def test_exit_while_a_hook_runs(run_python: Callable[[str], str]) -> None:
    run_python("""
        import threading
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams
        llm = LLM(TINY, dtype="float32", num_threads=1)
        original, begun = llm._forward, threading.Event()
        llm._forward = lambda fi: (begun.set(), original(fi))
        endless = SamplingParams(max_tokens=500, ignore_eos=True)
        threading.Thread(target=llm.generate, args=([[1]] * 20000, endless), daemon=True).start()
        assert begun.wait(30)
    """)


def test_prefill_budget(tiny: str) -> None:
    with LLM(tiny, dtype="float32", num_threads=1, max_extend_tokens=64, cache_type="naive") as llm:
        assert llm.prefill_budget == 64
        prompt = [i % 200 for i in range(100)]
        want = tokens_of(llm.generate([prompt], SHORT))
        batches = record(llm)
        for budget, chunks in [(64, [64, 36]), (40, [40, 40, 20]), (1, [1] * 100)]:
            llm.prefill_budget = budget
            assert llm.prefill_budget == budget
            batches.clear()
            assert tokens_of(llm.generate([prompt], SHORT)) == want
            assert [len(b.positions) for b in batches if b.is_prefill] == chunks
        for wrong in (0, -1, 65, 10**30):
            with pytest.raises(ValueError, match=r"prefill_budget must be 1 to 64.*max_extend_tokens"):
                llm.prefill_budget = wrong
        with pytest.raises(TypeError, match="prefill_budget"):
            llm.prefill_budget = 1.5  # type: ignore[assignment]
        assert llm.prefill_budget == 1


def test_prefill_budget_is_read_for_each_batch(tiny: str) -> None:
    with LLM(tiny, dtype="float32", num_threads=1) as llm:
        batches = record(llm)
        inner = llm._forward

        def forward(fi: ForwardInput) -> None:
            llm.prefill_budget = 30
            inner(fi)

        llm._forward = forward  # type: ignore[method-assign]
        llm.prefill_budget = 50
        llm.generate([[i % 200 for i in range(100)]], SHORT)
        assert [len(b.positions) for b in batches if b.is_prefill] == [50, 30, 20]
    with pytest.raises(RuntimeError, match="shut down"):
        _ = llm.prefill_budget
