"""Cut input into pieces: statements, which end with a semicolon, and shell commands, one text line each.

The cut needs no grammar, so it works on unfinished input: an unclosed text or comment extends to the end.
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
#: Words that are commands without a backslash, where a statement could begin, as in other shells.
_BARE = re.compile(r"(?P<name>help|exit|quit|clear)[ \t]*(?:;[ \t]*)?(?:\n|\Z)", re.IGNORECASE)
#: In these statements, the statements inside braces end with semicolons of their own.
_HAS_BODY = re.compile(r"CREATE\s+(?:WINDOW\s+)?AGGREGATE\b", re.IGNORECASE)


@dataclass(frozen=True)
class Piece:
    """A statement or a shell command, some of which need no backslash; `complete` if its end has been typed."""

    text: str
    start: int
    is_command: bool
    complete: bool

    def placed(self, text: str) -> str:
        """The piece, padded to its line and column in the full text, so that errors show the user's positions."""
        before = text[: self.start]
        line = before.rfind("\n") + 1
        return "\n" * before.count("\n") + " " * (self.start - line) + self.text


def pieces(text: str) -> Iterator[Piece]:
    """The pieces of a text, without empty ones."""
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
            if bare := _BARE.match(text, start):
                position = bare.end()
                yield Piece(bare["name"], start, is_command=True, complete=True)
                continue
            if token[0] == "\\":
                stop = text.find("\n", start)
                position = len(text) if stop < 0 else stop + 1
                yield Piece(text[start:position].strip(), start, is_command=True, complete=True)
                continue
        open_braces = max(0, open_braces + {"{": 1, "}": -1}.get(token[0], 0)) if begun else 0
        if kind != "end" or (open_braces and _HAS_BODY.match(text, start)):
            begun = True
        elif begun:
            yield Piece(text[start:position], start, is_command=False, complete=True)
            begun = False
    if begun:
        yield Piece(text[start:], start, is_command=False, complete=False)


def is_complete(text: str) -> bool:
    """Whether all pieces are complete, so that the text can be executed."""
    return all(piece.complete for piece in pieces(text))
