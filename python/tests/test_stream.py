"""LLM.stream and LLM.stream_chat."""

from __future__ import annotations

import gc
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from minisgl.core import SamplingParams
from minisgl.llm import LLM, StreamOutput, TokenStream

SHORT = SamplingParams(max_tokens=8, ignore_eos=True)
LONG = SamplingParams(max_tokens=500, ignore_eos=True)
MANY = 32  # so many long answers take the slow LLM seconds


def tokens_of(steps: list[StreamOutput]) -> list[int]:
    return [step.token_id for step in steps if step.token_id is not None]


def wait_until_idle(llm: LLM, aborted: int) -> None:
    """Waits until so many requests were aborted in all and none runs or holds a page."""
    for _ in range(1000):
        stats = llm.stats()
        unowned = stats["free_pages"] + stats["evictable_pages"]
        busy = stats["running"] + stats["waiting"]
        if stats["aborted_reqs"] == aborted and busy == 0 and unowned == stats["total_pages"]:
            return
        time.sleep(0.01)
    raise AssertionError(f"not {aborted} aborted, or requests or pages are left: {stats}")


@pytest.mark.parametrize("prompt", ["Hello there", [5, 6, 7]])
def test_a_stream_gives_what_generate_gives(llm: LLM, prompt: Any) -> None:
    (want,) = llm.generate([prompt], SHORT)
    steps = list(llm.stream(prompt, SHORT))
    assert tokens_of(steps) == want["token_ids"]
    text = "".join(step.text for step in steps)
    assert text == llm.tokenizer.decode(want["token_ids"], skip_special_tokens=True)
    assert [step.completion_tokens for step in steps] == list(range(1, 9))
    assert [step.finish_reason for step in steps] == [None] * 7 + ["length"]
    assert {step.prompt_tokens for step in steps} == {want["prompt_tokens"]}


def test_a_stream_ends_and_stays_ended(llm: LLM) -> None:
    stream = llm.stream("a", SHORT)
    assert len(list(stream)) == 8
    assert list(stream) == []
    stream.close()


def test_a_chat_is_streamed(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hi"}]
    (want,) = llm.chat(messages, SHORT)
    assert tokens_of(list(llm.stream_chat(messages, SHORT))) == want["token_ids"]


def test_a_seed_repeats_a_stream(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=16, seed=7, ignore_eos=True)
    want = llm.generate(["a"], params)[0]["token_ids"]
    assert tokens_of(list(llm.stream("a", params))) == want


@pytest.mark.parametrize(
    ("prompt", "error", "hint"),
    [
        ([], ValueError, "prompt is empty"),
        ([9] * 600, ValueError, "prompt: has 600 tokens.*512"),
        ([10**6], ValueError, "prompt: token 0 is 1000000"),
        (None, TypeError, "prompt must be"),
        (["a"], TypeError, r"prompt\[0\] must be a token id"),
    ],
)
def test_a_bad_prompt(llm: LLM, prompt: Any, error: type[Exception], hint: str) -> None:
    with pytest.raises(error, match=hint):
        next(llm.stream(prompt, SHORT))
    with pytest.raises(TypeError, match="sampling_params must be"):
        llm.stream("a", [SHORT])  # type: ignore[arg-type]


def leave_early(stream: TokenStream, end: str) -> None:
    if end == "close":
        next(stream)
        stream.close()
        assert list(stream) == []
    elif end == "with":
        with stream:
            next(stream)
        assert list(stream) == []
    elif end == "break":
        for _ in stream:
            break


@pytest.mark.parametrize("end", ["close", "with", "break", "del"])
def test_streams_that_are_not_read_to_their_end_are_aborted(slow_llm: LLM, end: str) -> None:
    aborted = slow_llm.stats()["aborted_reqs"]
    streams = [slow_llm.stream([1, 2], LONG) for _ in range(MANY)]
    while streams:
        leave_early(streams.pop(), end)
    gc.collect()
    wait_until_idle(slow_llm, aborted + MANY)


def test_many_streams_in_threads(llm: LLM) -> None:
    prompts = [[i + 1, i + 2] for i in range(8)]
    want = [out["token_ids"] for out in llm.generate(prompts, SHORT)]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda prompt: tokens_of(list(llm.stream(prompt, SHORT))), prompts))
    assert got == want


def test_a_stream_may_be_closed_by_another_thread(slow_llm: LLM) -> None:
    aborted = slow_llm.stats()["aborted_reqs"]
    others = [slow_llm.stream([1], LONG) for _ in range(MANY)]
    stream = slow_llm.stream([1], LONG)
    next(stream)
    threading.Timer(0.01, stream.close).start()
    assert len(list(stream)) < 499
    del others
    wait_until_idle(slow_llm, aborted + MANY + 1)


def test_a_stream_keeps_its_llm(tiny: str) -> None:
    stream = LLM(tiny, dtype="float32", num_threads=1).stream("a", SHORT)
    gc.collect()
    assert len(list(stream)) == 8


def test_shutdown_ends_streams(tiny: str) -> None:
    llm = LLM(tiny, dtype="float32", device="ref", num_threads=1)
    streams = [llm.stream("a", LONG) for _ in range(MANY)]
    next(streams[0])
    llm.shutdown()
    for stream in streams:
        with pytest.raises(RuntimeError, match="shut down"):
            list(stream)
    with pytest.raises(RuntimeError, match="shut down"):
        llm.stream("a")


def test_ctrl_c_ends_a_stream(python: Callable[[str], subprocess.Popen[str]]) -> None:
    process = python("""
        import time
        from minisgl.llm import LLM
        from minisgl.core import SamplingParams
        llm = LLM(TINY, dtype="float32", num_threads=1)
        hold = [1] * 400
        endless = SamplingParams(max_tokens=100, ignore_eos=True)
        try:
            for i in range(10**6):
                for step in llm.stream(hold, endless):
                    if i == 0 and step.completion_tokens == 1:
                        print("started", flush=True)
        except KeyboardInterrupt:
            del step
            while llm.stats()["running"]:
                time.sleep(0.01)
            print("idle", len(list(llm.stream("a", SamplingParams(max_tokens=3, ignore_eos=True)))))
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out == "idle 3\n", err
    assert process.returncode == 0
