"""Answers that come token by token."""

from __future__ import annotations

import json
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypedDict

from minisgl import _binding
from minisgl._errors import exception_of


class TopLogprob(TypedDict):
    """One of the likeliest tokens in a token's place."""

    token_id: int
    logprob: float


class TokenLogprob(TypedDict):
    """A token's log-probability; -9999 stands for minus infinity."""

    token_id: int
    logprob: float
    top_logprobs: list[TopLogprob]  # the likeliest first


@dataclass(frozen=True, slots=True)
class StreamOutput:
    """One step of an answer.

    Attributes:
        text: What the step adds to the answer; empty while a character is incomplete.
            Special tokens are left out.
        token_id: The step's token; None in a last step that only ends the answer.
        finish_reason: None while the answer goes on; then "stop" or "length".
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Those of them that were found in the prefix cache.
        completion_tokens: Tokens of the answer up to here.
        logprob: The token's log-probability, if SamplingParams.logprobs asked for it.
        prompt_logprobs: Those of the prompt's tokens from the second on, in the first step,
            if SamplingParams.prompt_logprobs asked for them.
    """

    text: str
    token_id: int | None
    finish_reason: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    logprob: TokenLogprob | None = None
    prompt_logprobs: list[TokenLogprob] | None = None


def step_of(event: dict[str, Any]) -> StreamOutput:
    """Returns the step that an event (bindings/native/mailbox.go) tells of.

    Raises:
        ValueError: The request can't be used.
        RuntimeError: The device failed, or the LLM was shut down.
    """
    if "error" in event:
        raise exception_of(event["error"])
    if event["finish_reason"] == "abort":
        raise RuntimeError("the engine was shut down")
    return StreamOutput(
        event["text"],
        event["token_id"],
        event["finish_reason"] or None,
        event["prompt_tokens"],
        event["cached_tokens"],
        event["completion_tokens"],
        event.get("logprob"),
        event.get("prompt_logprobs"),
    )


class TokenStream(Iterator[StreamOutput]):
    """An iterator over the steps of an answer; one thread reads it.

    The answer is aborted by ``close``, by the end of a ``with`` block, when the stream is
    no longer used, and by an exception such as KeyboardInterrupt while it waits.
    """

    def __init__(self, owner: Any, engine: int, request: dict[str, Any]) -> None:
        self._owner = owner  # has to live as long
        self._box: int = _binding.call("OpenMailbox")
        self._finalize = weakref.finalize(self, _close, self._box)
        self._steps: deque[dict[str, Any]] = deque()
        _binding.call("StartStream", engine, self._box, json.dumps(request))

    def __next__(self) -> StreamOutput:
        if not self._steps:
            if not self._finalize.alive:
                raise StopIteration
            self._wait()
        try:
            step = step_of(self._steps.popleft())
        except BaseException:
            self.close()
            raise
        if step.finish_reason:
            self._finalize()  # what has come already is the last
        return step

    def close(self) -> None:
        """Aborts the answer if it is not complete; the iterator then ends."""
        self._steps.clear()
        self._finalize()

    def __enter__(self) -> TokenStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait(self) -> None:
        """Waits for steps; between two polls Python sees signals."""
        try:
            while not (text := _binding.call("NextEvents", self._box, _binding.POLL_MS)):
                pass
        except BaseException as error:
            was_closed = not self._finalize.alive  # by another thread
            self.close()
            if was_closed and isinstance(error, RuntimeError):
                raise StopIteration from None
            raise
        self._steps.extend(json.loads(text))


def _close(box: int) -> None:
    if _binding.is_loaded_here():
        _binding.call("CloseMailbox", box)
