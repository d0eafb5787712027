"""The text of native code: one function that goes through the tuples of all groups.

For each group it takes the variables from the record, goes from tuple to tuple, and puts the variables back as they are
when it comes to the first tuple that is not before the CTI. `i` is the tuple that comes next, `oldest` the one that
leaves next, `k` the number of results so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.expr.nodes import Bound
from headrace.schema import Type
from headrace.sql.aggregates import definition as d
from headrace.sql.aggregates.names import Names
from headrace.sql.aggregates.native_scalars import CONSTANTS, FUNCTIONS
from headrace.sql.aggregates.native_values import NotNative, Pair, Text, Values, check_type

__all__ = ["Writer"]

_TAKES = (
    "begin", "settle", "end", "le", "rows", "span", "active", "cti", "seen", "states", "first", "last", "row", "time",
    "wrong",
)  # fmt: skip
_LOCALS = (
    "range", "len", "min", "abs", "g", "i", "k", "at", "state", "started", "settled", "living", "oldest", "edge",
    "broken", *FUNCTIONS, *CONSTANTS,
)  # fmt: skip

#: A tuple and the time of what is returned when it leaves, and when it comes.
_OLDEST, _COMING = "oldest, le[oldest] + span", "i, le[i]"


class Writer:
    """Writes one aggregate."""

    def __init__(self, definition: d.Definition, *, terminates: bool) -> None:
        self.definition, self.terminates = definition, terminates
        self._check()
        self.names = Names((*_TAKES, *_LOCALS))
        self.title = self.names.give(definition.name)
        self.arguments = [self._names(field.name) for field in definition.parameters]
        self.arrays = [self._names(f"{field.name}_of") for field in definition.parameters]
        self.outputs = [self._names(f"{field.name}_out") for field in definition.returns]
        self.tables = [table for table in definition.tables if not table.kept_by_system]
        self.variables = {t: [self._names(f"{t.name}_{name}") for name in t.schema.names] for t in self.tables}
        fields = zip(self.arrays, definition.parameters, strict=True)
        oldest = [_read(array, field.type, "oldest") for array, field in fields]
        self.text = Text()
        self.values = Values(definition, self.text, self.arguments, self.variables, oldest)
        self.windowed = definition.window and (bool(self._stage("expire")) or definition.keeps_window)
        self._count()

    def _count(self) -> None:
        """How many results there may be."""
        count = {event: _results(self._stage(event)) for event in d.EVENTS}
        last = count["terminate"] if self.terminates else (0, 0)
        arrivals = [(count[event][0] + last[0], count[event][1] + last[1]) for event in ("initialize", "iterate")]
        least, most = min(one for one, _ in arrivals), max(one for _, one in arrivals)
        value = self.definition.value
        self.room = (max(most, 1) if value else most), count["expire"][1]
        #: Whether a tuple may have another number of values than one, and whether it may have more.
        self.uncertain = value and (least, most) != (1, 1)
        self.may_break = value and max(most, count["expire"][1]) > 1

    def _check(self) -> None:
        for field in self.definition.parameters:
            check_type(field.type, f"the argument {field.name}")
        for field in self.definition.returns:
            check_type(field.type, f"the result {field.name}")
        for table in self.definition.tables:
            if table.kept_by_system:
                continue
            if self.definition.form(table) != "row":
                many = "is a stored one" if table.stored is not None else "may have any number of rows"
                raise NotNative(f"the table {table.name} {many}")
            for field in table.schema:
                check_type(field.type, f"{table.name}.{field.name}")

    def _names(self, like: str) -> Pair:
        return Pair(self.names.give(like), (self.names.give(f"{like}_null"),))

    def _stage(self, event: str) -> Sequence[d.Statement]:
        return self.definition.stages.get(event, ())

    # --- the loop ----------------------------------------------------------------------------------------------------

    def source(self) -> str:
        """The whole text."""
        text = self.text
        takes = [*_TAKES, *(name for pair in (*self.arrays, *self.outputs) for name in (pair.value, pair.null))]
        with text.block(f"def {self.title}({', '.join(takes)}):"):
            text.add("k = 0")
            with text.block("for g in range(len(begin)):"):
                self._load()
                with text.block("while True:"):
                    if self.windowed:
                        self._leave()
                    with text.block("if i == settle[g] and not settled:"):
                        self._store()
                        text.add("settled = True", "continue")
                    with text.block("if i == end[g]:"):
                        text.add("break")
                    self._come()
                text.add(f"last[g] = {'oldest' if self.windowed else 'i'}")
            text.add("return k")
        return "\n".join(text.lines) + "\n"

    def _load(self) -> None:
        """The variables of a group from its record, or as they are at first."""
        text = self.text
        text.add("state = states[g]", 'started, settled = state["started"], False', "i = begin[g]")
        if self.windowed:
            text.add('oldest = i - state["living"]')
        for pair in self._variables():
            text.add(f'{pair.value}, {pair.null} = state["{pair.value}"], state["{pair.null}"]')
        if self.may_break:
            text.add('broken = state["broken"]')
        tables = [table for table in self.tables if table.rows]
        if tables:
            with text.block("if not started:"):
                for table in tables:
                    self._set(self.variables[table], table.rows[0])

    def _store(self) -> None:
        """The variables of a group into its record, as of the CTI."""
        text = self.text
        text.add('state["started"] = started')
        if self.windowed:
            # Of a window without end no more is asked than its first tuple.
            ever = "min(i - oldest, 1)" if self.definition.keeps_window else "0"
            text.add(f'state["living"] = i - oldest if rows >= 0 or span >= 0 else {ever}')
        if self.may_break:
            text.add('state["broken"] = broken')
        text.add(f"first[g] = {'oldest' if self.windowed else 'i'}")
        for pair in self._variables():
            text.add(f'state["{pair.value}"], state["{pair.null}"] = {pair.value}, {pair.null}')

    def _leave(self) -> None:
        """Those that have left before what comes next: the CTI, a tuple, or nothing more."""
        text = self.text
        with text.block("if i == settle[g] and not settled:"):
            text.add("edge = left_before(cti, span)")
        with text.block("elif i < end[g]:"):
            text.add("edge = left_before(le[i], span)")
        with text.block("else:"):
            text.add("edge = left_before(min(seen, MOST - 1) + 1, span) if active else NEVER")
        with text.block("while oldest < i and (0 <= rows < i - oldest or le[oldest] < edge):"):
            self._one_leaves()
            text.add("oldest += 1")

    def _one_leaves(self) -> None:
        if not self.may_break:
            self._event("expire")
            return
        text = self.text
        with text.block("if broken == 0:"):
            text.add("at = k")
            self._event("expire")
            with text.block("if k - at > 1:"):
                text.add("broken = k - at", f"row[at], time[at], wrong[at] = {_OLDEST}, broken", "k = at + 1")

    def _come(self) -> None:
        """The next tuple, unless the group is broken: then nothing is known of it any more."""
        text = self.text
        if not self.may_break:
            self._arrive()
        else:
            with text.block("if broken == 0:"):
                self._arrive()
            with text.block("else:"):
                text.add(f"row[k], time[k], wrong[k] = {_COMING}, broken", "k += 1")
        text.add("i += 1")

    def _arrive(self) -> None:
        text = self.text
        fields = zip(self.arguments, self.arrays, self.definition.parameters, strict=True)
        for pair, array, field in fields:
            read = _read(array, field.type, "i")
            text.add(f"{pair.value}, {pair.null} = {read.value}, {read.null}")
        if self.uncertain:
            text.add("at = k")
        with text.block("if started:"):
            self._event("iterate")
        with text.block("else:"):
            self._event("initialize")
            text.add("started = True")
        if self.terminates:
            self._event("terminate")
        if self.uncertain:
            self._one_value()

    def _one_value(self) -> None:
        """A tuple without a value has NULL; with several, something is wrong."""
        text, (out,) = self.text, self.outputs
        with text.block("if k == at and not active:"):
            text.add(f"{out.value}[k], {out.null}[k] = 0, True", f"row[k], time[k] = {_COMING}", "k += 1")
        if self.may_break:
            with text.block("elif k - at > 1:"):
                text.add("broken = k - at", f"row[at], time[at], wrong[at] = {_COMING}, broken", "k = at + 1")

    def _variables(self) -> list[Pair]:
        return [pair for pairs in self.variables.values() for pair in pairs]

    @property
    def record(self) -> np.dtype[np.void]:
        """The numbers first, so that each stands where the machine likes it."""
        kinds = [_held(field.type) for table in self.tables for field in table.schema]
        fields: list[tuple[str, Any]] = [("living", np.int64), ("broken", np.int64)]
        fields += [(pair.value, kind) for pair, kind in zip(self._variables(), kinds, strict=True)]
        fields += [("started", np.bool_), *((pair.null, np.bool_) for pair in self._variables())]
        return np.dtype(fields, align=True)

    # --- statements --------------------------------------------------------------------------------------------------

    def _event(self, event: str) -> None:
        for statement in self._stage(event):
            self.text.add(f"# line {statement.line}")
            try:
                self._statement(statement, event)
            except NotNative as reason:
                raise NotNative(f"line {statement.line}: {reason}") from None

    def _statement(self, statement: d.Statement, event: str) -> None:
        if isinstance(statement, d.Insert):
            if statement.table is None:
                self._return(statement, event)
            else:
                self._set(self.variables[statement.table], statement.rows[0])
        elif isinstance(statement, d.Update):
            self._update(statement)
        else:
            raise NotNative("DELETE works on tables of any number of rows")

    def _update(self, one: d.Update) -> None:
        pairs = self.variables[one.source.table]
        if one.where is None:
            self._set(pairs, one.values)
            return
        with self.text.block(f"if {self.values.of(one.where).holds}:"):
            self._set(pairs, one.values)

    def _set(self, pairs: Sequence[Pair], news: Sequence[Bound | None]) -> None:
        """All at once, so that values are those of before."""
        found = [(pair, self.values.of(new)) for pair, new in zip(pairs, news, strict=True) if new is not None]
        names = ", ".join(f"{pair.value}, {pair.null}" for pair, _ in found)
        self.text.add(f"{names} = {', '.join(f'{new.value}, {new.null}' for _, new in found)}")

    def _return(self, one: d.Insert, event: str) -> None:
        select = one.select
        if select is None:
            for row in one.rows:
                self._give(row, event, "True")
            return
        self.values.check_select(select)
        wanted = self.values.wanted(select)
        if wanted != "False":
            self._give(select.entries, event, wanted)

    def _give(self, row: Sequence[Bound], event: str, wanted: str) -> None:
        """A result. What is returned when a tuple leaves counts only where leaving is an event of its own."""
        if event == "expire":
            wanted = "active" if wanted == "True" else f"active and ({wanted})"
        if wanted == "True":
            self._write(row, event)
            return
        with self.text.block(f"if {wanted}:"):
            self._write(row, event)

    def _write(self, row: Sequence[Bound], event: str) -> None:
        for pair, value in zip(self.outputs, row, strict=True):
            found = self.values.of(value)
            self.text.add(f"{pair.value}[k], {pair.null}[k] = {found.value}, {found.null}")
        self.text.add(f"row[k], time[k] = {_OLDEST if event == 'expire' else _COMING}", "k += 1")


def _read(array: Pair, kind: Type, index: str) -> Pair:
    """A value of a tuple."""
    value = f"{array.value}[{index}]"
    if kind is not Type.BOOLEAN and kind is not Type.DOUBLE:
        value = f"single({value})" if kind is Type.FLOAT else f"np.int64({value})"
    return Pair(value, (f"{array.null}[{index}]",))


def _results(statements: Sequence[d.Statement]) -> tuple[int, int]:
    """How many rows they return, at least and at most, if what they select from has one row at most."""
    least = most = 0
    for one in statements:
        if isinstance(one, d.Insert) and one.table is None:
            select = one.select
            most += len(one.rows) if select is None else 1
            least += len(one.rows) if select is None else int(select.where is None and select.limit != 0)
    return least, most


def _held(kind: Type) -> np.dtype[Any]:
    """What a variable is: whole numbers are checked against their width, not kept in it."""
    if kind is Type.BOOLEAN:
        return np.dtype(np.bool_)
    return np.dtype(np.float64 if kind.is_floating else np.int64)
