"""Build the nodes of expressions, names and literals; see `build` for the other rules and the method."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, TypeVar

from headrace.errors import SqlError
from headrace.sql import syntax as s
from headrace.sql.build.spelled import in_any_case, interval_amounts, json_steps, similar
from headrace.sql.syntax import Span

__all__ = ["Clause", "ExpressionBuilder", "Token", "clause", "clauses", "unquoted"]

P = TypeVar("P", bound=s.Part)
MAX_NAME = 255
MAX_DIGITS = 400  # of a number: more than any type holds, fewer than Python's own limit
_OPERATORS = {"==": "=", "!=": "<>"}
_AMOUNT = re.compile(r"([\d.]+)\s*([^\W\d]+)")
_TRUTH = {"TRUE": True, "FALSE": False, "NULL": None}


#: The parts of a time, and the functions that give them.
_PARTS = {
    "year": "year", "month": "month", "day": "day", "hour": "hour", "minute": "minute", "second": "second",
    "isodow": "day_of_week", "doy": "day_of_year", "epoch": "epoch", "quarter": "quarter", "week": "week", "dow": "dow",
    "isoyear": "isoyear", "decade": "decade", "century": "century",
}  # fmt: skip


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

    late_policy = bad_rows_policy = console = show_what = show_of = liveliness = emit_mode = tick_mode = word
    distinct = direction = count_edge = clip_policy = stamp_policy = not_ = match = pipe = caret = ampersand = word
    compare = shift_sign = add_sign = times_sign = unary_sign = stage_name = json_sign = json_kind = word
    regex_sign = json_way_sign = word
    truth_value = trim_side = frame_unit = word

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

    def is_truth(self, at: Span, value: s.Expression, *rest: str) -> s.IsNull:
        return s.IsNull(value, len(rest) > 1, rest[-1], at=at)  # type: ignore[arg-type]

    def is_distinct(self, at: Span, left: s.Expression, *rest: Any) -> s.IsDistinct:
        return s.IsDistinct(left, rest[-1], negated=len(rest) > 1, at=at)

    def in_list(self, at: Span, value: s.Expression, *rest: Any) -> s.In:
        negated = rest[0] == "NOT"
        return s.In(value, rest[1:] if negated else rest, negated=negated, at=at)

    def between(self, at: Span, value: s.Expression, *rest: Any) -> s.Between:
        return s.Between(value, rest[-2], rest[-1], negated=len(rest) > 2, at=at)

    def like(self, at: Span, value: s.Expression, *rest: Any) -> s.Like:
        operator = rest[-2] if rest[-2] in ("LIKE", "ILIKE") else "REGEXP"
        return s.Like(value, rest[-1], operator, negated=len(rest) > 2, at=at)  # type: ignore[arg-type]

    def regex_match(self, at: Span, value: s.Expression, sign: str, pattern: s.Expression) -> s.Like:
        """`x ~ 'a'`, `x ~* 'a'`, `x !~ 'a'`, `x !~* 'a'`."""
        if sign.endswith("*"):
            if not isinstance(pattern, s.Text):
                self.fail(f"{sign} takes a pattern as a text", pattern.at, instead="lower(x) ~ lower(y)")
            pattern = s.Text(in_any_case(pattern.value), at=pattern.at)
        return s.Like(value, pattern, "REGEXP", negated=sign.startswith("!"), at=at)

    def similar_to(self, at: Span, value: s.Expression, *rest: Any) -> s.Like:
        pattern = rest[-1]
        found = similar(pattern.value) if isinstance(pattern, s.Text) else None
        if found is None:
            self.fail(
                "SIMILAR TO takes a pattern as a text", pattern.at, instead="x SIMILAR TO '(a|b)%', or x REGEXP y"
            )
        return s.Like(value, s.Text(found, at=pattern.at), "REGEXP", negated=len(rest) > 1, at=at)

    def json_way(self, at: Span, value: s.Expression, sign: str, token: Token) -> s.Expression:
        """`x #> '{a,0}'`, `x #>> '{a,0}'`: steps of `->`, the last of `->>` if the text is meant."""
        steps = json_steps(unquoted(token.text))
        if steps is None:
            self.fail("this is no path", at, given=token.text, instead="x #> '{a,0,b}', or x -> 'a' -> 0 -> 'b'")
        for number, step in enumerate(steps):
            last = sign == "#>>" and number == len(steps) - 1
            key: s.Expression = s.Text(step, at=at) if isinstance(step, str) else s.Number(abs(step), at=at)
            key = s.Unary("-", key, at=at) if isinstance(step, int) and step < 0 else key
            value = s.Binary("->>" if last else "->", value, key, at=at)
        return value

    def row(self, at: Span, *values: s.Expression) -> s.Row:
        return s.Row(values, at=at)

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

    def call_from(self, at: Span, path: tuple[s.Name, ...], value: s.Expression, *places: s.Expression) -> s.Call:
        """`substring(x FROM 2 FOR 3)`, `trim(' ' FROM x)`."""
        name = path[-1].text.lower()
        if name == "trim" and len(places) == 1:
            return self._trim(at, path[-1], "trim", value, places[0])
        if name not in ("substring", "substr"):
            self.fail(f"{name} has no FROM", at, allowed="substring(x FROM 2 FOR 3), trim(' ' FROM x)")
        return s.Call(path, (value, *places), at=at)

    def trimmed(self, at: Span, path: tuple[s.Name, ...], side: str, *rest: Any) -> s.Call:
        """`trim(LEADING FROM x)`."""
        if path[-1].text.lower() != "trim":
            self.fail(f"{path[-1].text} has no {side}", at, allowed="trim(LEADING ' ' FROM x)")
        letters = self.text_literal(at, rest[0]) if len(rest) > 1 else s.Text(" ", at=at)
        function = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[side]
        return self._trim(at, path[-1], function, letters, rest[-1])

    def _trim(self, at: Span, name: s.Name, function: str, letters: s.Expression, value: s.Expression) -> s.Call:
        if letters != s.Text(" "):
            self.fail("only spaces are trimmed", letters.at, allowed="' '", instead="replace(x, 'y', '')")
        return s.Call((s.Name(function, at=name.at),), (value,), at=at)

    def call_in(self, at: Span, path: tuple[s.Name, ...], sought: s.Expression, place: Any) -> s.Call:
        """`position('b' IN x)`."""
        if path[-1].text.lower() != "position":
            self.fail(f"{path[-1].text} has no IN", at, allowed="position('b' IN x)")
        text = place if isinstance(place, s.Expression) else self.text_literal((place.start, place.end), place)
        return s.Call(path, (sought, text), at=at)

    def short_cast(self, at: Span, value: s.Expression, type: s.Name) -> s.Cast:
        return s.Cast(value, type, at=at)

    def extract(self, at: Span, _: Token, part: s.Name, value: s.Expression) -> s.Call:
        """The function of a part of a time: `EXTRACT(YEAR FROM t)` is `year(t)`."""
        function = _PARTS.get(part.text.lower())
        if function is None:
            self.fail(f"a time has no {part.text}", part.at, given=part.text, allowed=", ".join(_PARTS), instead="YEAR")
        return s.Call((s.Name(function, at=part.at),), (value,), at=at)

    # ---- types

    def scalar_type(self, at: Span, name: s.Name, *size: str) -> s.Name:
        return s.Name(f"{name.text}{size[0]}", at=at) if size else name

    def tailed_type(self, at: Span, name: s.Name, *rest: Any) -> s.Name:
        *size, tail = rest
        return s.Name(f"{name.text}{''.join(size)} {' '.join(tail.text.upper().split())}", at=at)

    def worded_type(self, at: Span, token: Token, *size: str) -> s.Name:
        return s.Name(" ".join(token.text.upper().split()) + "".join(size), at=at)

    def nested_type(self, at: Span, name: s.Name, *parts: str) -> s.Name:
        family = "STRUCT" if name.text.upper() == "ROW" else name.text.upper()
        return s.Name(f"{family}<{', '.join(parts)}>", at=at)

    def list_type(self, at: Span, element: s.Name) -> s.Name:
        return s.Name(f"ARRAY<{element.text}>", at=at)

    def type_size(self, _: Span, *numbers: Token) -> str:
        return f"({','.join(str(self.whole(number)) for number in numbers)})"

    def type_part(self, _: Span, type: s.Name | str) -> str:
        return type if isinstance(type, str) else type.text

    def type_field(self, _: Span, name: s.Name, type: s.Name) -> str:
        text = name.text if name.text.isidentifier() else '"' + name.text.replace('"', '""') + '"'
        return f"{text} {type.text}"

    def call(self, at: Span, path: tuple[s.Name, ...], *parts: Any) -> s.Call | s.Cast:
        if parts and isinstance(parts[-1], Clause) and parts[-1].field == "returning":
            return self._returning(self.call(at, path, *parts[:-1]), parts[-1])
        given = [part for part in parts if isinstance(part, Clause)]
        plain, named = self.arguments(parts)
        distinct = "DISTINCT" in parts[:1]
        return self.make(s.Call, at, given, name=path, arguments=plain, named=named, distinct=distinct)

    def filter(self, at: Span, _: Token, condition: Clause) -> Clause:
        return Clause("filter", condition.value, at)

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
        return Clause("over", self.window_of(at, given), at)

    def over_name(self, at: Span, name: s.Name) -> Clause:
        return Clause("over", s.Over(base=name, at=at), at)

    def window_of(self, at: Span, given: Iterable[Clause]) -> s.Over:
        """A window of OVER; with an ORDER BY and no frame it has that of standard SQL."""
        flat = [c for part in given for c in (part.value if part.field == "frame and size" else (part,))]
        if any(part.field == "order" for part in flat) and not any(part.field == "frame" for part in flat):
            flat += self.range_unbounded_frame(at).value
        whole = not any(part.field in ("frame", "slide", "active") for part in flat)
        return self.make(s.Over, at, flat, whole=whole)

    base = clause("base")
    partition = clauses("partition")

    def rows_frame(self, at: Span, rows: Token) -> Clause:
        return self._frame("rows", at, s.Number(self.whole(rows), at=(rows.start, rows.end)))

    def range_frame(self, at: Span, size: Token) -> Clause:
        return self._frame("range", at, self.amount((size.start, size.end), size))

    def unbounded_frame(self, at: Span) -> Clause:
        return Clause("frame", "unbounded", at)

    def range_unbounded_frame(self, at: Span) -> Clause:
        return self.between_frame(at, "RANGE", s.FrameBound("preceding", at=at), s.FrameBound("current", at=at))

    def current_frame(self, at: Span, unit: str) -> Clause:
        return self.between_frame(at, unit, *(s.FrameBound("current", at=at),) * 2)

    def between_frame(self, at: Span, unit: str, *bounds: s.FrameBound) -> Clause:
        return Clause("frame and size", (Clause("frame", unit.lower(), at), Clause("between", bounds, at)), at)

    def unbounded_preceding(self, at: Span) -> s.FrameBound:
        return s.FrameBound("preceding", at=at)

    def unbounded_following(self, at: Span) -> s.FrameBound:
        return s.FrameBound("following", at=at)

    def current_row(self, at: Span) -> s.FrameBound:
        return s.FrameBound("current", at=at)

    def preceding(self, at: Span, size: Token) -> s.FrameBound:
        return s.FrameBound("preceding", self.amount((size.start, size.end), size), at=at)

    def following(self, at: Span, size: Token) -> s.FrameBound:
        return s.FrameBound("following", self.amount((size.start, size.end), size), at=at)

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
        first = s.Column(path[1], path[0], at=at) if len(path) > 1 else s.Column(path[0], at=at)
        return self.field_of(at, first, path[2:])  # type: ignore[no-any-return]

    # ---- structs

    def field_of(self, at: Span, value: s.Expression, path: tuple[s.Name, ...]) -> Any:
        """`(s).a`, `t.s.a`; without names, the value itself."""
        for name in path:
            value = s.Field(value, name, at=at)
        return value

    def element_field(self, at: Span, value: s.Expression, place: s.Expression, path: tuple[s.Name, ...]) -> s.Field:
        return self.field_of(at, s.Element(value, place, at=at), path)  # type: ignore[no-any-return]

    def struct_item(self, at: Span, name: s.Name | Token, value: s.Expression) -> s.Named:
        key = name if isinstance(name, s.Name) else s.Name(unquoted(name.text), at=(name.start, name.end))
        return s.Named(key, value, at=at)

    def struct_literal(self, at: Span, *fields: s.Named) -> s.Call:
        return s.Call((s.Name("struct_pack", at=at),), named=fields, at=at)

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

    def typed_text(self, at: Span, token: Token) -> s.TypedText:
        start = token.text.index("'")
        kind = token.text[:start].strip().upper()
        kind = "DECIMAL" if kind == "NUMERIC" else kind
        return s.TypedText(kind, unquoted(token.text[start:]), at=at)  # type: ignore[arg-type]

    def duration(self, at: Span, token: Token) -> s.Duration:
        if token.kind == "INTERVAL":
            return self._interval(at, token.text)
        amounts = _AMOUNT.findall(token.text)
        return s.Duration(tuple((self._number(number, at), unit) for number, unit in amounts), at=at)

    duration_literal = calendar_duration = duration

    def interval_literal(self, at: Span, token: Token) -> s.Expression:
        negative, found = self._signed_interval(at, token.text)
        found = replace(found, interval=True)
        return s.Unary("-", found, at=at) if negative else found

    def _interval(self, at: Span, text: str) -> s.Duration:
        negative, found = self._signed_interval(at, text)
        if negative:
            self.fail("this interval is not negative", at, given=text, instead="INTERVAL '10' SECOND")
        return found

    def _signed_interval(self, at: Span, text: str) -> tuple[bool, s.Duration]:
        """`INTERVAL '10' SECOND`, `INTERVAL '10 seconds'`, `INTERVAL '-1 02:03:04' DAY TO SECOND`."""
        _, inside, unit = text.split("'")
        found = interval_amounts(inside, unit)
        if found is None:
            self.fail("this is no interval", at, given=text, instead="INTERVAL '10' SECOND, INTERVAL '1 day 2 hours'")
        negative, amounts = found
        return negative, s.Duration(tuple((self._number(number, at), unit) for number, unit in amounts), at=at)

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
        if value.kind in ("DURATION", "INTERVAL"):
            return self.duration(at, value)
        return self.number((value.start, value.end), value)
