"""Colours while typing: classify the words of a text by their form."""

from __future__ import annotations

import re
from collections.abc import Callable

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from headrace.cli.sql.pieces import TOKENS
from headrace.sql.bind.expressions import SQL_AGGREGATES, SQL_FUNCTIONS
from headrace.sql.tables import tables

__all__ = ["STYLE", "SqlLexer", "colour_lines"]

STYLE = Style.from_dict(
    {
        "keyword": "ansiblue bold",
        "function": "ansicyan",
        "text": "ansigreen",
        "number": "ansimagenta",
        "comment": "ansibrightblack italic",
        "command": "ansiyellow",
        "bottom-toolbar": "noreverse ansibrightblack",
        "prompt": "ansibrightblack",
    }
)
_FUNCTIONS = frozenset((*SQL_FUNCTIONS, *SQL_AGGREGATES))
_CALLED = re.compile(r"\s*\(")


class SqlLexer(Lexer):
    """Gives every line of a text its styles."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """A function from the number of a line to its parts."""
        lines = colour_lines(document.text)
        return lambda number: lines[number] if number < len(lines) else []


def colour_lines(text: str) -> list[StyleAndTextTuples]:
    """The parts of every line of a text, each with its style."""
    lines: list[StyleAndTextTuples] = [[]]
    is_command = text.lstrip().startswith("\\")
    for token in TOKENS.finditer(text):
        style = "class:command" if is_command else _style(token)
        first, *rest = token[0].split("\n")
        lines[-1].append((style, first))
        lines += [[(style, line)] for line in rest]
    return lines


def _style(token: re.Match[str]) -> str:
    kind, word = token.lastgroup, token[0]
    if kind in ("text", "number", "comment"):
        return f"class:{kind}"
    if kind != "word":
        return ""
    if word.lower() in _FUNCTIONS and _CALLED.match(token.string, token.end()):
        return "class:function"
    return "class:keyword" if word.upper() in tables().lexemes.words else ""
