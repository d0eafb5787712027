"""The functions of JSON texts that SQL calls, row by row, by Python's own parser: the slow twin of the compiled scan.

DuckDB and Spark have such functions too, but they print numbers anew, and differ in what is JSON at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in the stubs
from typing import Any, NoReturn

import pyarrow as pa

from headrace.expr.json_path import JsonStep, json_steps
from headrace.history.script import HistoryFunction

__all__ = ["own_function"]

_SPACES = " \t\n\r"
_SCALARS = '"-0123456789tf'


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refused)


def _behind_spaces(text: str, at: int) -> int:
    while text[at] in _SPACES:
        at += 1
    return at


def _members(text: str, at: int) -> Iterator[tuple[JsonStep, int, int]]:
    """The members of the object, or the elements of the array, that begins at `at`: key or place, begin and end."""
    is_object, place = text[at] == "{", 0
    at = _behind_spaces(text, at + 1)
    while text[at] not in "}]":
        key: JsonStep = place
        if is_object:
            key, at = scanstring(text, at + 1, True)
            at = _behind_spaces(text, _behind_spaces(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        yield key, at, end
        at = _behind_spaces(text, end)
        if text[at] == ",":
            at = _behind_spaces(text, at + 1)
        place += 1


def _value(text: str, path: str) -> str | None:
    """The JSON text of the value at the end of a path."""
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    found = text.strip(_SPACES)
    for step in json_steps(path):
        if found[0] != ("{" if isinstance(step, str) else "["):
            return None
        spans = list(_members(found, 0))
        wanted = step + len(spans) if isinstance(step, int) and step < 0 else step
        ends = [(begin, end) for key, begin, end in spans if key == wanted]
        if not ends:
            return None
        found = found[slice(*ends[-1])]
    return found


def _plain(value: str) -> str | None:
    """A value without quotes and escapes; NULL for `null`, and for half a surrogate pair."""
    if value[0] != '"':
        return None if value == "null" else value
    plain = str(json.loads(value))
    return None if any("\ud800" <= character <= "\udfff" for character in plain) else plain


def _get(text: str, path: str) -> str | None:
    return _value(text, path)


def _text(text: str, path: str) -> str | None:
    found = _value(text, path)
    return None if found is None else _plain(found)


def _scalar(text: str, path: str) -> str | None:
    found = _value(text, path)
    return _plain(found) if found is not None and found[0] in _SCALARS else None


def _query(text: str, path: str) -> str | None:
    found = _value(text, path)
    return found if found is not None and found[0] in "{[" else None


def _length(text: str) -> int | None:
    found = _query(text, "$")
    return len(json.loads(found)) if found is not None and found[0] == "[" else None


def _is_json(text: str, kind: str) -> bool:
    found = _value(text, "$")
    wanted = {"value": found, "object": "{", "array": "[", "scalar": _SCALARS + "n"}[kind]
    return found is not None and (kind == "value" or found[0] in str(wanted))


_FUNCTIONS: dict[str, tuple[Callable[..., Any], int, pa.DataType]] = {
    "json_get": (_get, 2, pa.string()),
    "json_text": (_text, 2, pa.string()),
    "json_value": (_scalar, 2, pa.string()),
    "json_query": (_query, 2, pa.string()),
    "json_exists": (lambda text, path: _value(text, path) is not None, 2, pa.bool_()),
    "json_array_length": (_length, 1, pa.int32()),
    "is_json": (_is_json, 2, pa.bool_()),
}


def own_function(name: str) -> HistoryFunction:
    """A function of texts, NULL where its first argument is."""
    compute, arguments, gives = _FUNCTIONS[name]

    def call(*columns: Any) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if row[0] is None else compute(*row) for row in rows], gives)

    return HistoryFunction(f"headrace_{name}", (pa.string(),) * arguments, gives, call)
