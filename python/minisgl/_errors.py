"""Turns the engine's errors into Python's, in this one place."""

from __future__ import annotations

import json

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

    The module raises only RuntimeError; its text is a JSON object with the kind, the
    field that is wrong (or none) and the message.
    """
    try:
        told = json.loads(str(error))
        kind, message = _KINDS[told["kind"]], told["message"]
    except (ValueError, KeyError, TypeError):
        return error
    field = told.get("field")
    return kind(f"{field}: {message}" if field else message)
