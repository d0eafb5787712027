r"""Patterns: the common part of the regular expressions of RE2 and Java, and SQL's LIKE.

Arrow and DuckDB search with RE2, Spark with Java's engine. The two accept different texts and, worse, read some equal
texts differently (`$` before a last newline, `.` and line ends, `[a[b]]`, `&&`). So a pattern is read here first, token
by token; what only one engine knows is refused when the expression is built, and the rest is printed for each engine
so that it means the same: `.` is anything but a newline, `$` the very end, `\w`, `\d`, `\s` and `\b` are ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError

__all__ = ["check_like", "check_regex", "java_regex", "like_regex", "re2_regex"]

_SPACES = r" \t\n\f\r"
_TOKEN = re.compile(
    r"""(?P<escape>\\.) | (?P<group>\(\?:|\() | (?P<close>\)) | (?P<set>\[\^?) | (?P<dot>\.) | (?P<end>\$)
      | (?P<many>(?:[*+?]|\{\d+(?:,\d*)?\})\??) | (?P<plain>[^\\()\[\]{}*+?.$])""",
    re.VERBOSE | re.DOTALL,
)
_SET_ITEM = re.compile(r"\\[dwtnrf]|\\s|\\[^A-Za-z0-9]|[^\\\[\]&]|&(?!&)", re.DOTALL)
_BOTH = {".": r"[^\n]", "$": r"\z", r"\s": f"[{_SPACES}]", r"\S": f"[^{_SPACES}]"}
_JAVA = _BOTH | {
    r"\b": r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))",
    r"\B": r"(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))",
}
_ESCAPES = frozenset("dDwWsSbBtnrf")
_ALLOWED = r"text, . ^ $ | ( ) (?: ) [ ] * + ? {m,n}, lazy with ?, and \d \w \s \b \t \n \r \f or \ before punctuation"


def re2_regex(pattern: str) -> str:
    """`pattern` for RE2 (Arrow, DuckDB)."""
    return "".join(_BOTH.get(token, token) for token in _tokens(pattern))


def java_regex(pattern: str) -> str:
    """`pattern` for Java (Spark), finding what `re2_regex` finds."""
    return "".join(_JAVA.get(token, token) for token in _tokens(pattern))


def check_regex(pattern: str) -> None:
    """Refuse a pattern that the engines do not all know."""
    try:
        pc.match_substring_regex(pa.array([""]), re2_regex(pattern))
    except pa.ArrowInvalid as error:
        raise _refused(pattern, str(error)) from None


def _tokens(pattern: str) -> Iterator[str]:
    position, after_many = 0, False
    while position < len(pattern):
        found = _TOKEN.match(pattern, position)
        if found is None:
            raise _refused(pattern, f"{pattern[position:]!r} cannot be read")
        kind, token = found.lastgroup, found[0]
        if kind == "escape" and token[1].isalnum() and token[1] not in _ESCAPES:
            raise _refused(pattern, f"{token!r} is not known to every engine")
        if kind == "group" and token == "(" and pattern.startswith("(?", position):
            raise _refused(pattern, f"{pattern[position : position + 3]!r} is not known to every engine")
        if kind == "many" and after_many:
            raise _refused(pattern, f"{token!r} follows another repetition")
        if kind == "set":
            token = _set(pattern, position, token)
        yield token
        position += found.end() - found.start() if kind != "set" else _set_length(pattern, position)
        after_many = kind == "many"


def _set(pattern: str, start: int, opening: str) -> str:
    r"""The set that opens at `start`, with its `\s` written out."""
    body = pattern[start + len(opening) : start + _set_length(pattern, start) - 1]
    return opening + re.sub(r"(\\.)", lambda m: _SPACES if m[1] == r"\s" else m[1], body, flags=re.DOTALL) + "]"


def _set_length(pattern: str, start: int) -> int:
    position = start + (2 if pattern.startswith("[^", start) else 1)
    first = position
    while position < len(pattern) and pattern[position] != "]":
        item = _SET_ITEM.match(pattern, position)
        if item is None:
            raise _refused(pattern, rf"inside [ ] write \ before {pattern[position]!r}")
        position = item.end()
    if position >= len(pattern) or position == first:
        raise _refused(pattern, "a [ ] is empty or not closed")
    return position + 1 - start


def _refused(pattern: str, why: str) -> ExpressionError:
    return ExpressionError(f"this regular expression cannot be used: {why}", given=pattern, allowed=_ALLOWED)


def check_like(pattern: str) -> None:
    """Refuse a LIKE pattern with a backslash before anything but `%`, `_` or a backslash."""
    _translate_like(pattern, str)


def like_regex(pattern: str) -> str:
    """A LIKE pattern as an RE2 expression for the whole text; `%` and `_` match newlines too."""
    return rf"(?s)\A{_translate_like(pattern, re.escape)}\z"


def _translate_like(pattern: str, quote: Callable[[str], str]) -> str:
    parts, position = [], 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            position += 1
            char = pattern[position : position + 1]
            if char not in ("%", "_", "\\"):
                raise ExpressionError(
                    "a backslash in a LIKE pattern must stand before %, _ or a backslash",
                    given=pattern,
                    allowed=r"\%  \_  \\",
                )
            parts.append(quote(char))
        else:
            parts.append({"%": ".*", "_": "."}.get(char) or quote(char))
        position += 1
    return "".join(parts)
