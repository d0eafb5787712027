"""Build the nodes of expressions, names and literals; see `build` for the other rules and the method."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn, TypeVar

from headrace.errors import SqlError
from headrace.sql import syntax as s
from headrace.sql.syntax import Span

__all__ = ["Clause", "ExpressionBuilder", "Token", "clause", "clauses", "unquoted"]

P = TypeVar("P", bound=s.Part)
MAX_NAME = 255
MAX_DIGITS = 400  # of a number: more than any type holds, fewer than Python's own limit
_OPERATORS = {"==": "=", "!=": "<>"}
_AMOUNT = re.compile(r"([\d.]+)\s*([^\W\d]+)")
_TRUTH = {"TRUE": True, "FALSE": False, "NULL": None}


class Token(NamedTuple):
    """A word, literal or sign of the text; `kind` is its terminal in the grammar."""

    kind: str
    text: str
    start: int
    end: int


class Clause(NamedTuple):
    """A value for a field of the node that this clause belongs to."""

    field: str
    value: Any
    at: Span


def clause(field: str) -> Any:
    """A method for rules that fill a field with the one value they have."""
    return lambda _, at, value: Clause(field, value, at)


def clauses(field: str) -> Any:
    """A method for rules that fill a field with all their values."""
    return lambda _, at, *values: Clause(field, values, at)


def unquoted(text: str) -> str:
    """A text or name without its quotes; doubled quotes inside become single."""
    return text[1:-1].replace(text[0] * 2, text[0])


class ExpressionBuilder:
    """Builds the expressions of one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, message: str, at: Span, **more: Any) -> NoReturn:
        """Raise an error for this place."""
        raise SqlError.of(message, self.text, at, **more)

    def make(self, kind: type[P], at: Span, given: Iterable[Clause], /, **values: Any) -> P:
        """A node from its clauses; no clause may occur twice."""
        for part in given:
            if values.get(part.field) is not None:
                self.fail("this was said already", part.at, instead="say it once")
            values[part.field] = part.value
        return kind(**values, at=at)

    def word(self, _: Span, token: Token) -> str:
        """For rules that choose one of several keywords or signs."""
        return token.text.upper()

    late_policy = bad_rows_policy = console = drop_kind = show_what = liveliness = all = emit_mode = tick_mode = word
    distinct = direction = count_edge = clip_policy = stamp_policy = not_ = match = pipe = caret = ampersand = word
    compare = shift_sign = add_sign = times_sign = unary_sign = stage_name = json_sign = json_kind = word

    # ---- operators

    def _binary(self, operator: str, at: Span, left: s.Expression, right: s.Expression) -> s.Binary:
        return s.Binary(_OPERATORS.get(operator, operator), left, right, at=at)

    def binary(self, at: Span, left: s.Expression, operator: str, right: s.Expression) -> s.Binary:
        return self._binary(operator, at, left, right)

    def binary_or(self, at: Span, left: s.Expression, right: s.Expression) -> s.Binary:
        return self._binary("OR", at, left, right)

    def binary_and(self, at: Span, left: s.Expression, right: s.Expression) -> s.Binary:
        return self._binary("AND", at, left, right)

    def negate(self, at: Span, value: s.Expression) -> s.Unary:
        return s.Unary("NOT", value, at=at)

    def unary(self, at: Span, operator: str, value: s.Expression) -> s.Unary:
        return s.Unary(operator, value, at=at)

    def is_null(self, at: Span, value: s.Expression, *negated: str) -> s.IsNull:
        return s.IsNull(value, negated=bool(negated), at=at)

    def is_json(self, at: Span, value: s.Expression, *rest: str) -> s.IsJson:
        kind = rest[-1].lower() if rest and rest[-1] != "NOT" else "value"
        return s.IsJson(value, kind, negated="NOT" in rest, at=at)  # type: ignore[arg-type]

    def in_list(self, at: Span, value: s.Expression, *rest: Any) -> s.In:
        negated = rest[0] == "NOT"
        return s.In(value, rest[1:] if negated else rest, negated=negated, at=at)

    def between(self, at: Span, value: s.Expression, *rest: Any) -> s.Between:
        return s.Between(value, rest[-2], rest[-1], negated=len(rest) > 2, at=at)

    def like(self, at: Span, value: s.Expression, *rest: Any) -> s.Like:
        operator = "LIKE" if rest[-2] == "LIKE" else "REGEXP"
        return s.Like(value, rest[-1], operator, negated=len(rest) > 2, at=at)  # type: ignore[arg-type]

    def parenthesized(self, _: Span, value: s.Expression) -> s.Expression:
        return value

    # ---- case, cast, calls

    def case(self, at: Span, *parts: Any) -> s.Case:
        branches = tuple(part for part in parts if isinstance(part, tuple) and not isinstance(part, Clause))
        subject = parts[0] if isinstance(parts[0], s.Expression) else None
        default = [part for part in parts if isinstance(part, Clause)]
        return self.make(s.Case, at, default, branches=branches, subject=subject)

    def when(self, _: Span, condition: s.Expression, value: s.Expression) -> tuple[s.Expression, s.Expression]:
        return condition, value

    else_ = clause("default")

    def cast(self, at: Span, _: Token, value: s.Expression, type: s.Name) -> s.Cast:
        return s.Cast(value, type, at=at)

    def call(self, at: Span, path: tuple[s.Name, ...], *parts: Any) -> s.Call | s.Cast:
        if parts and isinstance(parts[-1], Clause) and parts[-1].field == "returning":
            return self._returning(self.call(at, path, *parts[:-1]), parts[-1])
        over = [part for part in parts if isinstance(part, Clause)]
        plain, named = self.arguments(parts)
        distinct = "DISTINCT" in parts[:1]
        return self.make(s.Call, at, over, name=path, arguments=plain, named=named, distinct=distinct)

    def _returning(self, call: s.Call | s.Cast, type: Clause) -> s.Cast:
        """`json_value(x, '$.a' RETURNING LONG)`, which is a cast."""
        assert isinstance(call, s.Call)
        if [name.text.lower() for name in call.name] != ["json_value"]:
            self.fail("RETURNING is of json_value", type.at, allowed="json_value(text, path RETURNING type)",
                      instead="CAST(… AS type)")  # fmt: skip
        return s.Cast(call, type.value, at=call.at)

    returning = clause("returning")

    def arguments(self, parts: Iterable[Any]) -> tuple[tuple[s.Expression, ...], tuple[s.Named, ...]]:
        """Arguments by position and by name."""
        parts = tuple(parts)
        plain = tuple(part for part in parts if isinstance(part, s.Expression))
        return plain, tuple(part for part in parts if isinstance(part, s.Named))

    def keyword_name(self, at: Span, token: Token) -> s.Name:
        return s.Name(token.text, at=at)

    def named(self, at: Span, name: s.Name, value: s.Expression) -> s.Named:
        return s.Named(name, value, at=at)

    def over(self, at: Span, *given: Clause) -> Clause:
        flat = [c for part in given for c in (part.value if part.field == "frame and size" else (part,))]
        return Clause("over", self.make(s.Over, at, flat), at)

    partition = clauses("partition")

    def rows_frame(self, at: Span, rows: Token) -> Clause:
        return self._frame("rows", at, s.Number(self.whole(rows), at=(rows.start, rows.end)))

    def range_frame(self, at: Span, size: Token) -> Clause:
        return self._frame("range", at, self.amount((size.start, size.end), size))

    def unbounded_frame(self, at: Span) -> Clause:
        return Clause("frame", "unbounded", at)

    def _frame(self, kind: str, at: Span, size: s.Expression) -> Clause:
        return Clause("frame and size", (Clause("frame", kind, at), Clause("size", size, at)), at)

    def slide(self, at: Span, size: Token) -> Clause:
        return Clause("slide", self.amount((size.start, size.end), size), at)

    def active(self, at: Span) -> Clause:
        return Clause("active", value=True, at=at)

    # ---- names

    def name(self, at: Span, token: Token) -> s.Name:
        if token.kind == "NAME":
            return self._name(token.text, at)
        return self._name(unquoted(token.text), at, quoted=True)

    def _name(self, text: str, at: Span, *, quoted: bool = False) -> s.Name:
        if not 0 < len(text) <= MAX_NAME:
            message = f"this name has {len(text)} characters" if text else "this name is empty"
            self.fail(message, at, allowed=f"1 to {MAX_NAME} characters")
        return s.Name(text, quoted=quoted, at=at)

    def path(self, _: Span, *names: s.Name) -> tuple[s.Name, ...]:
        return names

    def column(self, at: Span, path: tuple[s.Name, ...]) -> s.Column:
        if len(path) > 2:
            self.fail("a column has at most a stream in front of it", at, allowed="column or stream.column")
        return s.Column(path[-1], path[0] if len(path) > 1 else None, at=at)

    # ---- literals

    def number(self, at: Span, token: Token) -> s.Number:
        return s.Number(self._number(token.text, at), at=at)

    def _number(self, text: str, at: Span) -> int | float:
        if len(text) > MAX_DIGITS:
            self.fail("this number is too long", at, allowed=f"{MAX_DIGITS} characters")
        if text.isdecimal():
            return int(text)
        value = float(text)
        if math.isinf(value):
            self.fail("this number is too large", at, allowed="what a DOUBLE can hold")
        return value

    def whole(self, token: Token) -> int:
        """The whole number a token is."""
        value = self._number(token.text, (token.start, token.end))
        if not isinstance(value, int):
            self.fail("this is not a whole number", (token.start, token.end), allowed="a count such as 100")
        return value

    def array(self, at: Span, _: Token, *values: s.Expression) -> s.Call:
        return s.Call((s.Name("array", at=at),), values, at=at)

    def element(self, at: Span, value: s.Expression, place: s.Expression) -> s.Element:
        return s.Element(value, place, at=at)

    def any_element(self, at: Span, value: s.Expression, operator: str, _: Token, lists: s.Expression) -> s.Call:
        if _OPERATORS.get(operator, operator) != "=":
            self.fail(f"{operator} ANY is not there", at, allowed="value = ANY (list)",
                      instead="NOT value = ANY (list) where no element may be equal")  # fmt: skip
        return s.Call((s.Name("array_contains", at=at),), (lists, value), at=at)

    def negative_number(self, at: Span, token: Token) -> s.Unary:
        return s.Unary("-", self.number((token.start, token.end), token), at=at)

    def text_literal(self, at: Span, token: Token) -> s.Text:
        return s.Text(unquoted(token.text), at=at)

    def truth(self, at: Span, token: Token) -> s.Value:
        return s.Value(_TRUTH[token.text.upper()], at=at)

    def datetime(self, at: Span, token: Token) -> s.DateTime:
        return s.DateTime(unquoted(token.text[token.text.index("'") :]), at=at)

    def duration(self, at: Span, token: Token) -> s.Duration:
        amounts = _AMOUNT.findall(token.text)
        return s.Duration(tuple((self._number(number, at), unit) for number, unit in amounts), at=at)

    duration_literal = calendar_duration = duration

    def forever(self, at: Span) -> s.Duration:
        return s.Duration((), at=at)

    def positive(self, _: Span, duration: s.Duration) -> s.Duration:
        return duration

    def negative(self, at: Span, duration: s.Duration) -> s.Unary:
        return s.Unary("-", duration, at=at)

    def amount(self, at: Span, value: s.Duration | Token) -> s.Duration | s.Number:
        """A duration, or a number in the unit of its column."""
        if isinstance(value, s.Duration):
            return value
        if value.kind == "DURATION":
            return self.duration(at, value)
        return self.number((value.start, value.end), value)
