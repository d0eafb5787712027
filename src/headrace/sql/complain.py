"""Errors for texts that cannot be parsed: what was found, what is allowed there, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from headrace.errors import SqlError, without_secrets
from headrace.sql.forms import form_at
from headrace.sql.tables import END, RESERVED

if TYPE_CHECKING:
    from headrace.sql.build.expressions import Token
    from headrace.sql.parse import ParseRun

__all__ = ["complain"]

SHOWN = 12  # allowed tokens
_WORDS = {"NAME": "a name", "NUMBER": "a number", "TEXT": "a text in '…'", "DURATION": "a duration such as 10 s"}
# Covered by another word.
_OMITTED = frozenset(
    {"QUOTED", "TICKED", "DATETIME", "CAST", "EXTENT", "OVER_TEXT", "TYPED_TEXT", "TYPE_WORDS", "CALENDAR"}
    | {"TABLE_WORD", "WINDOW_FUNCTION", "QUANTIFIER", "DOLLAR", "EXTRACT", "ARRAY", "INTERVAL"}
)
#: Tokens that are words of SQL under another name.
_SPELLED = {"_VALUES": "VALUES", "_EXISTS": "EXISTS", "DIVERTED_FROM": "DIVERTED FROM", "TYPE_TAIL": "WITH TIME ZONE"}
_EXPRESSION = frozenset({"NAME", "NUMBER", "TEXT", "CASE", "TRUE", "FALSE", "NULL", "DURATION", "(", "-", "+", "~"})
_OPERATORS = frozenset(
    {"=", "==", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "|", "^", "&", "<<", ">>", "."}
    | {"AND", "OR", "IS", "NOT", "IN", "BETWEEN", "LIKE", "REGEXP", "RLIKE"}
)
_BEGINNINGS = frozenset({"CREATE", "DESCRIBE", "DROP", "EXPLAIN", "INSERT", "QUERY", "SELECT", "SET", "SHOW", "VERIFY"})
_UNITS = ("ms", "seconds", "minutes", "hours", "days", "weeks", "s", "min", "h", "d")


def complain(run: ParseRun, token: Token) -> SqlError:
    """The error for a token that the grammar cannot take where it stands."""
    allowed = run.allowed()
    place, instead = (token.start, token.end), _suggestion(run, token, allowed)
    form = form_at(run.text, token.start) if token.kind != END else None
    if form is not None:
        instead, place = form[0], (form[1], token.end)
    if token.kind == END:
        last = run.tokens[-1].end if run.tokens else 0
        place, message = (last, last), "the text ends too early" if run.tokens else "there is nothing here"
    else:
        message = f"{_shown(run.text[place[0] : place[1]])} cannot stand here"
    return SqlError.of(message, run.text, place, allowed=_listed(allowed), instead=instead)


def _shown(text: str) -> str:
    text = without_secrets(text)
    return text if len(text) <= 40 else text[:40] + "…"


def _listed(allowed: Iterable[str]) -> str:
    """The allowed tokens in words, the common before the rare."""
    rest = set(allowed) - _OMITTED
    words = []
    if rest >= _EXPRESSION:
        words.append("an expression")
        rest -= _EXPRESSION | {"NOT"}
    elif len(rest & _OPERATORS) > 10:
        rest -= _OPERATORS
        words.append("an operator")
    if END in rest:
        words.append("the end")
    words += [_WORDS[kind] for kind in _WORDS if kind in rest]
    rest -= {END, *_WORDS}
    rest = {_SPELLED.get(kind, kind) for kind in rest}
    signs, keywords = sorted(kind for kind in rest if not kind[0].isalpha()), sorted(k for k in rest if k[0].isalpha())
    words += keywords + signs
    return ", ".join(words[:SHOWN]) + (", …" if len(words) > SHOWN else "")


def _suggestion(run: ParseRun, token: Token, allowed: frozenset[str]) -> str:
    """The probable intention: a quoted name, a unit, or a keyword similar to this word or to the one before."""
    previous = run.tokens[-1] if run.tokens else None
    if ";" in allowed and run.tokens and token.text.upper() in _BEGINNINGS:
        return "a semicolon between two statements"
    if token.text.upper() in RESERVED and "NAME" in allowed:
        return f'"{token.text}", if this is a name'
    if previous is not None and previous.kind == "NUMBER" and token.kind == "NAME":
        unit = _near(token.text, _UNITS)
        return f"{previous.text} {unit}" if unit else ""
    word = _near(token.text, allowed) if token.kind == "NAME" else None
    if word:
        return f"did you mean {word}?"
    if previous is not None and previous.kind == "NAME":
        word = _near(previous.text, run.before(previous).allowed())
        return f"did you mean {word} instead of {previous.text}?" if word else ""
    return ""


def _near(word: str, kinds: Iterable[str]) -> str | None:
    keywords = {
        kind.upper(): kind for kind in kinds if kind[0].isalpha() and kind not in _OMITTED and kind not in _WORDS
    }
    found = get_close_matches(word.upper()[:40], keywords, n=1, cutoff=0.7)
    return keywords[found[0]] if found else None
