"""Errors as JSON, and back: what a client raises is what the server raised.

An error is `{"code", "message", "given", "allowed", "instead"}`; of a text of SQL also `line`, `column`, and the `text`
with the place (`at`, two offsets).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from headrace.errors import HeadraceError, ServerError, SqlError

__all__ = ["error_from_json", "error_to_json"]


def error_to_json(error: HeadraceError) -> dict[str, Any]:
    """An error as JSON values."""
    given = error.given
    plain = given is None or isinstance(given, int) or (isinstance(given, float) and isfinite(given))
    found: dict[str, Any] = {
        "code": error.code,
        "message": _sendable(error.message),
        "given": given if plain else _sendable(str(given)),
        "allowed": _sendable(error.allowed),
        "instead": _sendable(error.instead),
    }
    if isinstance(error, SqlError) and error.text:
        found |= {"line": error.line, "column": error.column, "at": list(error.at)}
    return found


def _sendable(text: str) -> str:
    """A text without half characters (lone surrogates), which JSON can name and UTF-8 cannot write."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def error_from_json(found: Mapping[str, Any], text: str = "") -> HeadraceError:
    """The error that a server sent; `text` are the statements that were sent to it."""
    kind = _KINDS.get(str(found.get("code")), ServerError)
    parts: dict[str, Any] = {
        "given": found.get("given"),
        "allowed": str(found.get("allowed") or ""),
        "instead": str(found.get("instead") or ""),
    }
    message = str(found.get("message") or "the server refused this without a reason")
    if issubclass(kind, SqlError):
        start, end = (*(found.get("at") or ()), 0, 0)[:2]
        return kind(message, text=text, at=(int(start), int(end)), **parts)
    return kind(message, **parts)


def _below(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


_KINDS = {kind.code: kind for kind in _below(HeadraceError) if kind.__module__ == HeadraceError.__module__}
