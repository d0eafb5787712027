"""Print expressions, names and literals; see `printer` for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import singledispatch
from typing import Any

from headrace.sql import syntax as s
from headrace.sql.tables import RESERVED

__all__ = [
    "LINE_BREAK",
    "clause",
    "clauses",
    "enclosed",
    "indented",
    "lines",
    "listed",
    "quoted",
    "text",
    "window_text",
    "words",
    "writes",
    "written_name",
    "written_type",
]

#: Types that are more than a name.
_TYPE = re.compile(
    r"[A-Za-z]\w*\(\d+(?:,\d+)?\)(?: WITH(?:OUT)?(?: LOCAL)? TIME ZONE)?"
    r"|DOUBLE PRECISION|INTERVAL [A-Z ]+|(?:ARRAY|STRUCT)<.*>"
)
_CALENDAR = frozenset(("month", "quarter", "year"))
_BARE = re.compile(r"[^\W\d]\w*")
LINE_BREAK = "\0"  # no text has this character
_AS_CALL = frozenset({"CAST", "EXISTS", "TRY_CAST", "VALUES"})  # before a parenthesis these are not names
_AS_BASE = frozenset({"ACTIVE", "PARTITION", "RANGE", "ROWS", "SLIDE", "UNBOUNDED"})  # nor are these in OVER

_LEVELS = (
    ("OR",), ("AND",), ("NOT",), ("=", "<>", "<", "<=", ">", ">="),
    ("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-", "||"), ("*", "/", "%"),
)  # fmt: skip
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_COMPARISON, _SIGN, _POSTFIX, _PRIMARY = _LEVEL["="], len(_LEVELS), len(_LEVELS) + 1, len(_LEVELS) + 2
_LEVEL |= {"->": _POSTFIX, "->>": _POSTFIX}


@singledispatch
def text(part: Any) -> str:
    """The text of a part."""
    raise TypeError(f"{type(part).__name__} has no text")


def writes(kind: type[Any]) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Marks the function that writes parts of this kind."""
    return text.register(kind)


def listed(parts: Iterable[s.Part]) -> str:
    """Parts with commas between them."""
    return ", ".join(text(part) for part in parts)


def words(*given: str) -> str:
    """Words with a space between them, without those that are empty."""
    return " ".join(word for word in given if word)


def lines(*given: str) -> str:
    """Lines, without those that are empty."""
    return "\n".join(line for line in given if line)


def clause(keyword: str, part: s.Part | None) -> str:
    """A keyword and its part, or nothing if there is none."""
    return f"{keyword} {text(part)}" if part is not None else ""


def clauses(keyword: str, parts: tuple[Any, ...]) -> str:
    """A keyword and its parts, or nothing if there are none."""
    return f"{keyword} {listed(parts)}" if parts else ""


def indented(lines: str) -> str:
    """Lines, moved to the right."""
    return "\n".join(f"    {line}" for line in lines.split("\n"))


# ---- names and literals


def written_name(name: s.Name, keywords: frozenset[str] = frozenset()) -> str:
    """A name, in quotes if it is ambiguous; `keywords` are those of its place."""
    word = name.text.upper()
    if _BARE.fullmatch(name.text) and word not in RESERVED and word not in keywords:
        return name.text
    return enclosed(name.text, '"')


def enclosed(value: str, quote: str) -> str:
    """A text in quotes. Its line breaks are masked until the end, so that they are not indented."""
    return quote + value.replace(quote, quote * 2).replace("\n", LINE_BREAK) + quote


def quoted(value: str) -> str:
    """A text in single quotes."""
    return enclosed(value, "'")


text.register(s.Name, written_name)


@writes(s.Number)
def _(part: s.Number) -> str:
    return repr(part.value)


@writes(s.Text)
def _(part: s.Text) -> str:
    return quoted(part.value)


@writes(s.Value)
def _(part: s.Value) -> str:
    return "NULL" if part.value is None else str(part.value).upper()


@writes(s.DateTime)
def _(part: s.DateTime) -> str:
    return f"DATETIME {quoted(part.text)}"


@writes(s.TypedText)
def _(part: s.TypedText) -> str:
    return f"{part.kind} {quoted(part.text)}"


def written_type(name: s.Name) -> str:
    """The name of a type, with its parameters."""
    return name.text if _TYPE.fullmatch(name.text) else written_name(name)


@writes(s.Duration)
def _(part: s.Duration) -> str:
    written = " ".join(f"{Decimal(repr(number)):f} {unit}" for number, unit in part.amounts) or "FOREVER"
    months = any(unit.lower().rstrip("s") in _CALENDAR for _, unit in part.amounts)
    return f"INTERVAL {quoted(written)}" if part.interval or (months and len(part.amounts) > 1) else written


@writes(s.Column)
def _(part: s.Column) -> str:
    return written_name(part.name) if part.stream is None else f"{written_name(part.stream)}.{written_name(part.name)}"


@writes(s.Field)
def _(part: s.Field) -> str:
    return f"({text(part.value)}).{written_name(part.name)}"


@writes(s.Star)
def _(part: s.Star) -> str:
    return "*" if part.stream is None else f"{written_name(part.stream)}.*"


# ---- expressions


def _level(part: s.Expression) -> int:
    """The precedence of an expression."""
    if isinstance(part, s.Binary):
        return _LEVEL[part.operator]
    if isinstance(part, s.Unary):
        return _LEVEL.get(part.operator, _SIGN) if part.operator == "NOT" else _SIGN
    if isinstance(part, s.Element):
        return _POSTFIX
    compared = s.Between | s.In | s.InQuery | s.IsDistinct | s.IsJson | s.IsNull | s.Like | s.Quantified
    return _COMPARISON if isinstance(part, compared) else _PRIMARY


def _at_least(level: int, part: s.Expression) -> str:
    return text(part) if _level(part) >= level else f"({text(part)})"


def _negated(part: Any) -> str:
    return "NOT " if part.negated else ""


@writes(s.Unary)
def _(part: s.Unary) -> str:
    if part.operator == "NOT":
        return f"NOT {_at_least(_LEVEL['NOT'], part.value)}"
    value = _at_least(_SIGN, part.value)
    gap = " " if value.startswith(part.operator) else ""  # two minus signs in a row would begin a comment
    return f"{part.operator}{gap}{value}"


@writes(s.Binary)
def _(part: s.Binary) -> str:
    level = _LEVEL[part.operator]
    # Comparisons do not chain; everything else groups from the left.
    left = _at_least(level + 1 if level == _COMPARISON else level, part.left)
    if level == _POSTFIX:  # a text or a number, which may have a minus sign
        return f"{left} {part.operator} {text(part.right)}"
    return f"{left} {part.operator} {_at_least(level + 1, part.right)}"


@writes(s.Between)
def _(part: s.Between) -> str:
    value, low, high = (_at_least(_COMPARISON + 1, each) for each in (part.value, part.low, part.high))
    return f"{value} {_negated(part)}BETWEEN {low} AND {high}"


@writes(s.Row)
def _(part: s.Row) -> str:
    return f"({listed(part.values)})"


@writes(s.In)
def _(part: s.In) -> str:
    return f"{_at_least(_COMPARISON + 1, part.value)} {_negated(part)}IN ({listed(part.options)})"


def _in_line(query: s.Query) -> str:
    return re.sub(r"\n\s*", " ", text(query))  # line breaks in texts are masked


@writes(s.InQuery)
def _(part: s.InQuery) -> str:
    return f"{_at_least(_COMPARISON + 1, part.value)} {_negated(part)}IN ({_in_line(part.query)})"


@writes(s.Quantified)
def _(part: s.Quantified) -> str:
    word = "ALL" if part.all else "ANY"
    return f"{_at_least(_COMPARISON + 1, part.value)} {part.operator} {word} ({_in_line(part.query)})"


@writes(s.Exists)
def _(part: s.Exists) -> str:
    return f"EXISTS ({_in_line(part.query)})"


@writes(s.ScalarQuery)
def _(part: s.ScalarQuery) -> str:
    return f"({_in_line(part.query)})"


@writes(s.IsNull)
def _(part: s.IsNull) -> str:
    return f"{_at_least(_COMPARISON + 1, part.value)} IS {_negated(part)}{part.what}"


@writes(s.IsDistinct)
def _(part: s.IsDistinct) -> str:
    left, right = (_at_least(_COMPARISON + 1, one) for one in (part.left, part.right))
    return f"{left} IS {_negated(part)}DISTINCT FROM {right}"


@writes(s.IsJson)
def _(part: s.IsJson) -> str:
    kind = "" if part.kind == "value" else part.kind.upper()
    return words(f"{_at_least(_COMPARISON + 1, part.value)} IS {_negated(part)}JSON", kind)


@writes(s.Element)
def _(part: s.Element) -> str:
    return f"{_at_least(_POSTFIX, part.value)}[{text(part.place)}]"


@writes(s.Like)
def _(part: s.Like) -> str:
    value, pattern = (_at_least(_COMPARISON + 1, each) for each in (part.value, part.pattern))
    return f"{value} {_negated(part)}{part.operator} {pattern}"


@writes(s.Case)
def _(part: s.Case) -> str:
    branches = (f"WHEN {text(condition)} THEN {text(value)}" for condition, value in part.branches)
    subject = text(part.subject) if part.subject is not None else ""
    return words("CASE", subject, *branches, clause("ELSE", part.default), "END")


@writes(s.Cast)
def _(part: s.Cast) -> str:
    return f"CAST({text(part.value)} AS {written_type(part.type)})"


@writes(s.Named)
def _(part: s.Named) -> str:
    return f"{written_name(part.name)} => {text(part.value)}"


@writes(s.Over)
def _(part: s.Over) -> str:
    if part == s.Over(base=part.base) and part.base is not None:
        return f"OVER {written_name(part.base)}"
    return f"OVER ({window_text(part)})"


def window_text(part: s.Over) -> str:
    """What stands in the parentheses of OVER and WINDOW."""
    base = written_name(part.base, _AS_BASE) if part.base is not None else ""
    frame = "" if part.whole else "UNBOUNDED PRECEDING"
    if part.between:
        frame = f"{part.frame.upper()} BETWEEN {text(part.between[0])} AND {text(part.between[1])}"
    elif part.frame != "unbounded":
        frame = f"{part.frame.upper()} {text(part.size)} PRECEDING"
    slide, active = clause("SLIDE", part.slide), "ACTIVE EXPIRATION" if part.active else ""
    return words(base, clauses("PARTITION BY", part.partition), clauses("ORDER BY", part.order), frame, slide, active)


@writes(s.FrameBound)
def _(part: s.FrameBound) -> str:
    if part.kind == "current":
        return "CURRENT ROW"
    return f"{'UNBOUNDED' if part.size is None else text(part.size)} {part.kind.upper()}"


@writes(s.OrderKey)
def _(part: s.OrderKey) -> str:
    nulls = f"NULLS {part.nulls.upper()}" if part.nulls else ""
    return words(text(part.value), "DESC" if part.descending else "", nulls)


def _is_array(part: s.Call) -> bool:
    """Whether a call is written `ARRAY[…]`."""
    more = part.named or part.distinct or part.over or any(isinstance(one, s.Star) for one in part.arguments)
    return [name.text for name in part.name] == ["array"] and bool(part.arguments) and not more


@writes(s.Call)
def _(part: s.Call) -> str:
    if _is_array(part):
        return f"ARRAY[{listed(part.arguments)}]"
    name = ".".join(written_name(each, _AS_CALL) for each in part.name)
    distinct = "DISTINCT " if part.distinct else ""
    arguments = words(f"{distinct}{listed((*part.arguments, *part.named))}", clauses("ORDER BY", part.order))
    filtered = f"FILTER (WHERE {text(part.filter)})" if part.filter is not None else ""
    return words(f"{name}({arguments})", filtered, text(part.over) if part.over else "")
