"""AsyncLLM: streams, lists, cancellation."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from minisgl.core import SamplingParams
from minisgl.llm import LLM, AsyncLLM, AsyncTokenStream

SHORT = SamplingParams(max_tokens=8, ignore_eos=True)
LONG = SamplingParams(max_tokens=500, ignore_eos=True)
MANY = 32  # so many long answers take the slow LLM seconds
MESSAGES = [{"role": "user", "content": "hi"}]

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a test in a loop of its own, which must not take long."""
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def tokens_of(stream: AsyncTokenStream) -> list[int]:
    return [step.token_id async for step in stream if step.token_id is not None]


async def idle(llm: LLM | AsyncLLM, aborted: int) -> None:
    """Waits until so many requests were aborted in all and none runs or holds a page."""
    for _ in range(1000):
        stats = llm.stats()
        unowned = stats["free_pages"] + stats["evictable_pages"]
        busy = stats["running"] + stats["waiting"]
        if stats["aborted_reqs"] == aborted and busy == 0 and unowned == stats["total_pages"]:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {aborted} aborted, or requests or pages are left: {stats}")


def test_many_streams_at_once_give_what_generate_gives(llm: LLM) -> None:
    prompts = [[i + 1, i + 2] for i in range(20)]
    want = [out["token_ids"] for out in llm.generate(prompts, SHORT)]

    async def main() -> list[list[int]]:
        async with AsyncLLM(llm) as allm:
            return await asyncio.gather(*(tokens_of(allm.stream(p, SHORT)) for p in prompts))

    assert run(main()) == want
    assert run(main()) == want  # in another loop
    assert llm.generate(prompts, SHORT)[0]["token_ids"] == want[0]  # the LLM is still there


def test_lists_and_chats(llm: LLM) -> None:
    want, answers = llm.generate(["a", [1, 2]], SHORT), llm.chat(MESSAGES, SHORT)

    async def main() -> None:
        allm = AsyncLLM(llm)
        outs = await allm.generate(["a", [1, 2]], SHORT)
        assert [(o["text"], o["token_ids"]) for o in outs] == [(o["text"], o["token_ids"]) for o in want]
        assert outs[1]["prompt_token_ids"] == [1, 2]
        assert (await allm.chat(MESSAGES, SHORT))[0]["token_ids"] == answers[0]["token_ids"]
        assert await tokens_of(allm.stream_chat(MESSAGES, SHORT)) == answers[0]["token_ids"]
        assert await allm.generate([]) == []

    run(main())


def test_it_loads_a_model_and_frees_it(tiny: str) -> None:
    async def main() -> None:
        async with await AsyncLLM.load(tiny, dtype="float32", num_threads=1) as allm:
            assert len(await tokens_of(allm.stream("a", SHORT))) == 8
        with pytest.raises(RuntimeError, match="shut down"):
            allm.stream("a")
        with pytest.raises(RuntimeError, match="shut down"):
            await allm.generate(["a"])

    run(main())


def test_errors_are_those_of_an_llm(llm: LLM) -> None:
    async def main() -> None:
        allm = AsyncLLM(llm)
        with pytest.raises(ValueError, match=r"prompts\[1\].*600"):
            await allm.generate(["a", [9] * 600])
        with pytest.raises(ValueError, match="prompt: has 600 tokens"):
            await tokens_of(allm.stream([9] * 600))
        with pytest.raises(TypeError, match="prompt must be"):
            allm.stream(None)  # type: ignore[arg-type]

    run(main())


def test_a_stream_ends_and_stays_ended(llm: LLM) -> None:
    async def main() -> None:
        stream = AsyncLLM(llm).stream("a", SHORT)
        assert len(await tokens_of(stream)) == 8
        assert await tokens_of(stream) == []

    run(main())


async def leave_early(stream: AsyncTokenStream, end: str) -> None:
    if end == "with":
        async with stream:
            await anext(stream)
    else:
        async for _ in stream:
            break
    if end == "aclose":
        await stream.aclose()


@pytest.mark.parametrize("end", ["break", "aclose", "with"])
def test_streams_that_are_not_read_to_their_end_are_aborted(slow_llm: LLM, end: str) -> None:
    aborted = slow_llm.stats()["aborted_reqs"]

    async def main() -> None:
        allm = AsyncLLM(slow_llm)
        await asyncio.gather(*(leave_early(allm.stream([1, 2], LONG), end) for _ in range(MANY)))
        gc.collect()
        await idle(allm, aborted + MANY)

    run(main())


@pytest.mark.parametrize("end", ["cancel", "loop"])
def test_cancelled_readers_abort_their_streams(slow_llm: LLM, end: str) -> None:
    aborted = slow_llm.stats()["aborted_reqs"]

    async def main() -> None:
        allm = AsyncLLM(slow_llm)
        first = allm.stream([3], SHORT)
        tasks = [asyncio.create_task(tokens_of(allm.stream([1, 2], LONG))) for _ in range(MANY)]
        await asyncio.sleep(0)  # the tasks have begun
        await tokens_of(first)
        if end == "loop":
            return  # asyncio.run cancels the tasks
        for task in tasks:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())
    run(idle(slow_llm, aborted + MANY))


def test_cancelling_a_list_aborts_it(slow_llm: LLM) -> None:
    aborted = slow_llm.stats()["aborted_reqs"]

    async def main() -> None:
        allm = AsyncLLM(slow_llm)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(allm.generate([[1]] * MANY, LONG), 0.2)
        await idle(allm, aborted + MANY)
        assert len(await allm.generate(["a"], SHORT)) == 1

    run(main())


def test_shutdown_ends_what_runs(tiny: str) -> None:
    async def main() -> None:
        allm = AsyncLLM(tiny, dtype="float32", device="ref", num_threads=1)
        streams = [allm.stream([1], LONG) for _ in range(MANY)]
        job = asyncio.create_task(allm.generate([[1]] * MANY, LONG))
        await anext(streams[0])
        await allm.shutdown()
        for stream in streams:
            with pytest.raises(RuntimeError, match="shut down"):
                await tokens_of(stream)
        with pytest.raises(RuntimeError):
            await job
        await allm.shutdown()

    run(main())


def test_the_loop_runs_while_tokens_are_made(llm: LLM) -> None:
    async def main() -> None:
        job = asyncio.create_task(AsyncLLM(llm).generate([[1]] * 16, SamplingParams(max_tokens=200, ignore_eos=True)))
        ticks = 0
        while not job.done():
            await asyncio.sleep(0.001)
            ticks += 1
        assert ticks > 3

    run(main())


def test_no_thread_is_left(llm: LLM) -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "minisgl-events"]

    async def main() -> None:
        allm = AsyncLLM(llm)
        await tokens_of(allm.stream("a", SHORT))
        assert ours()

    for _ in range(3):
        run(main())
    gc.collect()
    deadline = time.monotonic() + 30
    while ours() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ours() == []
