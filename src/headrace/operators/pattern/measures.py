"""Measures: the values of matches, computed for all of them at once.

An output is a match up to one of its tuples: the last one, or each tuple if the pattern returns all rows. A reference
to the tuples of a variable becomes a column with a row for each output: by the place of the first or last such tuple,
or by the aggregates of windows, over the tuples of the output that are mapped to it.
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
from headrace.operators.pattern.tables import FoundMatches
from headrace.operators.per_window.content import AggregateContent, EarlierState
from headrace.operators.per_window.divide import Windows
from headrace.operators.per_window.items import Members
from headrace.patterns.references import Ref
from headrace.plan.nodes import Aggregate, Match, Select
from headrace.plan.pattern import COMPLETE
from headrace.plan.windows import Snapshot
from headrace.schema import Type

__all__ = ["MeasuredOutputs", "Measures"]


@dataclass(frozen=True)
class MeasuredOutputs:
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
        #: References to a match up to a tuple, and to the whole match.
        self.references = [
            _ReferenceColumns(node, {n: ref for n, ref in refs.items() if ref.final == final})
            for final in (False, True)
        ]

    def outputs(self, matches: FoundMatches, tuples: pa.Table) -> MeasuredOutputs:
        """The outputs of matches; `tuples` are all tuples, with columns of their neighbours."""
        match, row, at = self._outputs(matches)
        table, registers = tuples.take(pa.array(row)), self.registers.values(matches, tuples)
        for references, length in zip(self.references, (at, (matches.last - matches.first)[match]), strict=True):
            for name, column in references.columns(matches, match, length, tuples, registers).items():
                table = table.append_column(name, column)
        arrays = [evaluate(expr, table) for expr in self.node.values.values()]
        names = list(self.node.values)
        if self.node.rows == "all":
            own = self.node.input.schema.names
            arrays, names = [*(table.column(name) for name in own), *arrays], [*own, *names]
        if self.node.pattern.partials:
            arrays, names = [*arrays, pa.array(matches.complete[match])], [*names, COMPLETE]
        payload = pa.table(arrays, names=names) if arrays else pa.table({"": pa.nulls(len(row))}).select([])
        return MeasuredOutputs(match, row, canonical_floats(payload))

    def _outputs(self, matches: FoundMatches) -> tuple[Int64s, Int64s, Int64s]:
        """For each output its match, its tuple, and the number of tuples of the match before that."""
        if self.node.rows == "all":
            match, row = ranges(matches.first, matches.last)
            return match, row, row - matches.first[match]
        return np.arange(len(matches.first)), matches.last, matches.last - matches.first


class _ReferenceColumns:
    """The references of measures, as columns with a row for each output."""

    def __init__(self, node: Match, refs: Mapping[str, Ref]) -> None:
        self.node, self.refs = node, refs
        aggregated = {name: ref for name, ref in refs.items() if ref.function not in _PLACED}
        #: By column name: columns of an aggregate must not have the names of references.
        self.aggregates = {f"c{i}": (name, ref) for i, (name, ref) in enumerate(aggregated.items())}
        calls = {n: AggregateCall(ref.function, col(n), ref.parameters) for n, (_, ref) in self.aggregates.items()}
        self.content = AggregateContent(Aggregate(self._bag(), (), Snapshot(), tuple(calls.items()))) if calls else None

    def _bag(self) -> Select:
        """The input from which aggregates take the types of their columns."""
        kinds = {name: _argument_type(ref, self.node) for name, (_, ref) in self.aggregates.items()}
        return Select(self.node.input, tuple((name, lit(None).cast(kind)) for name, kind in kinds.items()))

    def columns(
        self, matches: FoundMatches, match: Int64s, at: Int64s, tuples: pa.Table, registers: Mapping[str, pa.Array]
    ) -> dict[str, pa.Array]:
        """A column for each reference, by name; an output is a match and the number of its tuples after the first."""
        if not self.refs:
            return {}
        lengths = matches.last - matches.first + 1
        begins = np.cumsum(lengths) - lengths
        output, flat = ranges(begins[match], begins[match] + at)
        row = flat - begins[match[output]] + matches.first[match[output]]
        parts = _Parts(len(match), output, row, matches.labels[flat].astype(np.int64))
        columns = self._aggregated(parts, tuples) if self.content is not None else {}
        for name, ref in self.refs.items():
            if ref.function == "classifier":
                names = pa.array(self.node.pattern.variables)
                columns[name] = names.take(pa.array(matches.labels[begins[match] + at]))
            elif ref.function == "register":
                columns[name] = registers[str(ref.variable)].take(pa.array(begins[match] + at))
            elif ref.function == "match_number":
                columns[name] = pa.array(matches.number[match])
            elif ref.function in _PLACED:
                columns[name] = self._placed(ref, parts, tuples)
        return columns

    def _mask_of(self, ref: Ref, parts: _Parts) -> Bools:
        refers = [self.node.references.of(ref, variable) for variable in self.node.pattern.variables]
        return np.array(refers)[parts.label]

    def _placed(self, ref: Ref, parts: _Parts, tuples: pa.Table) -> pa.Array:
        """The value of the first or last tuple of a variable; null if there is none."""
        mask = self._mask_of(ref, parts)
        output, row = parts.output[mask], parts.row[mask]
        begins, ends = (np.searchsorted(output, np.arange(parts.outputs), side) for side in ("left", "right"))
        at = begins + ref.offset if ref.function == "first" else ends - 1 - ref.offset
        none = (at < begins) | (at >= ends)
        assert ref.argument is not None
        return evaluate(ref.argument, tuples).take(pa.array(np.r_[row, 0][np.where(none, -1, at)], mask=none))

    def _aggregated(self, parts: _Parts, tuples: pa.Table) -> dict[str, pa.Array]:
        assert self.content is not None
        columns = {name: self._column(ref, parts, tuples) for name, (_, ref) in self.aggregates.items()}
        table = canonical_floats(pa.table(columns))
        arguments = pa.table({name: evaluate(expr, table) for name, expr in self.content.columns})
        places = np.arange(len(parts.row), dtype=np.int64)
        members = Members(parts.output, places, Changes.inserts(places, places + 1, arguments))
        of = np.arange(parts.outputs, dtype=np.int64)
        windows = Windows(of, of, of + 1, np.empty(0, np.int64))
        no_members = Members(of[:0], of[:0], members.events)
        keys = pa.table({"": pa.nulls(len(of))}).select([])
        outputs = self.content.outputs(windows, members, keys, np.ones(len(of), bool), EarlierState({}, no_members))
        return {name: outputs.payload.column(column) for column, (name, _) in self.aggregates.items()}

    def _column(self, ref: Ref, parts: _Parts, tuples: pa.Table) -> pa.Array:
        """The argument of an aggregate for each tuple; null for tuples of other variables."""
        mask = pa.array(self._mask_of(ref, parts))
        if ref.argument is None:
            return pc.if_else(mask, pa.scalar(1, pa.int32()), pa.scalar(None, pa.int32()))
        values = evaluate(ref.argument, tuples).take(pa.array(parts.row))
        return values if ref.variable is None else pc.if_else(mask, values, pa.scalar(None, values.type))


_PLACED = ("first", "last", "classifier", "match_number", "register")


def _argument_type(ref: Ref, node: Match) -> Type:
    return Type.INT if ref.argument is None else ref.argument.type(node.references.of_tuples)
