"""A traced run as tables, and as texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.border import DATE, shown
from headrace.changes import Changes
from headrace.columnar import Int64s
from headrace.display.words import clipped, counted
from headrace.errors import PlanError
from headrace.events import history
from headrace.host.local.measured import tapped_batches
from headrace.host.local.run import Runner
from headrace.host.received import received
from headrace.host.result import FinishedRun
from headrace.io.console import show_table
from headrace.optimizer import Rule
from headrace.optimizer.combine_before_shuffle import combine_before_shuffle
from headrace.optimizer.read_tables import read_tables
from headrace.plan.nodes import Combine, Diverted, Failures, Merge, Node, Orphans, Output
from headrace.progress import Progress
from headrace.stages.cut import Line, line_of
from headrace.time import INFINITY, NEG_INFINITY
from headrace.tracing.recording import RecordedBatch, Recorder, changes_of, state_rows

__all__ = ["TracedOperator", "TracedRun", "trace_local"]

#: The rules of a traced query: it runs as it is written.
TRACED_RULES: tuple[Rule, ...] = (read_tables, combine_before_shuffle)
#: Second outputs of other operators.
_SIDES = (Diverted, Failures, Orphans)
#: The columns of `changes` besides those of the operators.
_OWN = ("batch", "operator", "le", "re", "weight")


def trace_local(outputs: Sequence[Output], *, batch_rows: int | None = None, state: bool = False) -> TracedRun:
    """Run to the end of all sources, and keep everything."""
    with received(outputs) as bounded:
        line = line_of(bounded, 1, TRACED_RULES)
        recorder = Recorder(line, state=state)
        runner = Runner(line, 1, None, tap=recorder)
        for taken in tapped_batches(runner, batch_rows):
            runner.run(taken)
            recorder.end_batch(runner, taken)
        runner.end()
        recorder.end_batch(runner)
    return TracedRun(line, recorder.batches, runner.done)


@dataclass(frozen=True)
class TracedOperator:
    """An operator of a traced query: its number, its node, and the numbers of those it reads."""

    number: int
    node: Node
    inputs: tuple[int, ...]
    #: The fingerprint of the node that ran, by which its changes are kept.
    key: str

    @property
    def text(self) -> str:
        return self.node.describe()


class TracedRun:
    """A finished run with the changes of every operator in every batch.

    Operators have numbers, inputs before their readers; batches are numbered from 0, and the last one is the end of the
    input. `operators`, `edges`, `batches` and `changes` are Arrow tables, made when they are first asked for.
    """

    def __init__(self, line: Line, recorded: Sequence[RecordedBatch], done: FinishedRun) -> None:
        self._line, self._recorded, self._done = line, recorded, done
        self._operators = list(_operators(line))
        self._by_key = {operator.key: operator for operator in self._operators}

    # --- tables ------------------------------------------------------------------------------------------------------

    @cached_property
    def operators(self) -> pa.Table:
        """A row for each operator: what it is, which it reads, and its changes, time and largest state in all."""
        rows = []
        for operator in self._operators:
            parts = [changes for _, changes in self._changes(operator)]
            sizes = [batch.sizes[operator.key] for batch in self._recorded if operator.key in batch.sizes]
            rows.append({
                "operator": operator.number,
                "kind": type(operator.node).__name__,
                "text": operator.text,
                "inputs": list(operator.inputs),
                "changes": sum(map(len, parts)),
                "removals": sum(int((part.weight < 0).sum()) for part in parts),
                "seconds": sum(self._seconds(batch, operator) for batch in self._recorded),
                "state_rows": max((size["rows"] for size in sizes), default=None),
                "state_bytes": max((size["bytes"] for size in sizes), default=None),
            })  # fmt: skip
        return pa.Table.from_pylist(rows, schema=_OPERATORS)

    @cached_property
    def batches(self) -> pa.Table:
        """A row for each batch and operator: changes in and out, progress after the batch, time and state.

        A CTI is null before the first promise, and at the end of the input, when it is infinite.
        """
        rows = []
        for number, batch in enumerate(self._recorded):
            for operator in self._operators:
                now, size = self._progress(operator, number), batch.sizes.get(operator.key, {})
                rows.append({
                    "batch": number,
                    "operator": operator.number,
                    "changes_in": sum(self._count(batch, producer) for producer in self._fed_by(operator)),
                    "changes_out": self._count(batch, operator),
                    "cti": now.cti,
                    "high": now.high,
                    "seconds": self._seconds(batch, operator),
                    "state_rows": size.get("rows"),
                    "state_bytes": size.get("bytes"),
                })  # fmt: skip
        return self._shown_times(pa.Table.from_pylist(rows, schema=_BATCHES), "cti", "high")

    @cached_property
    def edges(self) -> pa.Table:
        """A row for each batch and edge: which operator gave how many changes to which, and its CTI after the batch."""
        rows = []
        for number, batch in enumerate(self._recorded):
            for operator in self._operators:
                for position, producer in enumerate(self._fed_by(operator)):
                    parts = batch.changes.get(producer.key, ())
                    removals = sum(int((part.weight < 0).sum()) for part in parts)
                    edge = (number, producer.number, operator.number, position, sum(map(len, parts)), removals)
                    rows.append(dict(zip(_EDGES.names, (*edge, self._progress(producer, number).cti), strict=True)))
        return self._shown_times(pa.Table.from_pylist(rows, schema=_EDGES), "cti")

    @cached_property
    def changes(self) -> pa.Table:
        """Every change that an operator gave: batch, operator, lifetime, weight, and the columns of all operators.

        Columns that an operator does not have are null. If columns of one name have several types, those of the later
        operators have their type in their name; `of` gives the changes of one operator with its own columns.
        """
        known: dict[str, pa.DataType] = {}
        tables = []
        for operator in self._operators:
            table = self._table(operator)
            names = []
            for column in table.schema:
                kept = known.setdefault(column.name, column.type)
                names.append(column.name if kept == column.type else f"{column.name} {column.type}")
            tables.append(table.rename_columns(names))
        return shown(pa.concat_tables(tables, promote_options="default"), dates=self.dates)

    def of(self, operator: int, *, batches: range | None = None) -> pa.Table:
        """The changes that one operator gave, with its columns; by default in all batches."""
        return shown(self._table(self._operator(operator), batches), dates=self.dates)

    def history(self, operator: int | None = None, batch: int | None = None) -> pa.Table:
        """The history (CHT) of an operator after a batch: by default, that of the output at the end."""
        found = self._operator(operator) if operator is not None else self._output
        return shown(history(self._changes_until(found, batch)), dates=self.dates)

    def state(self, operator: int, batch: int | None = None) -> dict[str, pa.Table]:
        """The state of an operator after a batch, by default the last but the end: its tables, by name."""
        found = self._operator(operator)
        number = self._number(batch, default=max(0, len(self._recorded) - 2))
        if found.node.linear or not any(recorded.states for recorded in self._recorded):
            raise PlanError(
                "this state is not kept",
                given=f"#{operator} {clipped(found.text, 60)}",
                allowed="operators with a state, in a trace that keeps it",
                instead="stream.trace(state=True)",
            )
        kept = self._recorded[number].states.get(found.key, {})
        tables = {name: state_rows(*saved) for name, saved in kept.items()}
        return {name: table for name, table in tables.items() if table is not None}

    # --- texts -------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        count = len(self._recorded) - 1
        lines = [f"Trace of {count:,} batch{'' if count == 1 else 'es'}, and the end of the input"]
        for row in self.operators.to_pylist():
            reads = f" ← {', '.join(f'#{number}' for number in row['inputs'])}" if row["inputs"] else ""
            facts = [counted(row["changes"], "change")]
            facts += [counted(row["removals"], "removal")] if row["removals"] else []
            facts += [f"state up to {counted(row['state_rows'], 'row')}"] if row["state_rows"] is not None else []
            lines += [f"  #{row['operator']} {clipped(row['text'], 100)}{reads}", f"       {', '.join(facts)}"]
        return "\n".join(lines)

    def show(self, operator: int | None = None, *, batches: range | None = None, n: int = 20) -> None:
        """Print the changes of an operator, by default of the output."""
        found = self._operator(operator) if operator is not None else self._output
        show_table(shown(self._table(found, batches), dates=self.dates), n)

    # --- parts -------------------------------------------------------------------------------------------------------

    @cached_property
    def dates(self) -> bool:
        """Whether its times are dates."""
        return any(operator.node.dates for operator in self._operators)

    @property
    def _output(self) -> TracedOperator:
        return self._by_key[self._line.outputs[0].input.fingerprint]

    def _operator(self, number: int) -> TracedOperator:
        if type(number) is not int or not 1 <= number <= len(self._operators):
            raise PlanError(
                "there is no such operator in this trace", given=number, allowed=f"1 to {len(self._operators)}"
            )
        return self._operators[number - 1]

    def _fed_by(self, operator: TracedOperator) -> list[TracedOperator]:
        """The operators whose changes it gets; side outputs get none."""
        return [] if isinstance(operator.node, _SIDES) else [self._operator(number) for number in operator.inputs]

    def _number(self, batch: int | None, default: int | None = None) -> int:
        last = len(self._recorded) - 1
        if batch is None:
            return last if default is None else default
        if type(batch) is not int or not 0 <= batch <= last:
            raise PlanError("there is no such batch in this trace", given=batch, allowed=f"0 to {last}")
        return batch

    def _changes(self, operator: TracedOperator) -> list[tuple[int, Changes]]:
        return changes_of(self._recorded, operator.key)

    def _changes_until(self, operator: TracedOperator, batch: int | None = None) -> Changes:
        """All changes of an operator up to a batch."""
        last = self._number(batch)
        parts = [changes for number, changes in self._changes(operator) if number <= last]
        return Changes.concat([Changes.empty(operator.node.schema), *parts])

    def _progress(self, operator: TracedOperator, batch: int) -> Progress:
        now = self._recorded[batch].progress.get(operator.key, Progress())
        return Progress(INFINITY, now.high) if batch == len(self._recorded) - 1 else now

    def _count(self, batch: RecordedBatch, operator: TracedOperator) -> int:
        return sum(map(len, batch.changes.get(operator.key, ())))

    def _seconds(self, batch: RecordedBatch, operator: TracedOperator) -> float:
        combining = [c.fingerprint for c in self._line.nodes if isinstance(c, Combine) and c.aggregate == operator.node]
        return sum(batch.seconds.get(key, 0.0) for key in [operator.key, *combining])

    def _shown_times(self, table: pa.Table, *names: str) -> pa.Table:
        """Columns of times as users see them; null is the time before the first promise, and the end."""
        for name in names:
            known = [None if time in (INFINITY, NEG_INFINITY) else time for time in table[name].to_pylist()]
            ticks = pa.array(known, pa.int64())
            column = ticks.view(DATE) if self.dates else ticks
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _table(self, operator: TracedOperator, batches: range | None = None) -> pa.Table:
        chosen = [(n, part) for n, part in self._changes(operator) if batches is None or n in batches]
        changes = Changes.concat([Changes.empty(operator.node.schema), *(part for _, part in chosen)])
        numbers: Int64s = np.repeat([n for n, _ in chosen], [len(part) for _, part in chosen]).astype(np.int64)
        own = (numbers, np.full(len(changes), operator.number), changes.le, changes.re, changes.weight)
        table = pa.table([pa.array(column, pa.int64()) for column in own], names=list(_OWN))
        for name, column in zip(changes.payload.column_names, changes.payload.columns, strict=True):
            table = table.append_column(f"{name}_value" if name in _OWN else name, column)
        return table


def _operators(line: Line) -> Iterator[TracedOperator]:
    """The operators of a plan; an aggregate that combines first is one, and outputs are none."""
    numbers: dict[str, int] = {}
    for node in line.nodes:
        if isinstance(node, (Combine, Output)):
            continue
        written = node.aggregate if isinstance(node, Merge) else node
        numbers[node.fingerprint] = len(numbers) + 1
        inputs = tuple(numbers[child.fingerprint] for child in written.inputs)
        yield TracedOperator(len(numbers), written, inputs, node.fingerprint)


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


_INT, _TEXT, _FLOAT = pa.int64(), pa.string(), pa.float64()
_OPERATORS = _schema(
    operator=_INT, kind=_TEXT, text=_TEXT, inputs=pa.list_(_INT), changes=_INT, removals=_INT, seconds=_FLOAT,
    state_rows=_INT, state_bytes=_INT,
)  # fmt: skip
_BATCHES = _schema(
    batch=_INT, operator=_INT, changes_in=_INT, changes_out=_INT, cti=_INT, high=_INT, seconds=_FLOAT,
    state_rows=_INT, state_bytes=_INT,
)  # fmt: skip
_EDGES = _schema(batch=_INT, producer=_INT, consumer=_INT, position=_INT, changes=_INT, removals=_INT, cti=_INT)
