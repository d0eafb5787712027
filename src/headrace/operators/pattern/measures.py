"""Measures: what is said of matches, for all of them at once.

An output is a match up to one of its tuples: the last one, or each where every tuple is given. What is asked of the
tuples of a variable becomes a column with a row for each output: by the place of the first or last such tuple, or by
the aggregates that windows have, over the tuples of the output that are mapped to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Changes
from headrace.columnar import Bools, Int64s, canonical_floats
from headrace.expr import AggregateCall, col, evaluate, lit
from headrace.operators.ordered.tuples import ranges
from headrace.operators.pattern.registers import Registers
from headrace.operators.pattern.tables import Found
from headrace.operators.per_window.content import AggregateContent, EarlierState
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import Members
from headrace.patterns.references import Ref
from headrace.plan.nodes import Aggregate, Match, Select
from headrace.plan.pattern import COMPLETE
from headrace.plan.windows import Snapshot
from headrace.schema import Type

__all__ = ["Measured", "Measures"]


@dataclass(frozen=True)
class Measured:
    """Outputs: the match of each, its tuple, and its columns (without keys)."""

    match: Int64s
    row: Int64s
    payload: pa.Table


@dataclass(frozen=True)
class _Parts:
    """The tuples of outputs: `row[i]`, mapped to `label[i]`, is in output `output[i]`, in their order."""

    outputs: int
    output: Int64s
    row: Int64s
    label: Int64s


class Measures:
    """The measures of one pattern."""

    def __init__(self, node: Match) -> None:
        self.node, self.registers = node, Registers(node)
        used = set().union(*(expr.columns() for expr in node.values.values()))
        refs = {name: ref for name, ref in node.references.refs.items() if name in used}
        #: What is asked of a match up to a tuple, and of it as a whole.
        self.asked = [
            _Asked(node, {n: ref for n, ref in refs.items() if ref.final == final}) for final in (False, True)
        ]

    def measured(self, found: Found, tuples: pa.Table) -> Measured:
        """The outputs of matches; `tuples` are all, with what those before them have."""
        match, row, at = self._outputs(found)
        table, registers = tuples.take(pa.array(row)), self.registers.values(found, tuples)
        for asked, length in zip(self.asked, (at, (found.last - found.first)[match]), strict=True):
            for name, column in asked.columns(found, match, length, tuples, registers).items():
                table = table.append_column(name, column)
        arrays = [evaluate(expr, table) for expr in self.node.values.values()]
        names = list(self.node.values)
        if self.node.rows == "all":
            own = self.node.input.schema.names
            arrays, names = [*(table.column(name) for name in own), *arrays], [*own, *names]
        if self.node.pattern.partials:
            arrays, names = [*arrays, pa.array(found.complete[match])], [*names, COMPLETE]
        payload = pa.table(arrays, names=names) if arrays else pa.table({"": pa.nulls(len(row))}).select([])
        return Measured(match, row, canonical_floats(payload))

    def _outputs(self, found: Found) -> tuple[Int64s, Int64s, Int64s]:
        """Of each output its match, its tuple, and how many tuples of the match come before that."""
        if self.node.rows == "all":
            match, row = ranges(found.first, found.last)
            return match, row, row - found.first[match]
        return np.arange(len(found.first)), found.last, found.last - found.first


class _Asked:
    """What measures ask of the tuples of outputs."""

    def __init__(self, node: Match, refs: Mapping[str, Ref]) -> None:
        self.node, self.refs = node, refs
        asked = {name: ref for name, ref in refs.items() if ref.function not in _PLACED}
        #: By the name of its own column: no column of an aggregate may be named as references are.
        self.aggregates = {f"c{i}": (name, ref) for i, (name, ref) in enumerate(asked.items())}
        calls = {n: AggregateCall(ref.function, col(n), ref.parameters) for n, (_, ref) in self.aggregates.items()}
        self.content = AggregateContent(Aggregate(self._bag(), (), Snapshot(), tuple(calls.items()))) if calls else None

    def _bag(self) -> Select:
        """Where aggregates find the types of their columns."""
        kinds = {name: _argument_type(ref, self.node) for name, (_, ref) in self.aggregates.items()}
        return Select(self.node.input, tuple((name, lit(None).cast(kind)) for name, kind in kinds.items()))

    def columns(
        self, found: Found, match: Int64s, at: Int64s, tuples: pa.Table, registers: Mapping[str, pa.Array]
    ) -> dict[str, pa.Array]:
        """By the name of what is asked, a value for each output: a match, and how many tuples of it after the first."""
        if not self.refs:
            return {}
        lengths = found.last - found.first + 1
        begins = np.cumsum(lengths) - lengths
        output, flat = ranges(begins[match], begins[match] + at)
        row = flat - begins[match[output]] + found.first[match[output]]
        parts = _Parts(len(match), output, row, found.labels[flat].astype(np.int64))
        asked = self._aggregated(parts, tuples) if self.content is not None else {}
        for name, ref in self.refs.items():
            if ref.function == "classifier":
                names = pa.array(self.node.pattern.variables)
                asked[name] = names.take(pa.array(found.labels[begins[match] + at]))
            elif ref.function == "register":
                asked[name] = registers[str(ref.variable)].take(pa.array(begins[match] + at))
            elif ref.function == "match_number":
                asked[name] = pa.array(found.number[match])
            elif ref.function in _PLACED:
                asked[name] = self._placed(ref, parts, tuples)
        return asked

    def _mine(self, ref: Ref, parts: _Parts) -> Bools:
        mine = [self.node.references.of(ref, variable) for variable in self.node.pattern.variables]
        return np.array(mine)[parts.label]

    def _placed(self, ref: Ref, parts: _Parts, tuples: pa.Table) -> pa.Array:
        """The value of the first or last tuple of a variable; null if there is none."""
        mine = self._mine(ref, parts)
        output, row = parts.output[mine], parts.row[mine]
        begins, ends = (np.searchsorted(output, np.arange(parts.outputs), side) for side in ("left", "right"))
        at = begins + ref.offset if ref.function == "first" else ends - 1 - ref.offset
        none = (at < begins) | (at >= ends)
        assert ref.argument is not None
        return evaluate(ref.argument, tuples).take(pa.array(np.r_[row, 0][np.where(none, -1, at)], mask=none))

    def _aggregated(self, parts: _Parts, tuples: pa.Table) -> dict[str, pa.Array]:
        assert self.content is not None
        columns = {name: self._column(ref, parts, tuples) for name, (_, ref) in self.aggregates.items()}
        table = canonical_floats(pa.table(columns))
        found = pa.table({name: evaluate(expr, table) for name, expr in self.content.columns})
        places = np.arange(len(parts.row), dtype=np.int64)
        members = Members(parts.output, places, Changes.inserts(places, places + 1, found))
        of = np.arange(parts.outputs, dtype=np.int64)
        windows = Windows(of, of, of + 1, np.empty(0, np.int64))
        nothing = Members(of[:0], of[:0], members.events)
        keys = pa.table({"": pa.nulls(len(of))}).select([])
        outputs = self.content.outputs(windows, members, keys, np.ones(len(of), bool), EarlierState({}, nothing))
        return {name: outputs.payload.column(mine) for mine, (name, _) in self.aggregates.items()}

    def _column(self, ref: Ref, parts: _Parts, tuples: pa.Table) -> pa.Array:
        """What an aggregate takes of each tuple; null of those that are mapped to something else."""
        mine = pa.array(self._mine(ref, parts))
        if ref.argument is None:
            return pc.if_else(mine, pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))
        values = evaluate(ref.argument, tuples).take(pa.array(parts.row))
        return values if ref.variable is None else pc.if_else(mine, values, pa.scalar(None, values.type))


_PLACED = ("first", "last", "classifier", "match_number", "register")


def _argument_type(ref: Ref, node: Match) -> Type:
    return Type.INT if ref.argument is None else ref.argument.type(node.references.of_tuples)
