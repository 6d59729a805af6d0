"""Sampling parameters: how a request's tokens are chosen and when it ends."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MAX_SEED = 2**64 - 1
_MAX_LOGPROBS = 20
_MAX_BIASES = 1024

# The fields that say what the output must be.
GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")


@dataclass(slots=True)
class SamplingParams:
    """How a request's tokens are chosen and when it ends.

    Attributes:
        temperature: 0 takes the likeliest token; else logits are divided by it.
        top_k: Keep the k likeliest tokens; -1 or 0 keeps all.
        top_p: Then keep the smallest set with this probability; 1 keeps all.
        ignore_eos: Go on past an end-of-sequence token.
        max_tokens: Tokens to generate at most. The context's length also ends a request.
        min_p: Then drop tokens below this share of the likeliest one; 0 drops none.
        seed: Makes random choices repeatable; None takes the engine's seed and the
            request's number.
        presence_penalty: Subtracted from the logits of tokens that were generated, -2 to 2.
        frequency_penalty: Subtracted as often as they were, -2 to 2.
        repetition_penalty: Then divides their logits, or multiplies negative ones; above 0,
            at most 2, and 1 does nothing. The prompt's tokens don't count, as in sglang.
        logit_bias: Added to logits: -100 to 100 by token id, for at most 1024 tokens.
        min_tokens: Until so many tokens the end of the sequence is not drawn.
        logprobs: Report each token's log-probability, and those of so many of the likeliest
            tokens in its place, 0 to 20; None reports nothing. It is taken after
            temperature and penalties, and before top_k, top_p and min_p.
        prompt_logprobs: Report those of the prompt's tokens, too; needs logprobs.
        json_schema: The output is JSON by this schema: a dict, a string of JSON, or a
            Pydantic model class. {} allows any JSON.
        regex: The whole output matches this regular expression.
        ebnf: The output follows these rules: GBNF (root ::= ...), or Lark's syntax (start: ...).
        structural_tag: Free text with tags whose content has a JSON schema: a dict, or a
            string of JSON, with xgrammar's ``format``, or sglang's ``structures`` and ``triggers``.

    At most one of json_schema, regex, ebnf and structural_tag is given. It ends the output
    where nothing more may follow, also with ignore_eos. Cut off by max_tokens, the output is
    the beginning of one that fits.

    Raises:
        TypeError: A value of the wrong type.
        ValueError: A value out of range. The message names the field.
    """

    temperature: float = 0.0
    top_k: int = -1
    top_p: float = 1.0
    ignore_eos: bool = False
    max_tokens: int = 1024
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] | None = None
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: bool = False
    json_schema: Mapping[str, Any] | str | type | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: Mapping[str, Any] | str | None = None

    def __post_init__(self) -> None:
        self.temperature = as_float("temperature", self.temperature)
        self.top_k = as_int("top_k", self.top_k)
        self.top_p = as_float("top_p", self.top_p)
        self.ignore_eos = as_bool("ignore_eos", self.ignore_eos)
        self.max_tokens = as_int("max_tokens", self.max_tokens)
        self.min_p = as_float("min_p", self.min_p)
        if self.seed is not None:
            self.seed = as_int("seed", self.seed)
        self.presence_penalty = as_float("presence_penalty", self.presence_penalty)
        self.frequency_penalty = as_float("frequency_penalty", self.frequency_penalty)
        self.repetition_penalty = as_float("repetition_penalty", self.repetition_penalty)
        self.logit_bias = _as_biases(self.logit_bias)
        self.min_tokens = as_int("min_tokens", self.min_tokens)
        if self.logprobs is not None:
            self.logprobs = as_int("logprobs", self.logprobs)
        self.prompt_logprobs = as_bool("prompt_logprobs", self.prompt_logprobs)
        self.json_schema = _as_document("json_schema", self.json_schema)
        self.regex = _as_text("regex", self.regex)
        self.ebnf = _as_text("ebnf", self.ebnf)
        self.structural_tag = _as_document("structural_tag", self.structural_tag)
        self._check_ranges()
        self._check_penalties()
        self._check_grammar()

    def _check_ranges(self) -> None:
        check(self.temperature >= 0, "temperature", "at least 0", self.temperature)
        check(self.top_k >= -1, "top_k", "-1 (off), 0 (off) or more", self.top_k)
        check(0 < self.top_p <= 1, "top_p", "in (0, 1]", self.top_p)
        check(self.max_tokens >= 1, "max_tokens", "at least 1", self.max_tokens)
        check(0 <= self.min_p < 1, "min_p", "in [0, 1)", self.min_p)
        seed_fits = self.seed is None or 0 <= self.seed <= _MAX_SEED
        check(seed_fits, "seed", "None or from 0 to 2**64 - 1", self.seed)
        logprobs_fit = self.logprobs is None or 0 <= self.logprobs <= _MAX_LOGPROBS
        check(logprobs_fit, "logprobs", f"None or from 0 to {_MAX_LOGPROBS}", self.logprobs)
        wanted = not self.prompt_logprobs or self.logprobs is not None
        check(wanted, "prompt_logprobs", "False, or logprobs be given", self.prompt_logprobs)

    def _check_penalties(self) -> None:
        check(abs(self.presence_penalty) <= 2, "presence_penalty", "from -2 to 2", self.presence_penalty)
        check(abs(self.frequency_penalty) <= 2, "frequency_penalty", "from -2 to 2", self.frequency_penalty)
        repetition_fits = 0 < self.repetition_penalty <= 2
        check(repetition_fits, "repetition_penalty", "above 0 and at most 2", self.repetition_penalty)
        min_fits = 0 <= self.min_tokens <= self.max_tokens
        check(min_fits, "min_tokens", f"from 0 to max_tokens, {self.max_tokens}", self.min_tokens)
        biases = self.logit_bias or {}
        check(len(biases) <= _MAX_BIASES, "logit_bias", f"for at most {_MAX_BIASES} tokens", len(biases))
        for token, bias in biases.items():
            check(0 <= token < 2**31, "logit_bias", "by token id", token)
            check(abs(bias) <= 100, f"logit_bias[{token}]", "from -100 to 100", bias)

    def _check_grammar(self) -> None:
        given = [name for name in GRAMMARS if getattr(self, name) is not None]
        check(len(given) <= 1, " and ".join(given), "given one at a time", f"{len(given)} of them")
        check(not given or self.min_tokens == 0, "min_tokens", f"0 with {given}", self.min_tokens)

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the likeliest one."""
        return self.temperature == 0 or self.top_k == 1


def _as_text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str, got {value!r}")
    return value


def _as_document(name: str, value: Any) -> str | None:
    """Returns JSON as text; of a Pydantic model class its schema."""
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a dict, a str of JSON or a Pydantic model class, got {value!r}")
    return value


def _as_biases(value: Any) -> dict[int, float] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(f"logit_bias must be a dict of biases by token id, got {value!r}")
    return {as_int("a token of logit_bias", k): as_float(f"logit_bias[{k}]", v) for k, v in value.items()}


def as_int(name: str, value: Any) -> int:
    """Returns an int for an int or what acts as one (numpy's), never for a bool."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} must be an int, got {value!r}")


def as_float(name: str, value: Any) -> float:
    """Returns a finite float for any real number, never for a bool or a string."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    check(math.isfinite(number), name, "a finite number", value)
    return number


def as_bool(name: str, value: Any) -> bool:
    """Returns the bool, or refuses what isn't one."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return value


def check(holds: bool, name: str, must_be: str, value: Any) -> None:
    """Raises a ValueError that names the field unless the rule holds."""
    if not holds:
        raise ValueError(f"{name} must be {must_be}, got {value!r}")
