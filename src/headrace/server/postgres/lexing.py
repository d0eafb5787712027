"""The tokens of a statement, as far as this way in needs them: where statements end, and where `$1` stands.

A `$1` inside a text, a quoted name or a comment is no parameter, and a `;` there, or in the braces of an aggregate,
ends nothing. The grammar itself is `sql/grammar.lark`; its texts, names and comments are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Lexeme", "StatementText", "adapted", "lexemes", "place_before", "statements", "with_literals"]

_TOKEN = re.compile(
    r"""(?P<space>[\s\ufeff]+|--[^\n]*|/\*[\s\S]*?\*/)
      | (?P<text>'[^']*(?:''[^']*)*')
      | (?P<quoted>"[^"]*(?:""[^"]*)*"|`[^`]*(?:``[^`]*)*`)
      | (?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | \$(?P<parameter>\d+)
      | (?P<sign>[\s\S])""",
    re.VERBOSE,
)


class Lexeme(NamedTuple):
    """A token: its kind, its text, and its place. Names are in lower case, quoted ones without their quotes."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class StatementText:
    """A statement of a text, and where it starts there."""

    text: str
    start: int
    lexemes: tuple[Lexeme, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Its first tokens, in lower case: names, signs, numbers."""
        return tuple(lexeme.text for lexeme in self.lexemes[:8])

    @property
    def parameters(self) -> int:
        """The highest number of a parameter."""
        return max((int(lexeme.text) for lexeme in self.lexemes if lexeme.kind == "parameter"), default=0)


def lexemes(text: str) -> list[Lexeme]:
    """The tokens of a text, without spaces and comments."""
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "sign"
        if kind != "space":
            found.append(Lexeme(kind, _value(kind, match[kind]), match.start(), match.end()))
    return found


def _value(kind: str, text: str) -> str:
    if kind == "quoted":
        return text[1:-1].replace(text[0] * 2, text[0])
    return text.lower() if kind == "name" else text


def statements(text: str) -> list[StatementText]:
    """The statements of a text; what is empty is left out."""
    found: list[StatementText] = []
    depth, own = 0, list[Lexeme]()
    for lexeme in [*lexemes(text), Lexeme("sign", ";", len(text), len(text))]:
        if lexeme.kind == "sign":
            depth = max(0, depth + (lexeme.text == "{") - (lexeme.text == "}"))
        if lexeme.kind != "sign" or lexeme.text != ";" or (depth and lexeme.end < len(text)):
            own.append(lexeme)
        elif own:
            found.append(_statement(text, own))
            own = []
    return found


def _statement(text: str, own: Sequence[Lexeme]) -> StatementText:
    start, end = own[0].start, own[-1].end
    moved = tuple(one._replace(start=one.start - start, end=one.end - start) for one in own)
    return StatementText(text[start:end], start, moved)


def with_literals(statement: StatementText, literals: Sequence[str]) -> str:
    """The statement with literals in the places of its parameters; `$1` is the first."""
    parts, place = [], 0
    for lexeme in statement.lexemes:
        if lexeme.kind == "parameter":
            parts += [statement.text[place : lexeme.start], literals[int(lexeme.text) - 1]]
            place = lexeme.end
    return "".join([*parts, statement.text[place:]])


def place_before(statement: StatementText, literals: Sequence[str], place: int) -> int:
    """The place in the statement that a place in its text with literals comes from."""
    moved = 0
    for lexeme in statement.lexemes:
        if lexeme.kind == "parameter" and lexeme.start + moved < place:
            length = len(literals[int(lexeme.text) - 1])
            if place < lexeme.start + moved + length:
                return lexeme.start
            moved += length - (lexeme.end - lexeme.start)
    return place - moved


def adapted(statement: StatementText) -> StatementText:
    """The statement without what clients of PostgreSQL write and Headrace SQL does not have.

    `public.name` is `name`, since there is one schema here; `LIMIT 3::INTEGER` is `LIMIT 3`. Spaces take the place of
    what goes, so that places in the text stay.
    """
    text, own = statement.text, statement.lexemes
    gone: set[int] = set()
    for place in range(len(own) - 2):
        words = [one.text for one in own[place : place + 5]]
        if words[:2] == ["public", "."] and _is_name(own[place]) and _is_name(own[place + 2]):
            gone |= {place, place + 1}
        if words[0] in ("limit", "offset") and words[2:4] == [":", ":"] and len(words) == 5:
            gone |= {place + 2, place + 3, place + 4}
    for place in gone:
        one = own[place]
        text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
    kept = tuple(one for place, one in enumerate(own) if place not in gone)
    return StatementText(text, statement.start, kept) if gone else statement


def _is_name(lexeme: Lexeme) -> bool:
    return lexeme.kind in ("name", "quoted")
