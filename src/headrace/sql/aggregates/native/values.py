"""Expressions of a body as text of native code.

A value is two things there: the number, and whether it is NULL. Where it cannot be NULL the second is left out. All
operands are computed, none can fail, so the order in which they are does not matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from headrace.expr import Column, Expr, Literal
from headrace.expr.nodes import Bound, Call, Case, Cast
from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.python.scalars import single

__all__ = ["CodeLines", "NotNative", "Pair", "ValueWriter", "check_type", "compared"]

#: A value that is longer than this gets a name: what is nested too deep cannot be read, not even by Python.
_LONG_TEXT = 60
_ODD, _LONGEST = re.compile(r"[^A-Za-z0-9_]"), 20
_BITS = {Type.BYTE: 8, Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}
_CHECKED = {"divide": "divide", "modulo": "rest", "sqrt": "root"}


class NotNative(Exception):
    """Why something does not run as native code."""


@dataclass(frozen=True)
class Pair:
    """A value, and the names any of which says that it is NULL."""

    value: str
    nulls: tuple[str, ...] = ()

    @property
    def null(self) -> str:
        """Whether it is NULL, as text."""
        return " | ".join(self.nulls) or "False"

    @property
    def holds(self) -> str:
        """Whether a condition is true: neither false nor NULL."""
        return f"{self.value} and not {self.one_null}" if self.nulls else self.value

    @property
    def one_null(self) -> str:
        """Whether it is NULL, as a part of more text."""
        return f"({self.null})" if len(self.nulls) > 1 else self.null


class CodeLines:
    """Lines, some of them in blocks."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        self.lines += [f"{'    ' * self._depth}{line}" for line in lines]

    def add_block(self, lines: Sequence[str]) -> None:
        """Lines that were written one block further out."""
        self.lines += [f"    {line}" for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is added inside is indented under a head."""
        self.add(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if all(line.strip().startswith("#") for line in self.lines[before:]):
            self.add("pass")
        self._depth -= 1


def check_type(kind: Type, what: str) -> Type:
    """The type, if native code computes with it."""
    if not (kind.is_numeric or kind in (Type.BOOLEAN, Type.DATETIME)):
        raise NotNative(f"{what} is {kind.value}: native code computes with numbers, BOOLEAN and DATETIME")
    return kind


@dataclass(frozen=True)
class _Use:
    """A function, the type of its operands, and these."""

    function: str
    kind: Type
    operands: tuple[Pair, ...]


def _nulls(*pairs: Pair) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for pair in pairs for name in pair.nulls))


class ValueWriter:
    """Writes expressions: the lines they need go to `text`, what they are in the end is given back."""

    def __init__(
        self, definition: d.AggregateDefinition, text: CodeLines, arguments: Sequence[Pair],
        columns: Mapping[d.StateTable, Sequence[Pair]], oldest: Sequence[Pair],
    ) -> None:  # fmt: skip
        self.definition, self.text = definition, text
        #: What the arguments, the columns of tables and those of the oldest tuple are called.
        self.arguments, self.columns, self.oldest = arguments, columns, oldest
        #: Of a source whose rows are gone through, the row that it is at and its columns.
        self.row_of: dict[d.TableScan, str] = {}
        self.rows_of: dict[d.TableScan, list[Pair]] = {}
        self.named = 0

    def of(self, bound: Bound) -> Pair:
        """A bound expression."""
        node = bound.node
        if isinstance(node, Literal):
            return _literal(node, bound.type)
        check_type(bound.type, "a value")
        for kind, write in self._writers.items():
            if isinstance(node, kind):
                pair = write(self, bound)
                return self.name(pair) if len(pair.value) > _LONG_TEXT else pair
        raise NotNative("functions in Python have no native form")

    def name(self, pair: Pair) -> Pair:
        """The same under a name, so that it can be said more than once."""
        if pair.value.replace(".", "").replace("_", "").isalnum():
            return pair
        name = self.new()
        self.text.add(f"{name} = {pair.value}")
        return Pair(name, pair.nulls)

    def new(self, like: str = "") -> str:
        """A new name, like another one if so wanted."""
        self.named += 1
        plain = _ODD.sub("", like)[:_LONGEST]
        return f"_{self.named}" + (f"_{plain}" if plain else "")  # no name of a user begins so

    def maybe(self, call: str, *operands: Pair) -> Pair:
        """The result of a function that says itself whether there is one."""
        name = self.new()
        self.text.add(f"{name}, {name}_null = {call}")
        return Pair(name, (*_nulls(*operands), f"{name}_null"))

    # --- columns -----------------------------------------------------------------------------------------------------

    def _column(self, bound: Bound) -> Pair:
        node = bound.node
        assert isinstance(node, Column)
        place = self.definition.places[node.column]
        if place.source is None:
            return self.arguments[place.index]
        known = self.rows_of.get(place.source) or self.columns[place.source.table]
        return known[place.index]

    def _oldest(self, bound: Bound) -> Pair:
        node = bound.node
        assert isinstance(node, d.Oldest)
        return self.oldest[node.index]

    # --- functions ---------------------------------------------------------------------------------------------------

    def _call(self, bound: Bound) -> Pair:
        node = bound.node
        assert isinstance(node, Call)
        if node.function in ("is_null", "is_not_null"):
            null = self.of(bound.args[0]).one_null
            return Pair(null if node.function == "is_null" else f"(not {null})")
        if node.function not in self._functions:
            raise NotNative(f"{node.function}() has no native form")
        use = _Use(node.function, bound.args[0].type, tuple(map(self.of, bound.args)))
        return self._functions[node.function](self, use)

    def _arithmetic(self, use: _Use) -> Pair:
        a, b = use.operands
        if use.kind is Type.LONG:
            return self.maybe(f"{use.function}_long({a.value}, {b.value})", a, b)
        return self._rounded(f"{a.value} {_SIGNS[use.function]} {b.value}", use)

    def _signed(self, use: _Use) -> Pair:
        (a,) = use.operands
        if use.kind is Type.LONG:
            return self.maybe(f"{use.function}_long({a.value})", a)
        return self._rounded(f"-{a.value}" if use.function == "negate" else f"abs({a.value})", use)

    def _rounded(self, found: str, use: _Use) -> Pair:
        """A result in the width of its type."""
        if use.kind.is_integer:
            return self.maybe(f"fits({found}, {1 << (_BITS[use.kind] - 1)})", *use.operands)
        return Pair(f"single({found})" if use.kind is Type.FLOAT else f"({found})", _nulls(*use.operands))

    def _checked(self, use: _Use) -> Pair:
        """A function that is NULL for some operands."""
        name = _CHECKED[use.function]
        if use.function == "modulo" and not use.kind.is_floating:
            name = "rest_whole"
        return self.maybe(f"{name}({', '.join(one.value for one in use.operands)})", *use.operands)

    def _to_whole(self, use: _Use) -> Pair:
        (a,) = use.operands
        return Pair(f"{use.function}({a.value})", a.nulls) if use.kind.is_floating else a

    def _compare(self, use: _Use) -> Pair:
        a, b = (one.value for one in use.operands)
        return Pair(compared(use.function, use.kind, a, b), _nulls(*use.operands))

    def _not(self, use: _Use) -> Pair:
        (a,) = use.operands
        return Pair(f"(not {a.value})", a.nulls)

    def _logic(self, use: _Use) -> Pair:
        a, b = use.operands
        if not a.nulls and not b.nulls:
            return Pair(f"({a.value} {use.function} {b.value})")
        name = {"and": "both", "or": "either"}[use.function]
        return self.maybe(f"{name}({a.value}, {a.null}, {b.value}, {b.null})")

    def _isin(self, use: _Use) -> Pair:
        value, found = self.name(use.operands[0]), Pair("False")
        for member in use.operands[1:]:
            equal = self._compare(_Use("eq", use.kind, (value, member)))
            found = self._logic(_Use("or", Type.BOOLEAN, (found, equal)))
        return found

    def _coalesce(self, use: _Use) -> Pair:
        *before, found = use.operands
        for one in reversed(before):
            found = self._either(one.null, found, one) if one.nulls else one
        return found

    def _extreme(self, use: _Use) -> Pair:
        """The first of the greatest, or least, that are not NULL."""
        found = use.operands[0]
        for one in use.operands[1:]:
            a, b = self.name(found), self.name(one)
            better = compared("lt" if use.function == "greatest" else "gt", use.kind, a.value, b.value)
            if b.nulls:
                better = f"{better} and not {b.one_null}"
            found = self._either(f"{a.one_null} or ({better})" if a.nulls else better, b, a)
        return found

    def _either(self, condition: str, yes: Pair, no: Pair) -> Pair:
        """One of two values."""
        test, name = self.new(), self.new()
        self.text.add(f"{test} = {condition}", f"{name} = {yes.value} if {test} else {no.value}")
        if not yes.nulls and not no.nulls:
            return Pair(name)
        self.text.add(f"{name}_null = {yes.null} if {test} else {no.null}")
        return Pair(name, (f"{name}_null",))

    def _case(self, bound: Bound) -> Pair:
        *parts, default = map(self.of, bound.args)
        found = default
        for test, value in reversed(list(zip(parts[::2], parts[1::2], strict=True))):
            found = self._either(test.holds, value, found)
        return found

    # --- times and casts ---------------------------------------------------------------------------------------------

    def _time_diff(self, use: _Use) -> Pair:
        return self._arithmetic(_Use("subtract", Type.LONG, use.operands))

    def _shift_time(self, use: _Use) -> Pair:
        moved = self._arithmetic(_Use("add", Type.LONG, use.operands))
        return self.maybe(f"instant({moved.value})", moved)

    def _cast(self, bound: Bound) -> Pair:
        child, target = bound.args[0], bound.type
        found, source = self.of(child), check_type(child.type, "a value")
        if target is Type.BOOLEAN:
            return Pair(f"({found.value} != 0)", found.nulls)
        if target is Type.DATETIME:
            return self.maybe(f"instant({self._as_whole(source, found).value})", found)
        if target is Type.FLOAT:
            return Pair(f"single({found.value})", found.nulls)
        if target is Type.DOUBLE:
            return found if source is Type.FLOAT else Pair(f"np.float64({found.value})", found.nulls)
        if source.is_floating:
            return self.maybe(f"whole({found.value}, {float(1 << (_BITS[target] - 1))!r})", found)
        if _BITS.get(source, 1 if source is Type.BOOLEAN else 64) <= _BITS[target]:
            return self._as_whole(source, found)
        return self.maybe(f"fits({found.value}, {1 << (_BITS[target] - 1)})", found)

    def _as_whole(self, source: Type, found: Pair) -> Pair:
        return Pair(f"np.int64({found.value})", found.nulls) if source is Type.BOOLEAN else found

    _writers: ClassVar[Mapping[type[Expr], Callable[[Any, Bound], Pair]]] = {
        Column: _column, Call: _call, Case: _case, Cast: _cast, d.Oldest: _oldest,
    }  # fmt: skip
    _functions: ClassVar[Mapping[str, Callable[[Any, _Use], Pair]]] = {
        **dict.fromkeys(_SIGNS, _arithmetic),
        **dict.fromkeys(("negate", "abs"), _signed),
        **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compare),
        **dict.fromkeys(("and", "or"), _logic),
        **dict.fromkeys(("greatest", "least"), _extreme),
        **dict.fromkeys(("floor", "ceil"), _to_whole),
        **dict.fromkeys(_CHECKED, _checked),
        "not": _not,
        "isin": _isin,
        "coalesce": _coalesce,
        "time_diff": _time_diff,
        "shift_time": _shift_time,
    }


def compared(function: str, kind: Type, a: str, b: str) -> str:
    """A comparison; for decimals by functions that know NaN."""
    if not kind.is_floating:
        sign = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[function]
        return f"({a} {sign} {b})"
    if function in ("eq", "ne"):
        return f"same({a}, {b})" if function == "eq" else f"(not same({a}, {b}))"
    first, second = (a, b) if function in ("lt", "ge") else (b, a)
    return f"less({first}, {second})" if function in ("lt", "gt") else f"(not less({first}, {second}))"


def _literal(node: Literal, kind: Type) -> Pair:
    value: Any = node.value
    if value is None:
        return Pair("0.0" if kind.is_floating else "False" if kind is Type.BOOLEAN else "0", ("True",))
    check_type(kind, "a value")
    if isinstance(value, datetime):
        value = (value - _EPOCH) // timedelta(microseconds=1)
    if kind.is_floating:
        value = single(float(value)) if kind is Type.FLOAT else float(value)
        return Pair(f"({value!r})" if math.isfinite(value) else f"np.float64({'-' if value < 0 else ''}np.inf)")
    return Pair("LEAST" if value == -(2**63) else f"({value!r})" if value < 0 else repr(value))
