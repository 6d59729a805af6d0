"""What ``LLM._forward`` is told of a batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class BatchReq:
    """A request's part of a batch.

    Attributes:
        uid: The request's number, the same in all of its batches.
        extend_len: How many of its positions the batch computes.
    """

    uid: int
    extend_len: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The tokens of one forward pass, one request after the other.

    Attributes:
        phase: "prefill" computes prompts or chunks of them (and, where both may share a
            batch, a token for each running request too); "decode" one token per request, and the
            guesses behind it with ``speculative_algorithm``.
        reqs: The requests.
        input_ids: The tokens whose keys and values are computed.
        positions: Where in its request each of them stands, from 0.
    """

    phase: Literal["prefill", "decode"]
    reqs: list[BatchReq]
    input_ids: list[int]
    positions: list[int]

    @property
    def is_prefill(self) -> bool:
        """Whether the phase is "prefill"."""
        return self.phase == "prefill"

    @property
    def is_decode(self) -> bool:
        """Whether the phase is "decode"."""
        return self.phase == "decode"

    @property
    def size(self) -> int:
        """The number of requests."""
        return len(self.reqs)

    @property
    def padded_size(self) -> int:
        """The same: batches aren't padded."""
        return len(self.reqs)


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """The argument of ``LLM._forward``. It is of use until ``_forward`` returns.

    Attributes:
        batch: The batch that is to run.
        job: Number of the call that the batch belongs to.
        number: The batch's number in that call.
    """

    batch: Batch
    job: int
    number: int

    @classmethod
    def parse(cls, job: int, text: str) -> ForwardInput:
        """Reads what the engine tells of a batch (bindings/native/hook.go)."""
        told = json.loads(text)
        batch = Batch(
            phase="prefill" if told["prefill"] else "decode",
            reqs=[BatchReq(*req) for req in zip(told["uids"], told["extend"], strict=True)],
            input_ids=told["input_ids"],
            positions=told["positions"],
        )
        return cls(batch, job, told["number"])
