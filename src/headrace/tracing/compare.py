"""Two traced runs side by side: two versions of a query, or of its input.

Operators are pairs if they compute the same from the same (their fingerprints are equal), else if they have the same
text, and else if they are of one kind in the same place between pairs; the answers are a pair in any case. Of a pair,
the changes are compared batch by batch, by the columns that both have: numbers by their values, columns of other types
that differ by their texts. Columns that only one has, or with another type, are named; without any common column, all
rows differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.border import shown
from headrace.changes import Changes
from headrace.columnar import concat, factorize
from headrace.display.words import clipped, counted
from headrace.errors import PlanError
from headrace.io.console import drawn_lines
from headrace.literals import printable
from headrace.tracing.plain import plain_table
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.wide import beside, wide

__all__ = ["Comparison", "OperatorPair"]

_INT, _TEXT = pa.int64(), pa.string()
_OPERATORS = pa.schema(
    {"left": _INT, "right": _INT, "text_left": _TEXT, "text_right": _TEXT, "batch": _INT, "changes_left": _INT,
     "changes_right": _INT, "columns": _TEXT}
)  # fmt: skip
_SIDES = ("left", "right", "both")
#: Columns of `answers` and `differences` besides those of the operators.
_OWN = ("side", "weight", "le", "re")
#: How many rows of a table a text shows.
_SHOWN = 20


@dataclass(frozen=True)
class OperatorPair:
    """An operator of each run, or of one; the first batch in which their changes differ, and how their columns do."""

    left: TracedOperator | None
    right: TracedOperator | None
    batch: int | None = None

    @property
    def columns(self) -> str:
        """The columns that only one of a pair has, or with another type; empty if there are none."""
        if self.left is None or self.right is None:
            return ""
        left, right = self.left.node.schema, self.right.node.schema
        found = []
        for side, one, other in (("left", left, right), ("right", right, left)):
            own = [name for name in one.names if name not in other.names]
            found += [f"only {side} {', '.join(own)}"] if own else []
        for field in left:
            if field.name in right.names and right[field.name].type != field.type:
                found.append(f"{field.name} {field.type.value} left, {right[field.name].type.value} right")
        return "; ".join(found)

    @property
    def text(self) -> str:
        """The pair in a line."""
        if self.left is None or self.right is None:
            one, side = (self.left, "left") if self.left is not None else (self.right, "right")
            assert one is not None
            return f"#{one.number} {clipped(one.text, 70)}: only {side}"
        now = "the same" if self.batch is None else f"differs from batch {self.batch} on"
        other = (
            "" if self.left.text == self.right.text else f", right #{self.right.number} {clipped(self.right.text, 70)}"
        )
        columns = f"; columns differ: {self.columns}" if self.columns else ""
        if columns and self.batch is None:
            now = "the same in the columns of both"
        return f"#{self.left.number} {clipped(self.left.text, 70)}{other}: {now}{columns}"


class Comparison:
    """Two runs, operator by operator, and their answers: rows only left, only right, and in both.

    Of runs that failed, the batches before are compared.
    """

    def __init__(self, left: TraceRecord, right: TraceRecord) -> None:
        sides = {"left": left, "right": right}
        #: Why batches are not compared: a run failed in them.
        self.failures = [f"{side} {record.failure}" for side, record in sides.items() if record.failure is not None]
        if failed := [record.failure.batch for record in sides.values() if record.failure is not None]:
            left, right = (record.before(min(failed)) for record in sides.values())
        self.left, self.right = left, right
        self.pairs = [
            OperatorPair(one, other, self._first_difference(one, other)) for one, other in _pairs(left, right)
        ]

    @cached_property
    def operators(self) -> pa.Table:
        """A row for each pair: its numbers and texts, the first batch that differs, and how many changes each gave.

        The batch is null if the changes are the same in all batches, `columns` if the columns are.
        """
        rows = []
        for pair in self.pairs:
            one, other = pair.left, pair.right
            rows.append({
                "left": one and one.number,
                "right": other and other.number,
                "text_left": one and one.text,
                "text_right": other and other.text,
                "batch": pair.batch,
                "changes_left": None if one is None else len(self.left.changes_until(one)),
                "changes_right": None if other is None else len(self.right.changes_until(other)),
                "columns": pair.columns or None,
            })  # fmt: skip
        return pa.Table.from_pylist(rows, schema=_OPERATORS)

    def differences(self, operator: int | None = None, batch: int | None = None) -> pa.Table:
        """The changes of a batch that only one run has, with `side` and `weight`; by default the first that differ.

        The operator is one of the left run, by default its answer.
        """
        found = self.left.operator(operator) if operator is not None else self.left.output
        pair = next(pair for pair in self.pairs if pair.left is not None and pair.left.number == found.number)
        if pair.right is None:
            raise PlanError("only the left run has this operator", given=pair.text, allowed="operators of both runs")
        first = pair.batch if pair.batch is not None else self.left.first
        return self._sides(found, pair.right, first if batch is None else batch)

    @cached_property
    def answers(self) -> pa.Table:
        """The histories of the answers: each row with its `side` (left, right or both) and how often it is there."""
        one, other = self.left.output, self.right.output
        return self._table(*_apart(*_comparable(self.left.changes_until(one), self.right.changes_until(other))))

    def __repr__(self) -> str:
        counts = dict.fromkeys(_SIDES, 0)
        for row in self.answers.select(["side", "weight"]).to_pylist():
            counts[row["side"]] += row["weight"]
        lines = ["Comparison of two traces", *(f"  {failure}" for failure in self.failures)]
        if self.failures:
            lines.append(f"  {self._compared}")
        lines += [f"  {pair.text}" for pair in self.pairs]
        of_answers = next(pair for pair in self.pairs if pair.left is self.left.output)
        lines.append(
            f"answers: {counts['left']:,} only left, {counts['right']:,} only right, {counts['both']:,} in both"
            + (f" (columns differ: {of_answers.columns})" if of_answers.columns else "")
        )
        apart = self.answers.slice(0, _SHOWN)
        lines += [f"  {line}" for line in drawn_lines(apart)] if apart.num_rows else []
        if (more := self.answers.num_rows - _SHOWN) > 0:
            lines.append(f"  … {counted(more, 'row')} more")
        return printable("\n".join(lines))

    def as_dict(self) -> dict[str, Any]:
        """The tables `operators` and `answers` as plain values, for JSON; `failures` of the runs."""
        tables = {"operators": plain_table(self.operators), "answers": plain_table(self.answers)}
        return {**tables, "failures": self.failures}

    # --- parts -------------------------------------------------------------------------------------------------------

    @property
    def _compared(self) -> str:
        """Which batches are compared."""
        first, last = self.left.first, self.left.first + max(len(self.left.batches), len(self.right.batches)) - 1
        if last < first:
            return "no batch is compared: a run failed in the first one"
        return f"compared: batch {last}" if first == last else f"compared: batches {first} to {last}"

    def _first_difference(self, one: TracedOperator | None, other: TracedOperator | None) -> int | None:
        """The first batch in which changes differ."""
        if one is None or other is None:
            return None
        left, right = self.left.changes_by_batch(one), self.right.changes_by_batch(other)
        for number in sorted({number for number, _ in (*left, *right)}):
            parts = _comparable(_of(left, number, one), _of(right, number, other))
            if any(len(part) for part in _apart(*parts)[:2]):
                return number
        return None

    def _sides(self, one: TracedOperator, other: TracedOperator, batch: int) -> pa.Table:
        """The changes of a batch that the runs do not have in common."""
        changes = ((self.left, one), (self.right, other))
        parts = [_of(record.changes_by_batch(operator), batch, operator) for record, operator in changes]
        of_left, of_right = (part.consolidate() for part in _comparable(*parts))
        return self._table(_unlike(of_left, of_right), _unlike(of_right, of_left))

    def _table(self, *sides: Changes) -> pa.Table:
        tables = []
        for side, changes in zip(_SIDES, sides, strict=False):
            columns = [pa.array([side] * len(changes), _TEXT)]
            columns += [pa.array(values, _INT) for values in (changes.weight, changes.le, changes.re)]
            table = pa.table(columns, names=list(_OWN))
            for name, column in zip(beside(_OWN, changes.payload.column_names), changes.payload.columns, strict=True):
                table = table.append_column(name, column)
            tables.append(table)
        return shown(wide(tables), dates=self.left.dates)


def _apart(left: Changes, right: Changes) -> tuple[Changes, Changes, Changes]:
    """What only one history has, what only the other has, and what both have."""
    if not _same_columns(left, right):
        return left.consolidate(), right.consolidate(), left.filter(np.zeros(len(left), np.bool_))
    left = left.consolidate()
    apart = Changes.concat([left, right.negated()]).consolidate()
    only_left = apart.filter(apart.weight > 0)
    both = Changes.concat([left, only_left.negated()]).consolidate()
    return only_left, apart.filter(apart.weight < 0).negated(), both


def _same_columns(one: Changes, other: Changes) -> bool:
    return bool(one.payload.column_names == other.payload.column_names)


def _unlike(one: Changes, other: Changes) -> Changes:
    """The changes of one run that the other does not have, or has with another weight."""
    if not _same_columns(one, other):
        return one
    apart = Changes.concat([one, other.negated()]).consolidate()
    tables = [
        pa.table([pa.array(c.le), pa.array(c.re), *c.payload.columns], names=["le", "re", *c.payload.column_names])
        for c in (apart, one)
    ]
    codes, _ = factorize(concat(tables))
    return one.filter(np.isin(codes[len(apart) :], codes[: len(apart)]))


def _of(changes: list[tuple[int, Changes]], number: int, operator: TracedOperator) -> Changes:
    """The changes of a batch."""
    return Changes.concat([Changes.empty(operator.node.schema), *(part for n, part in changes if n == number)])


def _comparable(left: Changes, right: Changes) -> tuple[Changes, Changes]:
    """Both with their common columns, in types in which they can be compared; as they are if they have none."""
    names = [name for name in left.payload.column_names if name in right.payload.column_names]
    if not names:
        return left, right
    columns = [_alike(left.payload.column(name), right.payload.column(name)) for name in names]
    ours, theirs = (pa.table(list(side), names=names) for side in zip(*columns, strict=True))
    return left.with_payload(ours), right.with_payload(theirs)


def _alike(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Two columns in one type: of numbers, one that has all their values; else as texts."""
    if left.type == right.type:
        return left, right
    if common := _common_number(left.type, right.type):
        with suppress(pa.ArrowInvalid):  # a number that the type does not have
            return left.cast(common), right.cast(common)
    return _texts(left), _texts(right)


def _common_number(*types: pa.DataType) -> pa.DataType | None:
    if all(map(pa.types.is_integer, types)):
        return pa.int64()
    if not all(pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t) for t in types):
        return None
    if any(map(pa.types.is_floating, types)):
        return pa.float64()
    return pa.decimal128(38, max(t.scale for t in types if pa.types.is_decimal(t)))


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as texts; equal numbers alike in all types."""
    return pa.chunked_array([pa.array(map(_text, column.to_pylist()), _TEXT)])


def _text(value: Any) -> str | None:
    if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0")
    return None if value is None else str(value)


def _pairs(left: TraceRecord, right: TraceRecord) -> Iterator[tuple[TracedOperator | None, TracedOperator | None]]:
    """Each operator with its counterpart, in the order of the left run; then those that only the right run has."""
    found = {left.output.number: right.output.number}
    keys: tuple[Callable[[TracedOperator], Any], ...] = (
        lambda operator: operator.key,
        lambda operator: operator.text,
        lambda operator: type(operator.node),
    )
    for key in keys:
        rest = [operator for operator in right.operators if operator.number not in found.values()]
        for operator in left.operators:
            same = [other for other in rest if key(other) == key(operator)]
            if operator.number not in found and same:
                found[operator.number] = same[0].number
                rest.remove(same[0])
    for operator in left.operators:
        yield operator, right.operator(found[operator.number]) if operator.number in found else None
    yield from ((None, operator) for operator in right.operators if operator.number not in found.values())
