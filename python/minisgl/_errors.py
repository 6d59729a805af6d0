"""Turns the engine's errors into Python's, in this one place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# bindings/native/errors.go lists the kinds.
_KINDS: dict[str, type[Exception]] = {
    "invalid": ValueError,
    "type": TypeError,
    "not_found": FileNotFoundError,
    "permission": PermissionError,
    "model": ValueError,
    "closed": RuntimeError,
    "canceled": RuntimeError,
    "internal": RuntimeError,
}


def translate(error: RuntimeError) -> Exception:
    """Returns the exception that an error of the native module stands for.

    The module raises only RuntimeError; its text is a JSON object for ``exception_of``.
    """
    try:
        return exception_of(json.loads(str(error)))
    except (ValueError, KeyError, TypeError):
        return error


def exception_of(told: Mapping[str, Any]) -> Exception:
    """Returns the exception for an error's kind, message, and the field that is wrong (or none)."""
    kind, message = _KINDS[told["kind"]], told["message"]
    field = told.get("field")
    return kind(f"{field}: {message}" if field else message)
