"""LLM: one loaded model."""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypedDict

from minisgl import _binding
from minisgl.core import SamplingParams, as_int, check
from minisgl.llm.forward import ForwardInput
from minisgl.llm.options import engine_options
from minisgl.llm.prompts import chat_requests, generate_requests, one_chat_request, one_request
from minisgl.llm.stream import TokenLogprob, TokenStream
from minisgl.llm.tokenizer import Tokenizer, template_options

# Shorter lists are over before a bar is of use.
_MIN_PROMPTS_FOR_BAR = 5


class GenerateOutput(TypedDict):
    """What one prompt gave; text and token_ids are without the token that ended it."""

    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: str  # "stop" or "length"
    prompt_tokens: int
    cached_tokens: int  # prompt tokens found in the prefix cache
    completion_tokens: int
    ttft: float  # seconds to the first token
    e2e: float  # seconds to the end
    logprobs: list[TokenLogprob] | None  # of token_ids, if SamplingParams.logprobs asked for them
    prompt_logprobs: list[TokenLogprob] | None  # of the prompt's tokens from the second on, likewise


class LLM:
    """A model that is loaded and generates text.

    Threads may share one; several may live in one process. ``shutdown`` frees it, and so
    do a ``with`` block, ``del`` and the end of the process.

    To watch or time single batches, replace ``_forward``, on an LLM or in a subclass; see
    there.

    Args:
        model_path: A directory in Hugging Face's layout, a ``.gguf`` file, a known name
            (``smollm2-135m``), or a model of the hub: ``org/name``, ``org/name@revision``,
            ``org/name/file.gguf``.
        dtype: What to compute with: ``"bfloat16"``, ``"float16"``, ``"float32"``, ``"auto"``, or a
            ``torch.dtype`` of one of these. Quantized weights are computed with as they
            are, unless it is ``"float32"`` or the option ``quantization`` is ``"none"``;
            ``quantization="int8"`` or ``"int4"``, and ``"fp8"`` on a GPU, quantizes others when
            they are loaded.
        **kwargs: ``device`` ("cpu"), ``num_threads``, ``max_running_req``,
            ``max_seq_len_override``, ``num_page_override``, ``page_size``,
            ``max_extend_tokens``, ``memory_ratio``, ``cache_type`` ("radix", "naive"),
            ``schedule_policy`` ("fcfs", "lpm"), ``admission`` ("optimistic",
            "conservative"), ``mixed_prefill_tokens``, ``disable_overlap``,
            ``disable_jump_forward`` (sample also the tokens that a grammar forces, one by one;
            they stay the same),
            ``speculative_algorithm`` ("ngram": tokens are guessed from the text before and
            verified several at a time, where that pays; they stay the same),
            ``speculative_num_draft_tokens`` (guesses in a step at most, 8), ``seed``,
            ``chat_template`` (a file of a Jinja template that replaces the model's),
            ``use_dummy_weight`` (random weights), ``model_source`` ("huggingface",
            "modelscope"); None is the default of each. mini-sglang's other options are taken where they have
            no effect.

    Attributes:
        info: What was loaded: architecture, dtype, device, max_seq_len, num_pages, …
        tokenizer: The model's tokenizer.

    Raises:
        FileNotFoundError: There is no such model.
        ValueError: An option can't be used, or the model can't.
        TypeError: An option is unknown.
    """

    def __init__(self, model_path: str | os.PathLike[str], dtype: Any = "bfloat16", **kwargs: Any) -> None:
        options = engine_options(model_path, dtype, kwargs)
        engine = _binding.run("OpenEngine", json.dumps(options))
        self._engine = engine
        self._finalize = weakref.finalize(self, _close, engine)
        self._stepping_thread: int | None = None  # which is inside a replaced _forward
        self.info: dict[str, Any] = json.loads(self._call("Info"))

        def call(function: str, argument: str) -> str:
            answer: str = _binding.call(function, engine, argument)  # no reference to self
            return answer

        self.tokenizer = Tokenizer(call, self.info)
        self._max_prefill_budget = self.prefill_budget

    @property
    def eos_token_id(self) -> int | None:
        """The id of the token that ends a sequence."""
        return self.tokenizer.eos_token_id

    @property
    def prefill_budget(self) -> int:
        """How many prompt tokens a batch may compute; longer prompts run in chunks.

        It is max_extend_tokens at first, and read for each batch: it may be set at any
        time, to 1 … max_extend_tokens.
        """
        tokens: int = self._call("PrefillBudget")
        return tokens

    @prefill_budget.setter
    def prefill_budget(self, tokens: int) -> None:
        number = as_int("prefill_budget", tokens)
        most = self._max_prefill_budget
        check(1 <= number <= most, "prefill_budget", f"1 to {most}, the engine's max_extend_tokens", tokens)
        self._call("SetPrefillBudget", number)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | None = None,
    ) -> list[GenerateOutput]:
        """Continues prompts; the outputs are in the order of the prompts.

        Args:
            prompts: Strings (encoded without a chat template) or lists of token ids.
            sampling_params: One for all prompts or one for each; None is the default.
            use_tqdm: Whether to show a progress bar; None shows one for long lists on a
                terminal.

        Raises:
            ValueError: A prompt can't be used; nothing has been generated then. The
                message names it (``prompts[3]``).
            TypeError: Prompts that aren't a list of strings or of token ids.
            RuntimeError: The LLM was shut down, or the device failed.
            KeyboardInterrupt: After Ctrl-C; the LLM stays usable.
        """
        return self._run(generate_requests(prompts, sampling_params), use_tqdm)

    def chat(
        self,
        messages: Sequence[dict[str, Any]] | Sequence[Sequence[dict[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool | None = None,
        tools: list[dict[str, Any]] | None = None,
        **template_kwargs: Any,
    ) -> list[GenerateOutput]:
        """Answers conversations, rendered with the model's chat template.

        Args:
            messages: Dicts with role and content, or a list of such lists. The outputs
                are a list either way.
            sampling_params: As for ``generate``.
            use_tqdm: As for ``generate``.
            tools: Descriptions of functions, for templates that know them.
            **template_kwargs: What else the template reads, such as enable_thinking.
        """
        template = template_options(True, tools, template_kwargs)
        return self._run(chat_requests(messages, sampling_params, template), use_tqdm)

    def stream(self, prompt: str | Sequence[int], sampling_params: SamplingParams | None = None) -> TokenStream:
        """Continues a prompt, token by token.

        ``for step in llm.stream("Once upon a time"): print(step.text, end="", flush=True)``

        Args:
            prompt: A string (encoded without a chat template) or a list of token ids.
            sampling_params: None is the default.

        Returns:
            An iterator over StreamOutput. What it raises, it raises while it is read: what
            ``generate`` would. An end before the last step aborts the answer. A replaced
            ``_forward`` is not called.
        """
        return self._stream(one_request(prompt, sampling_params))

    def stream_chat(
        self,
        messages: Sequence[dict[str, Any]],
        sampling_params: SamplingParams | None = None,
        *,
        tools: list[dict[str, Any]] | None = None,
        **template_kwargs: Any,
    ) -> TokenStream:
        """Answers a conversation, token by token: ``chat`` as ``stream`` does it."""
        return self._stream(one_chat_request(messages, sampling_params, template_options(True, tools, template_kwargs)))

    def stats(self) -> dict[str, Any]:
        """Returns counts since loading, such as tokens, requests and free pages."""
        stats: dict[str, Any] = json.loads(self._call("Stats"))
        return stats

    def shutdown(self) -> None:
        """Aborts what runs and frees the model. A second call does nothing."""
        self._finalize()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        state = "" if self._finalize.alive else ", shut down"
        return f"LLM({self.info['model']!r}, dtype={self.info['dtype']!r}{state})"

    def _run(self, requests: list[dict[str, Any]], use_tqdm: bool | None) -> list[GenerateOutput]:
        if not requests:
            self._call("Stats")  # refuses after shutdown, as any other list would
            return []
        self._check_not_stepping()
        hooked = self._is_hooked()
        with _progress_bar(len(requests), use_tqdm) as on_progress:
            function, step = ("GenerateHooked", self._step) if hooked else ("Generate", None)
            outputs = _binding.run(function, self._engine, json.dumps(requests), on_progress=on_progress, step=step)
        return with_prompt_ids(outputs, requests)

    def _stream(self, request: dict[str, Any]) -> TokenStream:
        self._check_not_stepping()
        return TokenStream(self, self._engine, request)

    def _check_not_stepping(self) -> None:
        if self._stepping_thread == threading.get_ident():
            raise RuntimeError("a model can't be called inside its _forward: the batch there has to end first")

    def _forward(self, fi: ForwardInput) -> None:
        """Runs a batch.

        It is there to be replaced, by an attribute of the LLM or in a subclass. A call of
        generate or chat that begins then passes each of its batches to the replacement,
        in the calling thread, and such calls run one after the other. The replacement has
        to call the original once, and may do anything before and after, except let the
        LLM generate. What it raises ends the call; the LLM stays usable. Without a
        replacement nothing of Python is called for a batch.

        Args:
            fi: The batch, as ``fi.batch``: phase, is_prefill, is_decode, size, reqs,
                input_ids, positions.

        Raises:
            RuntimeError: The device failed, the batch ran already or is over, or the LLM
                was shut down.
        """
        _binding.call("RunBatch", fi.job, fi.number)

    def _is_hooked(self) -> bool:
        forward = self._forward
        original = getattr(forward, "__func__", None) is _FORWARD and getattr(forward, "__self__", None) is self
        return not original

    def _step(self, job: int) -> None:
        """Takes a job's next batch, if there is one soon, through _forward."""
        text = _binding.call("NextBatch", job, _binding.POLL_MS)
        if not text:
            return
        fi = ForwardInput.parse(job, text)
        self._stepping_thread = threading.get_ident()
        try:
            self._forward(fi)
        finally:
            self._stepping_thread = None
        _binding.call("EndBatch", job, fi.number)

    def _call(self, function: str, *args: Any) -> Any:
        return _binding.call(function, self._engine, *args)


_FORWARD = LLM._forward


def with_prompt_ids(outputs: list[GenerateOutput], requests: list[dict[str, Any]]) -> list[GenerateOutput]:
    """Adds the prompts' ids to outputs where the engine was given them and doesn't repeat them."""
    for output, request in zip(outputs, requests, strict=True):
        if "token_ids" in request:
            output["prompt_token_ids"] = request["token_ids"]
    return outputs


def _close(engine: int) -> None:
    if _binding.is_loaded_here():  # a forked child leaves its parent's engine alone
        _binding.call("CloseEngine", engine)


@contextmanager
def _progress_bar(count: int, use_tqdm: bool | None) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    if use_tqdm is None:
        use_tqdm = count >= _MIN_PROMPTS_FOR_BAR and sys.stderr is not None and os.isatty(2)
    if not use_tqdm:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(total=count, desc="Prompts", dynamic_ncols=True) as bar:

        def show(status: dict[str, Any]) -> None:
            bar.update(status["done_requests"] - bar.n)
            rate = status["completion_tokens"] / max(bar.format_dict["elapsed"], 1e-9)
            bar.set_postfix_str(f"output {rate:.1f} tok/s")

        yield show
