"""Complete words: keywords as the grammar allows them, streams, columns, functions, settings, commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from headrace.cli.sql.pieces import TOKENS, pieces
from headrace.cli.sql.shell import Shell
from headrace.sql.bind.catalog import SETTINGS, Catalog
from headrace.sql.bind.expressions import SQL_AGGREGATES, SQL_FUNCTIONS
from headrace.sql.bind.patterns import NAVIGATION
from headrace.sql.parse import following
from headrace.sql.tables import RESERVED
from headrace.sql.views import VIEWS

__all__ = ["SqlCompleter", "candidates"]

_WORD = re.compile(r"\w*\Z")
_BEFORE_STREAM = ("FROM", "JOIN", "MERGE", "DESCRIBE", "EXPLAIN", "VERIFY", "INTO", "ON", "STREAM", "AS")
_CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "MERGE", "USING", "SET", "LIMIT")
_BEFORE_COLUMN = ("BY", ",", "USING", "(")


class SqlCompleter(Completer):
    """Completes words from the grammar and a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        """The words that may follow at the cursor."""
        before = document.text_before_cursor
        path = _path_before(before)
        typed = _typed_part(before) if path is None else path.rpartition("/")[2]
        for word, kind in candidates(self._catalog, before, document.text_after_cursor):
            yield Completion(word, start_position=-len(typed), display_meta=kind)


def candidates(catalog: Catalog, before: str, after: str = "") -> list[tuple[str, str]]:
    """Words that may stand between two texts and start with the typed part, each with its kind."""
    path = _path_before(before)
    if path is not None:
        return _paths(catalog.base, path)
    command = re.search(r"(?:\A|\n)\s*\\(\w*)\Z", before)
    if command is not None:
        return [(name, "command") for name in Shell.commands if name.startswith(command[1])]
    if re.search(r"(?:\A|\n)\s*\\d\s+\w*\Z", before):
        return _starting_with(_typed_part(before), _relations(catalog))
    if re.search(r"\\view\s+\w*\Z", before):
        return _starting_with(_typed_part(before), ((kind, "view") for kind in VIEWS))
    typed = _typed_part(before)
    place = _CursorPlace.of(before[: len(before) - len(typed)], after)
    found = _starting_with(typed, [*_names(catalog, place), *_keywords(place, typed)])
    return list(dict(reversed(found)).items())[::-1]


def _typed_part(before: str) -> str:
    match = _WORD.search(before)
    return match[0] if match is not None else ""


def _starting_with(typed: str, words: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(word, kind) for word, kind in words if word.lower().startswith(typed.lower()) and word != typed]


@dataclass(frozen=True)
class _CursorPlace:
    """The place of a word: the statement before it, as text and as tokens, and the tokens of the entire statement."""

    text: str
    before: tuple[str, ...]
    full: tuple[str, ...]

    @classmethod
    def of(cls, before: str, after: str) -> _CursorPlace:
        statements = list(pieces(before))
        text = statements[-1].text + " " if statements and not statements[-1].complete else ""
        ends = next(pieces(text + "x" + after), None)
        return cls(text, _tokens(text), _tokens(ends.text if ends is not None else ""))

    @property
    def last(self) -> str:
        return self.before[-1].upper() if self.before else ""

    @property
    def clause(self) -> str:
        """The clause that contains the place."""
        return next((word.upper() for word in reversed(self.before) if word.upper() in _CLAUSES), "")


def _tokens(text: str) -> tuple[str, ...]:
    return tuple(m[0] for m in TOKENS.finditer(text) if m.lastgroup not in ("space", "comment", "end"))


# --- paths -----------------------------------------------------------------------------------------------------------


def _path_before(before: str) -> str | None:
    r"""The beginning of a path at the end of a text: after `\i`, or as the first argument of a source or a sink."""
    command = re.search(r"(?:\A|\n)\s*\\ir?\s+(\S*)\Z", before)
    if command is not None:
        return command[1]
    found = [token for token in TOKENS.finditer(before) if token.lastgroup not in ("space", "comment")]
    if not found or not _is_open(found[-1]):
        return None
    words = [token[0].upper() for token in found[-4:-1]]
    is_place = len(words) == 3 and words[0] in ("SOURCE", "INTO") and words[1] in _PLACES and words[2] == "("
    return found[-1][0][1:] if is_place else None


def _is_open(token: re.Match[str]) -> bool:
    """Whether a text or a quoted name has no end yet."""
    sign = token[0][0]
    return token.lastgroup in ("text", "quoted") and (len(token[0]) == 1 or token[0].count(sign) % 2 == 1)


def _paths(base: Path, typed: str) -> list[tuple[str, str]]:
    """The files and folders whose path begins so, by the last part of the path; a folder ends with a slash."""
    folder, _, start = typed.rpartition("/")
    place = base / Path(f"{folder}/" if folder or typed.startswith("/") else "").expanduser()
    try:
        entries = sorted(place.iterdir())
    except OSError:
        return []
    shown = [entry for entry in entries if start.startswith(".") or not entry.name.startswith(".")]
    kinds = [(f"{entry.name}/", "folder") if entry.is_dir() else (entry.name, "file") for entry in shown]
    return [(name, kind) for name, kind in kinds if name.startswith(start)]


#: Sources and sinks whose first argument is a path.
_PLACES = frozenset(("FILE", "CSV", "JSON", "PARQUET", "EVENTS"))


# --- names -----------------------------------------------------------------------------------------------------------


def _names(catalog: Catalog, place: _CursorPlace) -> Iterator[tuple[str, str]]:
    if place.last == ".":
        yield from _columns_of(catalog, _sources(place.full).get(place.before[-2].lower(), place.before[-2]))
    elif place.before[:1] and place.before[0].upper() == "SET":
        yield from _settings(place)
    elif place.last == "AS" and "CASE" in following(place.text):
        yield from _values(catalog, place)
    elif place.last in _BEFORE_STREAM or (place.last == "," and place.clause in ("FROM", "MERGE")):
        yield from _relations(catalog)
    else:
        yield from _values(catalog, place)


def _relations(catalog: Catalog) -> Iterator[tuple[str, str]]:
    yield from ((name, "stream") for name in catalog.streams)
    yield from ((name, "table") for name in catalog.tables)


def _values(catalog: Catalog, place: _CursorPlace) -> Iterator[tuple[str, str]]:
    """Columns, and functions where an expression may stand; nothing where the user chooses a new name."""
    allowed = following(place.text)
    if "CASE" in allowed:
        yield from _columns(catalog, place)
        yield from ((f"{name}(", "aggregate") for name in SQL_AGGREGATES)
        yield from ((f"{name}(", "function") for name in SQL_FUNCTIONS)
        if "MATCH_RECOGNIZE" in (word.upper() for word in place.before):
            yield from ((f"{name}(", "of a match") for name in NAVIGATION)
    elif "NAME" in allowed and place.last in _BEFORE_COLUMN and "PERMUTE" not in allowed:
        yield from _columns(catalog, place)


def _settings(place: _CursorPlace) -> Iterator[tuple[str, str]]:
    if len(place.before) == 1:
        yield from ((name, "setting") for name in SETTINGS)
    elif place.last == "=":
        yield from ((str(value), "value") for value in SETTINGS.get(place.before[1].lower(), (None, "", ()))[2])


def _columns(catalog: Catalog, place: _CursorPlace) -> Iterator[tuple[str, str]]:
    """The columns of the streams in FROM; of all streams if there are none."""
    sources = _sources(place.full)
    for alias, stream in sources.items():
        yield from _columns_of(catalog, stream)
        yield alias, "stream"
    if not sources and place.clause == "SELECT":
        for name in catalog.streams:
            yield from _columns_of(catalog, name)


def _columns_of(catalog: Catalog, stream: str) -> Iterator[tuple[str, str]]:
    every: dict[str, Any] = {**catalog.tables, **catalog.streams}
    entry = next((entry for name, entry in every.items() if name.lower() == stream.lower()), None)
    if entry is not None:
        yield from ((field.name, f"{field.type.value} of {entry.name}") for field in entry.schema)


def _sources(tokens: tuple[str, ...]) -> dict[str, str]:
    """The streams in FROM, by the names that qualify their columns."""
    found: dict[str, str] = {}
    position = 0
    while position < len(tokens):
        word = tokens[position].upper()
        position += 1
        if word in ("FROM", "JOIN"):
            position = _source(tokens, position, found)
            while position < len(tokens) and tokens[position] == ",":
                position = _source(tokens, position + 1, found)
    return found


def _source(tokens: tuple[str, ...], position: int, aliases: dict[str, str]) -> int:
    """Add one stream with its alias to `aliases`; return the position after it."""
    name = tokens[position] if position < len(tokens) else ""
    if not name.isidentifier() or name.upper() in RESERVED:
        return position
    position += 1
    while position < len(tokens) and tokens[position] == "[":
        position = tokens.index("]", position) + 1 if "]" in tokens[position:] else len(tokens)
    if position < len(tokens) and tokens[position].upper() == "AS":
        position += 1
    alias = tokens[position] if position < len(tokens) else ""
    has_alias = alias.isidentifier() and alias.upper() not in _NOT_ALIASES
    aliases[alias.lower() if has_alias else name.lower()] = name
    return position + has_alias


_NOT_ALIASES = RESERVED | {"CROSS", "INNER", "LEFT", "ANTI", "CLIP", "LIMIT", "EMIT", "TICK", "MATCH_RECOGNIZE", "X"}


# --- keywords --------------------------------------------------------------------------------------------------------


def _keywords(place: _CursorPlace, typed: str) -> Iterator[tuple[str, str]]:
    """The keywords that the grammar allows here, in lower case if the typed part starts so."""
    if place.last == ".":
        return
    lower = typed[:1].islower()
    words = sorted(word for word in following(place.text) if word[0].isalpha() and word not in _KINDS)
    yield from ((word.lower() if lower else word, "") for word in words)


_KINDS = frozenset(
    ("NAME", "QUOTED", "TICKED", "TEXT", "NUMBER", "DURATION", "DATETIME", "CAST", "EXTENT", "OVER_TEXT", "$END")
)
