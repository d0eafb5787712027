"""Cutting what was typed into pieces: statements, which end with a semicolon, and commands of the shell, a line each.

The cut is by the looks of the text alone, so it works while somebody is still typing: what is not closed (a text, a
comment) goes on to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["TOKENS", "Piece", "is_complete", "pieces"]

TOKENS = re.compile(
    r"""
      (?P<space>   \s+ )
    | (?P<comment> --[^\n]* | /\* (?: [^*] | \*(?!/) )* (?: \*/ )? )
    | (?P<text>    ' (?: [^'] | '' )* '? )
    | (?P<quoted>  " (?: [^"] | "" )* "? | ` (?: [^`] | `` )* `? )
    | (?P<number>  \d+ (?: \.\d+ )? (?: [eE][+-]?\d+ )? )
    | (?P<word>    [^\W\d]\w* )
    | (?P<end>     ; )
    | (?P<sign>    . )
    """,
    re.VERBOSE | re.DOTALL,
)
#: Statements inside the braces of such a one end with semicolons of their own.
_HAS_BODY = re.compile(r"CREATE\s+(?:WINDOW\s+)?AGGREGATE\b", re.IGNORECASE)


@dataclass(frozen=True)
class Piece:
    """A statement, or a command of the shell; `whole` if its end has been typed."""

    text: str
    start: int
    is_command: bool
    whole: bool

    def placed(self, text: str) -> str:
        """It, as far down and as far right as it stands in the whole text, so that errors count lines as people do."""
        before = text[: self.start]
        line = before.rfind("\n") + 1
        return "\n" * before.count("\n") + " " * (self.start - line) + self.text


def pieces(text: str) -> Iterator[Piece]:
    """The pieces of a text, without those that are empty."""
    start = position = 0
    begun, open_braces = False, 0
    while position < len(text):
        token = TOKENS.match(text, position)
        assert token is not None
        kind, position = token.lastgroup, token.end()
        if kind in ("space", "comment"):
            continue
        if not begun:
            start = token.start()
            if token[0] == "\\":
                stop = text.find("\n", start)
                position = len(text) if stop < 0 else stop + 1
                yield Piece(text[start:position].strip(), start, is_command=True, whole=True)
                continue
        open_braces = max(0, open_braces + {"{": 1, "}": -1}.get(token[0], 0)) if begun else 0
        if kind != "end" or (open_braces and _HAS_BODY.match(text, start)):
            begun = True
        elif begun:
            yield Piece(text[start:position], start, is_command=False, whole=True)
            begun = False
    if begun:
        yield Piece(text[start:], start, is_command=False, whole=False)


def is_complete(text: str) -> bool:
    """Whether everything that was begun has been ended, so that it can be executed."""
    return all(piece.whole for piece in pieces(text))
