"""A traced run as tables, and as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.border import DATE, shown
from headrace.changes import Changes
from headrace.columnar import Int64s
from headrace.display.words import clipped, counted
from headrace.errors import PlanError
from headrace.events import history
from headrace.expr import Expr
from headrace.io.console import show_table
from headrace.plan.nodes import Combine, Diverted, Failures, Orphans
from headrace.time import INFINITY, NEG_INFINITY, TimeLike
from headrace.tracing.compare import Comparison
from headrace.tracing.given import chosen_row, without_events
from headrace.tracing.kept_away import complete
from headrace.tracing.record import TracedOperator, TraceRecord
from headrace.tracing.recording import RecordedBatch, state_rows
from headrace.tracing.retracted import why_retracted
from headrace.tracing.why import Explainer, Why
from headrace.tracing.why_cti import WhyCti, why_cti
from headrace.tracing.why_not import WhyNot, wanted_row, why_not
from headrace.tracing.wide import beside, wide

__all__ = ["TracedRun", "change_table"]

#: Second outputs of other operators.
_SIDES = (Diverted, Failures, Orphans)
#: The columns of `changes` besides those of the operators.
_OWN = ("batch", "operator", "le", "re", "weight")


class TracedRun:
    """A run with the changes of every operator in every batch; one of a session that debugs may not be finished.

    Operators have numbers, inputs before their readers; batches are numbered from 0, and the last one is the end of the
    input. `operators`, `edges`, `batches` and `changes` are Arrow tables, made when they are first asked for.
    """

    def __init__(self, record: TraceRecord) -> None:
        self.record = record

    # --- tables ------------------------------------------------------------------------------------------------------

    @cached_property
    def operators(self) -> pa.Table:
        """A row for each operator: what it is, which it reads, and its changes, time and largest state in all."""
        rows = []
        for operator in self.record.operators:
            parts = [changes for _, changes in self.record.changes_by_batch(operator)]
            sizes = [batch.sizes[operator.key] for batch in self.record.batches if operator.key in batch.sizes]
            rows.append({
                "operator": operator.number,
                "kind": type(operator.node).__name__,
                "text": operator.text,
                "inputs": list(operator.inputs),
                "changes": sum(map(len, parts)),
                "removals": sum(int((part.weight < 0).sum()) for part in parts),
                "seconds": sum(self._seconds(batch, operator) for batch in self.record.batches),
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
        for number, batch in self.record.numbered():
            for operator in self.record.operators:
                now, size = self.record.progress_of(operator, number), batch.sizes.get(operator.key, {})
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
        for number, batch in self.record.numbered():
            for operator in self.record.operators:
                for position, producer in enumerate(self._fed_by(operator)):
                    parts = batch.changes.get(producer.key, ())
                    removals = sum(int((part.weight < 0).sum()) for part in parts)
                    edge = (number, producer.number, operator.number, position, sum(map(len, parts)), removals)
                    rows.append(
                        dict(zip(_EDGES.names, (*edge, self.record.progress_of(producer, number).cti), strict=True))
                    )
        return self._shown_times(pa.Table.from_pylist(rows, schema=_EDGES), "cti")

    @cached_property
    def changes(self) -> pa.Table:
        """Every change that an operator gave: batch, operator, lifetime, weight, and the columns of all operators.

        Columns that an operator does not have are null. If columns of one name have several types, those of the later
        operators have their type in their name; `of` gives the changes of one operator with its own columns.
        """
        return self._wide([self._table(operator) for operator in self.record.operators])

    def of(self, operator: int, *, batches: range | None = None) -> pa.Table:
        """The changes that one operator gave, with its columns; by default in all batches."""
        self._check_batches(batches)
        return shown(self._table(self.record.operator(operator), batches), dates=self.record.dates)

    def history(self, operator: int | None = None, batch: int | None = None) -> pa.Table:
        """The history (CHT) of an operator after a batch: by default, that of the output at the end."""
        found = self.record.operator(operator) if operator is not None else self.record.output
        return shown(history(self.record.changes_until(found, batch)), dates=self.record.dates)

    def state(self, operator: int, batch: int | None = None) -> dict[str, pa.Table]:
        """The state of an operator after a batch, by default the last but the end: its tables, by name."""
        found = self.record.operator(operator)
        number = self.record.number(batch, default=self.record.latest)
        if found.node.linear or not any(recorded.states for recorded in self.record.batches):
            raise PlanError(
                "this state is not kept",
                given=f"#{operator} {clipped(found.text, 60)}",
                allowed="operators with a state, in a trace that keeps it",
                instead="stream.trace(state=True)",
            )
        kept = self.record.batch(number).states.get(found.key, {})
        tables = {name: state_rows(*saved) for name, saved in kept.items()}
        return {name: table for name, table in tables.items() if table is not None}

    # --- questions ---------------------------------------------------------------------------------------------------

    def why(
        self,
        row: Mapping[str, Any] | Expr | None = None,
        *,
        operator: int | None = None,
        batch: int | None = None,
        at: TimeLike | None = None,
        **columns: Any,
    ) -> Why:
        """Why an event is there: the steps back to exactly the input events that caused it.

        The event is the one with these values, or the one that fulfils a predicate: `why(symbol="A", price=10.5)`,
        `why(col("price") > 11)`; of several, `at` chooses the one that lasts at a time. By
        default it is an answer at the end; `operator` and `batch` choose another history.
        The input events are in `.inputs`; printed, it shows the steps, with windows and matches in between.
        """
        found = self.record.operator(operator) if operator is not None else self.record.output
        explainer = Explainer(self.record, self.record.settled(found, self.record.number(batch)))
        event = chosen_row(found, explainer.changes(found), row, columns, at=at)
        return complete(explainer, explainer.why(found, event))

    def why_not(
        self,
        row: Mapping[str, Any] | Expr | None = None,
        *,
        operator: int | None = None,
        batch: int | None = None,
        at: TimeLike | None = None,
        **columns: Any,
    ) -> WhyNot:
        """Why an event that one expects is not there: where the input events that would have made it were lost.

        It is described by some of its values, its lifetime or a time `at` which it lasts, or by a condition:
        `why_not(symbol="B", at="2024-05-01T12:00:05")`. By default it is an answer at the end; `operator` and `batch`
        choose another history. Printed, it shows the reasons with the events that explain them, nearest to the answer
        first; `.reasons` has them as objects, and `.inputs` the input events and rows concerned.
        """
        found = self.record.operator(operator) if operator is not None else self.record.output
        return why_not(self.record, found, wanted_row(found, row, columns, at), self.record.number(batch))

    def why_cti(self, operator: int | None = None, batch: int | None = None) -> WhyCti:
        """Why the CTI of an operator is where it is after a batch: step by step to what holds it.

        By default it is that of the answer, after the last batch but the end of the input. `.holders` are the steps
        that hold it: an open window, an event that may still change, a source with its promise.
        """
        found = self.record.operator(operator) if operator is not None else self.record.output
        number = self.record.number(batch, default=self.record.latest)
        return why_cti(self.record, found, self.record.settled(found, number))

    def why_retracted(
        self, row: Mapping[str, Any] | Expr | None = None, *, operator: int | None = None, **columns: Any
    ) -> Why:
        """Why an event was taken back, the last time that it was: the events that its batch added or removed.

        The event has these values, also of `le` and `re`, or fulfils a predicate. Printed, the answer shows the
        steps back to the inputs.
        """
        found = self.record.operator(operator) if operator is not None else self.record.output
        return why_retracted(self.record, found, row, columns)

    def without(self, *rows: tuple[int, Mapping[str, Any]]) -> TracedRun:
        """The same run without some input events, each as the number of its operator and its values.

        Lateness and progress stay as they were, so that only the events themselves are missing. Physical events with
        one payload and start can be left out only together: `TraceError` if some of them are not given.
        """
        given: tuple[Any, ...] = rows
        if wrong := [row for row in given if not isinstance(row, tuple) or len(row) != 2]:
            raise PlanError(
                "this names no input event", given=wrong[0], allowed="pairs of the number of an operator and values",
                instead="trace.without((1, {'symbol': 'A'}))",
            )  # fmt: skip
        operators = [self.record.operator(number) for number, _ in rows]
        gone = [
            (operator, chosen_row(operator, self.record.changes_until(operator), values, {}))
            for operator, (_, values) in zip(operators, rows, strict=True)
        ]
        return TracedRun(without_events(self.record, gone))

    def compare(self, other: TracedRun) -> Comparison:
        """Compare this run with another: two versions of a query over the same input, or one over two inputs.

        `.operators` has the first batch in which each pair of operators differs, `.differences(...)` the changes there,
        and `.answers` the rows that only one of the answers has, or both.
        """
        if not isinstance(other, TracedRun):
            raise PlanError("this is not a trace", given=other, allowed="a trace", instead="stream.trace()")
        return Comparison(self.record, other.record)

    def forward(self, row: Mapping[str, Any] | Expr | None = None, *, operator: int = 1, **columns: Any) -> pa.Table:
        """What became of an input event: how all histories differ from those of the same run without it.

        A row has a `weight` of 1 if it is there because of the event, and of -1 if the event keeps it away, at the end.
        `TraceError` for physical events of which others have the payload and start, since nothing distinguishes these.
        """
        found = self.record.operator(operator)
        event = chosen_row(found, self.record.changes_until(found), row, columns)
        other = without_events(self.record, [(found, event)])
        tables = [change_table(one, [(0, self.record.difference(other, one))]) for one in self.record.operators]
        return self._wide([table.drop_columns(["batch"]) for table in tables])

    # --- texts -------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        lines = [self._title()]
        for row in self.operators.to_pylist():
            reads = f" ← {', '.join(f'#{number}' for number in row['inputs'])}" if row["inputs"] else ""
            facts = [counted(row["changes"], "change")]
            facts += [counted(row["removals"], "removal")] if row["removals"] else []
            facts += [f"state up to {counted(row['state_rows'], 'row')}"] if row["state_rows"] is not None else []
            lines += [f"  #{row['operator']} {clipped(row['text'], 100)}{reads}", f"       {', '.join(facts)}"]
        return "\n".join(lines)

    def _title(self) -> str:
        first, count = self.record.first, len(self.record.batches) - self.record.ended
        if first:
            return f"Trace of the batches {first} to {first + count - 1}, from the state before them"
        end = "and the end of the input" if self.record.ended else "so far"
        failed = f"; it {self.record.failure}" if self.record.failure is not None else ""
        return f"Trace of {count:,} batch{'' if count == 1 else 'es'}, {end}{failed}"

    def show(self, operator: int | None = None, *, batches: range | None = None, n: int = 20) -> None:
        """Print the changes of an operator, by default of the output; `batches` are some of the trace."""
        self._check_batches(batches)
        found = self.record.operator(operator) if operator is not None else self.record.output
        show_table(shown(self._table(found, batches), dates=self.record.dates), n)

    # --- parts -------------------------------------------------------------------------------------------------------

    def _check_batches(self, batches: range | None) -> None:
        if batches is not None and not isinstance(batches, range):
            raise PlanError("these are not numbers of batches", given=batches, allowed="a range", instead="range(2, 5)")
        for number in (*batches[:1], *batches[-1:]) if batches is not None else ():
            self.record.number(number)

    def _fed_by(self, operator: TracedOperator) -> list[TracedOperator]:
        """The operators whose changes it gets; side outputs get none."""
        return [] if isinstance(operator.node, _SIDES) else [self.record.operator(number) for number in operator.inputs]

    def _count(self, batch: RecordedBatch, operator: TracedOperator) -> int:
        return sum(map(len, batch.changes.get(operator.key, ())))

    def _seconds(self, batch: RecordedBatch, operator: TracedOperator) -> float:
        combining = [
            c.fingerprint for c in self.record.line.nodes if isinstance(c, Combine) and c.aggregate == operator.node
        ]
        return sum(batch.seconds.get(key, 0.0) for key in [operator.key, *combining])

    def _shown_times(self, table: pa.Table, *names: str) -> pa.Table:
        """Columns of times as users see them; null is the time before the first promise, and the end."""
        for name in names:
            known = [None if time in (INFINITY, NEG_INFINITY) else time for time in table[name].to_pylist()]
            ticks = pa.array(known, pa.int64())
            column = ticks.view(DATE) if self.record.dates else ticks
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _wide(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Tables of several operators as one."""
        return shown(wide(tables), dates=self.record.dates)

    def _table(self, operator: TracedOperator, batches: range | None = None) -> pa.Table:
        chosen = [(n, part) for n, part in self.record.changes_by_batch(operator) if batches is None or n in batches]
        return change_table(operator, chosen)


def change_table(operator: TracedOperator, chosen: Sequence[tuple[int, Changes]]) -> pa.Table:
    """Changes of an operator with the numbers of their batches, as a table with ticks."""
    changes = Changes.concat([Changes.empty(operator.node.schema), *(part for _, part in chosen)])
    numbers: Int64s = np.repeat([n for n, _ in chosen], [len(part) for _, part in chosen]).astype(np.int64)
    own = (numbers, np.full(len(changes), operator.number), changes.le, changes.re, changes.weight)
    table = pa.table([pa.array(column, pa.int64()) for column in own], names=list(_OWN))
    for name, column in zip(beside(_OWN, changes.payload.column_names), changes.payload.columns, strict=True):
        table = table.append_column(name, column)
    return table


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
