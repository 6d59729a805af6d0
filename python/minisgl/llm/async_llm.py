"""AsyncLLM: a loaded model for programs that use asyncio."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from minisgl import _binding
from minisgl.core import SamplingParams
from minisgl.llm.llm import LLM, GenerateOutput, with_prompt_ids
from minisgl.llm.prompts import chat_requests, generate_requests, one_chat_request, one_request
from minisgl.llm.stream import StreamOutput, step_of
from minisgl.llm.tokenizer import template_options

# How long the end of a loop may go unnoticed by the thread that serves it.
_WAIT_MS = 500


class AsyncLLM:
    """A model that is loaded and generates text without blocking an event loop.

    What an LLM's ``_forward`` was replaced by is not called for it.

    Args:
        model: An LLM, which then stays its owner's to shut down; or a model's path, with
            LLM's other arguments. Loading blocks; see ``load``.
        dtype: As for LLM.
        **kwargs: As for LLM.

    Attributes:
        llm: The LLM.
        tokenizer: The model's tokenizer.
        info: What was loaded.
    """

    def __init__(self, model: LLM | str | os.PathLike[str], dtype: Any = "bfloat16", **kwargs: Any) -> None:
        self._owns = not isinstance(model, LLM)
        self.llm = model if isinstance(model, LLM) else LLM(model, dtype, **kwargs)
        self.tokenizer = self.llm.tokenizer
        self.info = self.llm.info
        self._posts: dict[asyncio.AbstractEventLoop, _Post] = {}
        self._lock = threading.Lock()
        self._finalize = weakref.finalize(self, _close_all, self._posts)

    @classmethod
    async def load(cls, model: str | os.PathLike[str], dtype: Any = "bfloat16", **kwargs: Any) -> AsyncLLM:
        """Loads a model in another thread; the arguments are those of LLM."""
        return await asyncio.to_thread(cls, model, dtype, **kwargs)

    def stream(self, prompt: str | Sequence[int], sampling_params: SamplingParams | None = None) -> AsyncTokenStream:
        """Continues a prompt, token by token; needs a running event loop.

        The arguments are those of ``LLM.stream``. Errors come with the first step.
        """
        return AsyncTokenStream(self, one_request(prompt, sampling_params))

    def stream_chat(
        self,
        messages: Sequence[dict[str, Any]],
        sampling_params: SamplingParams | None = None,
        *,
        tools: list[dict[str, Any]] | None = None,
        **template_kwargs: Any,
    ) -> AsyncTokenStream:
        """Answers a conversation, token by token; the arguments are those of ``LLM.stream_chat``."""
        template = template_options(True, tools, template_kwargs)
        return AsyncTokenStream(self, one_chat_request(messages, sampling_params, template))

    async def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[GenerateOutput]:
        """Continues prompts, as ``LLM.generate`` does; cancelling it aborts them."""
        return await self._run(generate_requests(prompts, sampling_params))

    async def chat(
        self,
        messages: Sequence[dict[str, Any]] | Sequence[Sequence[dict[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: list[dict[str, Any]] | None = None,
        **template_kwargs: Any,
    ) -> list[GenerateOutput]:
        """Answers conversations, as ``LLM.chat`` does; cancelling it aborts them."""
        template = template_options(True, tools, template_kwargs)
        return await self._run(chat_requests(messages, sampling_params, template))

    def stats(self) -> dict[str, Any]:
        """Returns counts since loading, such as tokens, requests and free pages."""
        return self.llm.stats()

    async def shutdown(self) -> None:
        """Aborts what runs and, unless the LLM was given, frees the model."""
        _close_all(self._posts)
        if self._owns:
            await asyncio.to_thread(self.llm.shutdown)

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _run(self, requests: list[dict[str, Any]]) -> list[GenerateOutput]:
        if not requests:
            return self.llm.generate([])
        post = self.post()
        job = _binding.call("Generate", self.llm._engine, json.dumps(requests))
        try:
            await post.job_end(job)
        except BaseException:
            _binding.call("Forget", job)
            raise
        return with_prompt_ids(json.loads(_binding.call("Result", job)), requests)

    def post(self) -> _Post:
        """Returns what brings the engine's events to the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [other for other, post in self._posts.items() if not post.is_open()]:
                del self._posts[other]
            if loop not in self._posts:
                self._posts[loop] = _Post(loop)
            return self._posts[loop]


class AsyncTokenStream(AsyncIterator[StreamOutput]):
    """An asynchronous iterator over the steps of an answer; one task reads it.

    The answer is aborted by ``aclose``, by the end of an ``async with`` block, when the
    stream is no longer used, and when the reading task is cancelled.
    """

    def __init__(self, owner: AsyncLLM, request: dict[str, Any]) -> None:
        self._owner = owner  # has to live as long
        post = owner.post()
        self._id: int = _binding.call("StartStream", owner.llm._engine, post.box, json.dumps(request))
        self._inbox = post.subscribe(self._id)
        self._finalize = weakref.finalize(self, _cancel, post, self._id)

    async def __anext__(self) -> StreamOutput:
        if not self._finalize.alive:
            raise StopAsyncIteration
        try:
            step = step_of(await self._inbox.get())
        except BaseException:
            self._finalize()
            raise
        if step.finish_reason:
            self._finalize()
        return step

    async def aclose(self) -> None:
        """Aborts the answer if it is not complete; the iterator then ends."""
        self._finalize()

    async def __aenter__(self) -> AsyncTokenStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finalize()


def _close_all(posts: dict[asyncio.AbstractEventLoop, _Post]) -> None:
    for post in list(posts.values()):
        post.close()


def _cancel(post: _Post, stream: int) -> None:
    post.unsubscribe(stream)
    if _binding.is_loaded_here():
        _binding.call("CancelStream", stream)


class _Post:
    """A thread that takes events from a mailbox and hands them to one event loop.

    Streams and jobs subscribe in the loop's thread right after they have started, and
    events are handed out there too, so none comes before its subscriber.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.box: int = _binding.call("OpenMailbox")
        self._loop = loop
        self._inboxes: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._jobs: dict[int, asyncio.Future[None]] = {}
        self._open = True
        threading.Thread(target=self._serve, name="minisgl-events", daemon=True).start()

    def is_open(self) -> bool:
        return self._open and not self._loop.is_closed()

    def subscribe(self, stream: int) -> asyncio.Queue[dict[str, Any]]:
        inbox = self._inboxes[stream] = asyncio.Queue()
        return inbox

    def unsubscribe(self, stream: int) -> None:
        self._inboxes.pop(stream, None)

    async def job_end(self, job: int) -> None:
        """Waits until a job has ended."""
        end = self._jobs[job] = self._loop.create_future()
        try:
            _binding.call("Watch", job, self.box)
            await end
        finally:
            del self._jobs[job]

    def close(self) -> None:
        """Ends the thread and aborts the streams; their readers are told."""
        if not self._open:
            return
        self._open = False
        if _binding.is_loaded_here():
            _binding.call("CloseMailbox", self.box)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._tell_of_the_end)

    def _serve(self) -> None:
        with suppress(RuntimeError):  # the mailbox or the loop was closed meanwhile
            while self.is_open():
                text = _binding.call("NextEvents", self.box, _WAIT_MS)
                if text:
                    self._loop.call_soon_threadsafe(self._hand_out, json.loads(text))
        self.close()

    def _hand_out(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            if "job" in event:
                end = self._jobs.get(event["job"])
                if end is not None and not end.done():
                    end.set_result(None)
            elif event["stream"] in self._inboxes:
                self._inboxes[event["stream"]].put_nowait(event)

    def _tell_of_the_end(self) -> None:
        error = {"kind": "closed", "message": "the engine was shut down"}
        for inbox in list(self._inboxes.values()):
            inbox.put_nowait({"error": error})
        for end in self._jobs.values():
            if not end.done():
                end.set_exception(RuntimeError(error["message"]))
