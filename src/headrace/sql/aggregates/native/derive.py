"""What of a frame carries over to the next one, found in the body of a base aggregate (rule 7.4).

Over a finite frame a base aggregate is defined by recomputation: INITIALIZE at the first tuple, ITERATE at each later
one, TERMINATE. Let S be the tuples between the first and the last. If what ITERATE does for S can be kept as S slides,
a frame costs three steps, however long it is: INITIALIZE at the first tuple, the effect of S, ITERATE at the last.

That holds if all tables have one row, and each of their columns falls into one of these classes. Let v be a column, T
and c an expression and a condition without columns of tables, so that they follow from the tuple alone.

- *Kept*: ITERATE does not change v.
- *Total*: v = v + T or v - T, where c, of whole numbers. The effect of S is the sum of its terms, which are added when
  a tuple enters S and subtracted when it leaves. A NULL term, or a sum out of range, makes v NULL for good. NULL terms
  are counted. If the sum of the absolute values is in range, so is every sum on the way; otherwise the frame is
  recomputed. Decimals are not in this class: subtracting them does not give the same digits as recomputation.
- *Chosen*: v = T, where c. The effect of S is that of its last tuple where c.
- *Chosen*: v = T, where T > v and c (or <, >=, <=; or v = greatest(v, T)), perhaps with more columns that take values
  of the same tuple. The effect of S is that of one of its tuples: the first with the greatest T that is not NULL (the
  last for >=). A queue of the tuples that may still become it gives it at constant cost.

No other form is derived, and ALGEBRAIC is not taken as proof: it promises that results of parts combine, not that they
combine to the same digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.expr import Column, Literal
from headrace.expr.nodes import Bound, Call, Case, Cast
from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d

__all__ = ["Chosen", "Derivation", "NotDerived", "Total", "derive"]

_BITS = {Type.BYTE: 8, Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
#: Comparisons of T with v, as (whether the greatest is chosen, whether the last of equal ones is).
_CHOICES = {"gt": (True, False), "ge": (True, True), "lt": (False, False), "le": (False, True)}
_MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}


class NotDerived(Exception):
    """Why the effect of tuples does not carry over to the next frame."""


@dataclass(frozen=True)
class Total:
    """A column to which terms are added, each with whether it is subtracted."""

    table: d.StateTable
    index: int
    conditions: tuple[Bound, ...]
    terms: tuple[tuple[bool, Bound], ...]
    #: The width of the narrowest type that the sum passes through.
    bits: int


@dataclass(frozen=True)
class Chosen:
    """Columns that one tuple decides: that with the greatest or least key, or the last one."""

    #: The statement for these columns alone.
    update: d.BodyUpdate
    conditions: tuple[Bound, ...]
    #: None for the last tuple.
    key: Bound | None = None
    greatest: bool = True
    last_of_equal: bool = False


@dataclass(frozen=True)
class Derivation:
    """The effect of ITERATE on each column."""

    totals: tuple[Total, ...]
    chosen: tuple[Chosen, ...]

    def __str__(self) -> str:
        names = [("totals", self.totals), ("one tuple's values", self.chosen)]
        return " and ".join(name for name, some in names if some) or "what the first tuple sets"


@dataclass(frozen=True)
class _Change:
    """A new value for a column, and the conditions under which it gets it."""

    index: int
    conditions: tuple[Bound, ...]
    value: Bound


def derive(definition: d.AggregateDefinition) -> Derivation:
    """The effect of ITERATE; raises `NotDerived` if a column is in no class."""
    for table in definition.tables:
        if definition.form(table) != "row":
            raise NotDerived(f"the table {table.name} may have any number of rows")
    found = _Found(definition)
    for statement in definition.stages.get("iterate", ()):
        found.add(statement)
    return Derivation(tuple(found.totals), tuple(found.chosen))


class _Found:
    """Collects the classes of columns."""

    def __init__(self, definition: d.AggregateDefinition) -> None:
        self.definition = definition
        self.totals: list[Total] = []
        self.chosen: list[Chosen] = []
        self.changed: set[tuple[d.StateTable, int]] = set()

    def add(self, statement: d.BodyStatement) -> None:
        if isinstance(statement, d.BodyInsert) and statement.table is None:
            if not self.definition.value:  # of a value, only what the last tuple returns counts
                raise NotDerived(f"line {statement.line}: every tuple returns rows")
            return
        if not isinstance(statement, d.BodyUpdate):
            raise NotDerived(f"line {statement.line}: rows are inserted or deleted")
        joint: dict[Any, list[_Change]] = {}
        for change in self._changes(statement):
            self._once(statement, change.index)
            bound = [one for one in change.conditions if not self._free(one)]
            if bound:
                joint.setdefault(tuple(map(self._key, change.conditions)), []).append(change)
            else:
                self._alone(statement, change)
        for changes in joint.values():
            self._together(statement, changes)

    def _changes(self, statement: d.BodyUpdate) -> Iterator[_Change]:
        where = () if statement.where is None else tuple(_conjuncts(statement.where))
        for index, value in enumerate(statement.values):
            if value is None:
                continue
            conditions = where
            # CASE WHEN c THEN x ELSE v END is x where c.
            while isinstance(value.node, Case) and len(value.args) == 3 and self._is(value.args[2], statement, index):
                conditions, value = (*conditions, *_conjuncts(value.args[0])), value.args[1]
            yield _Change(index, conditions, value)

    def _once(self, statement: d.BodyUpdate, index: int) -> None:
        column = (statement.source.table, index)
        if column in self.changed:
            raise self._refused(statement, index, "changes twice")
        self.changed.add(column)

    # --- the classes -------------------------------------------------------------------------------------------------

    def _alone(self, statement: d.BodyUpdate, change: _Change) -> None:
        """A column whose conditions follow from the tuple."""
        index, value = change.index, change.value
        update = _only(statement, [index])
        if self._free(value):
            self.chosen.append(Chosen(update, change.conditions))
            return
        node = value.node
        if isinstance(node, Call) and node.function in ("greatest", "least") and len(value.args) == 2:
            own = [self._is(one, statement, index) for one in value.args]
            key = value.args[own.index(False)] if True in own and False in own else None
            if key is not None and self._free(key):
                chosen = Chosen(update, change.conditions, key, node.function == "greatest", last_of_equal=own[1])
                self.chosen.append(chosen)
                return
        self.totals.append(self._total(statement, change))

    def _total(self, statement: d.BodyUpdate, change: _Change) -> Total:
        terms: list[tuple[bool, Bound]] = []
        bits, value = 64, change.value
        while not self._is(value, statement, change.index):
            if value.type not in _BITS:
                kind = value.type.value
                raise self._refused(
                    statement, change.index, f"adds {kind}s, which do not subtract exactly" if value.type.is_floating
                    else "is neither a total nor chosen"
                )  # fmt: skip
            bits, node = min(bits, _BITS[value.type]), value.node
            if isinstance(node, Cast):
                (value,) = value.args
                continue
            inner = self._summand(value)
            if inner is None:
                raise self._refused(statement, change.index, "is neither a total nor chosen")
            value, term = inner
            terms.append(term)
        table = statement.source.table
        own = table.schema.fields[change.index].type
        if own not in _BITS:
            raise self._refused(statement, change.index, "is neither a total nor chosen")
        return Total(table, change.index, change.conditions, tuple(terms), min(bits, _BITS[own]))

    def _summand(self, value: Bound) -> tuple[Bound, tuple[bool, Bound]] | None:
        """A sum as what it is added to and the term; None if it is no such sum."""
        node = value.node
        if not isinstance(node, Call) or node.function not in ("add", "subtract"):
            return None
        left, right = value.args
        if self._free(right):
            return left, (node.function == "subtract", right)
        return (right, (False, left)) if self._free(left) and node.function == "add" else None

    def _together(self, statement: d.BodyUpdate, changes: Sequence[_Change]) -> None:
        """Columns that change where a comparison with one of them holds."""
        first = changes[0]
        bound = [one for one in first.conditions if not self._free(one)]
        free = tuple(one for one in first.conditions if self._free(one))
        compared = self._comparison(statement, bound[0]) if len(bound) == 1 else None
        if compared is None:
            raise self._refused(statement, first.index, "changes under a condition on tables")
        index, function, key = compared
        own = next((one for one in changes if one.index == index), None)
        if own is None or self._key(own.value) != self._key(key) or not all(self._free(one.value) for one in changes):
            raise self._refused(statement, first.index, "changes under a condition on tables")
        greatest, last = _CHOICES[function]
        update = _only(statement, [one.index for one in changes])
        self.chosen.append(Chosen(update, free, key, greatest, last))

    def _comparison(self, statement: d.BodyUpdate, bound: Bound) -> tuple[int, str, Bound] | None:
        """A comparison of a key with a column of the updated table: the column, the function and the key."""
        node = bound.node
        if not isinstance(node, Call) or node.function not in _CHOICES:
            return None
        left, right = bound.args
        for key, column, function in ((left, right, node.function), (right, left, _MIRRORED[node.function])):
            for index in range(len(statement.values)):
                if self._free(key) and self._is(column, statement, index):
                    return index, function, key
        return None

    # --- expressions -------------------------------------------------------------------------------------------------

    def _is(self, bound: Bound, statement: d.BodyUpdate, index: int) -> bool:
        """Whether an expression is a column of the row that a statement updates."""
        if not isinstance(bound.node, Column):
            return False
        origin = self.definition.places[bound.node.column]
        return origin.source is statement.source and origin.index == index

    def _free(self, bound: Bound) -> bool:
        """Whether an expression follows from the tuple alone."""
        if isinstance(bound.node, Column):
            return self.definition.places[bound.node.column].source is None
        plain = isinstance(bound.node, (Literal, Call, Case, Cast))
        return plain and all(map(self._free, bound.args))

    def _key(self, bound: Bound) -> tuple[Any, ...]:
        """Equal for expressions of equal meaning."""
        node: Any = bound.node
        if isinstance(node, Column):
            origin = self.definition.places[node.column]
            return "column", origin.source, origin.index
        if isinstance(node, Literal):
            return "literal", bound.type, repr(node.value)
        if not isinstance(node, (Call, Case, Cast)):
            return "other", id(bound)
        name = node.function if isinstance(node, Call) else ""
        return type(node).__name__, name, bound.type, *map(self._key, bound.args)

    def _refused(self, statement: d.BodyUpdate, index: int, reason: str) -> NotDerived:
        table = statement.source.table
        return NotDerived(f"line {statement.line}: {table.name}.{table.schema.names[index]} {reason}")


def _conjuncts(condition: Bound) -> Iterator[Bound]:
    """The conditions that must all hold."""
    if isinstance(condition.node, Call) and condition.node.function == "and":
        for one in condition.args:
            yield from _conjuncts(one)
    else:
        yield condition


def _only(statement: d.BodyUpdate, columns: Sequence[int]) -> d.BodyUpdate:
    """A statement for some of its columns."""
    values = tuple(value if index in columns else None for index, value in enumerate(statement.values))
    return replace(statement, values=values)
