"""The text of native code: one function that goes through the tuples of all groups.

For each group it takes the variables from the state, goes from tuple to tuple, and puts the variables back as they are
when it comes to the first tuple that is not before the CTI. `i` is the tuple that comes next, `oldest` the one that
leaves next, `k` the number of results so far. In *slots*, each of `slide` tuples, nothing leaves: the first `skipped`
are passed over, the others come, at the last one the aggregate answers, and the next slot begins with nothing;
`place` is the place of the next tuple in its slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.schema import Type
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.native.rows import ROW_FUNCTIONS
from headrace.sql.aggregates.native.scalars import CONSTANTS, FUNCTIONS
from headrace.sql.aggregates.native.selects import FAILURES, SelectWriter, default
from headrace.sql.aggregates.native.state import StateWriter
from headrace.sql.aggregates.native.statements import Statements
from headrace.sql.aggregates.native.tables import TableCode
from headrace.sql.aggregates.native.values import CodeLines, NotNative, Pair, check_type
from headrace.sql.aggregates.python.names import Names

__all__ = ["TAKES", "Writer", "read"]

#: What the function takes before the columns of tuples.
TAKES = (
    "begin", "settle", "end", "le", "rows", "span", "active", "slide", "skipped", "cti", "seen", "room", "held",
    "held_decimals", "held_at", "saved_at", "first", "last",
)  # fmt: skip
_LOCALS = (
    "range", "len", "min", "max", "abs", "g", "i", "k", "at", "started", "settled", "living", "oldest", "edge",
    "broken", "failed", "place", "answers", "low", "high", "row", "time", "wrong", "saved", "saved_decimals", "top",
    "new", "new_decimals", "new_used", "new_row", "stands", *FUNCTIONS, *ROW_FUNCTIONS, *CONSTANTS,
)  # fmt: skip

#: A tuple and the time of what is returned when it leaves.
_OLDEST = "oldest, le[oldest] + span"


class Writer:
    """Writes one aggregate; `terminates` if TERMINATE is done after each tuple, `slots` if it answers for slots."""

    #: A tuple and the time of what is returned when it comes.
    coming = "i, le[i]"

    def __init__(self, definition: d.AggregateDefinition, *, terminates: bool, slots: bool = False) -> None:
        self.definition, self.terminates, self.slots = definition, terminates or slots, slots
        self._check()
        names = Names((*TAKES, *_LOCALS))
        self.title = names.give(definition.name)
        self.arguments = [_names(names, field.name) for field in definition.parameters]
        self.arrays = [_names(names, f"{field.name}_of") for field in definition.parameters]
        self.outputs = [_names(names, f"{field.name}_out") for field in definition.returns]
        self.text = CodeLines()
        tables = [table for table in definition.tables if not table.kept_by_system]
        single = {t: [_names(names, f"{t.name}_{n}") for n in t.schema.names] for t in tables if self._is_row(t)}
        self.many = {table: TableCode(table, names, self.text) for table in tables if table not in single}
        fields = zip(self.arrays, definition.parameters, strict=True)
        oldest = [read(array, field.type, "oldest") for array, field in fields]
        self.values = SelectWriter(definition, self.text, self.arguments, single, oldest, self.many)
        self.statements = Statements(self.values, self._give)
        self.windowed = definition.window and (bool(self._stage("expire")) or definition.keeps_window)
        self.state = StateWriter(self.text, single, tuple(self.many.values()))
        self._count()

    def _check(self) -> None:
        for field in self.definition.parameters:
            check_type(field.type, f"the argument {field.name}")
        for field in self.definition.returns:
            check_type(field.type, f"the result {field.name}")
        for table in self.definition.tables:
            if not table.kept_by_system:
                if table.stored is not None:
                    raise NotNative(f"the table {table.name} is a stored one")
                for field in table.schema:
                    check_type(field.type, f"{table.name}.{field.name}")
        if self.slots and not self.definition.value and any(map(self._returns, ("initialize", "iterate"))):
            raise NotNative("rows are returned before a slot is complete")

    def _is_row(self, table: d.StateTable) -> bool:
        return self.definition.form(table) == "row"

    def _count(self) -> None:
        """How many results there may be."""
        count = {event: self._results(self._stage(event)) for event in d.EVENTS}
        last = count["terminate"] if self.terminates else (0, 0)
        arrivals = [(count[event][0] + last[0], count[event][1] + last[1]) for event in ("initialize", "iterate")]
        least, most = min(one for one, _ in arrivals), max(one for _, one in arrivals)
        value = self.definition.value
        self.room = (max(most, 1) if value else most), count["expire"][1]
        #: Whether a tuple may have another number of values than one, and whether something may go wrong.
        self.uncertain = value and (least, most) != (1, 1)
        self.may_break = bool(self.many) or (value and max(most, count["expire"][1]) > 1)
        if self.may_break:  # there is room to say so
            self.room = max(self.room[0], 1), max(self.room[1], 1)

    def _results(self, statements: Sequence[d.BodyStatement]) -> tuple[int, int]:
        """How many rows they return, at least and at most, where these are not rows of a table of many."""
        least = most = 0
        for one in statements:
            if isinstance(one, d.BodyInsert) and one.table is None:
                select = one.select
                most += len(one.rows) if select is None else 2 if self._any_number(select) else 1
                least += len(one.rows) if select is None else int(self._sure(select))
        return least, most

    def _any_number(self, select: d.Selected) -> bool:
        return self.values.reads_many(select) and not select.aggregated

    def _sure(self, select: d.Selected) -> bool:
        """Whether it has a row in any case."""
        if select.aggregated:
            return select.having is None
        return select.where is None and select.limit != 0 and not self.values.reads_many(select)

    @property
    def failures(self) -> tuple[str, ...]:
        """What may go wrong, by the rest of a code; the first is that there are several values."""
        return tuple(self.values.failures)

    def _stage(self, event: str) -> Sequence[d.BodyStatement]:
        return self.definition.stages.get(event, ())

    def _returns(self, event: str) -> bool:
        return any(isinstance(one, d.BodyInsert) and one.table is None for one in self._stage(event))

    # --- the loop ----------------------------------------------------------------------------------------------------

    def source(self) -> str:
        """The whole text."""
        with self._function():
            self.state.declare()
            with self.text.block("for g in range(len(begin)):"):
                self._group()
            self.state.finish()
        return "\n".join(self.text.lines) + "\n"

    @contextmanager
    def _function(self) -> Iterator[None]:
        """Code added inside computes the results."""
        text = self.text
        takes = [*TAKES, *(name for pair in self.arrays for name in (pair.value, pair.null))]
        kinds = [("row", "np.int64"), ("time", "np.int64"), ("wrong", "np.int64")]
        for pair, field in zip(self.outputs, self.definition.returns, strict=True):
            kinds += [(pair.value, _dtype(field.type)), (pair.null, "np.bool_")]
        self.results = [name for name, _ in kinds]
        with text.block(f"def {self.title}({', '.join(takes)}):"):
            text.add("k = 0")
            text.add(*(f"{name} = np.empty(room, {kind})" for name, kind in kinds))
            yield
            text.add(self._end("k"))

    def _group(self) -> None:
        text = self.text
        text.add("i, at, settled = begin[g], held_at[g], False")
        if self.windowed:
            text.add("oldest = i - held[at + 1]")
        elif self.slots:
            text.add("place = held[at + 1]")
        self.state.load()
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

    def _store(self) -> None:
        """The variables of a group into its state, as of the CTI."""
        living = "place" if self.slots else "0"
        if self.windowed:
            # Of a window without end no more is asked than its first tuple.
            ever = "min(i - oldest, 1)" if self.definition.keeps_window else "0"
            living = f"i - oldest if rows >= 0 or span >= 0 else {ever}"
        self.text.add(f"living = {living}", f"first[g] = {'oldest' if self.windowed else 'i'}")
        self.state.store("started or place > 0" if self.slots else "started")

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
            self.statements.event("expire")
            return
        text = self.text
        with text.block("if broken == 0:"):
            text.add("at, failed = k, 0")
            self.statements.event("expire")
            if self.definition.value:
                with text.block("if failed == 0 and k - at > 1:"):
                    text.add(f"failed = (k - at) * {FAILURES}")
            with text.block("if failed != 0:"):
                text.add("broken, k = failed, at")
                with text.block("if active:"):
                    self._wrong(_OLDEST)

    def _wrong(self, about: str) -> None:
        """What is broken is a result, too."""
        self._make_room()
        self.text.add(f"row[k], time[k], wrong[k] = {about}, broken", "k += 1")

    def _come(self) -> None:
        """The next tuple, unless the group is broken: then nothing is known of it any more."""
        if self.slots:
            self._come_in_slot()
        elif self.may_break:
            text = self.text
            with text.block("if broken == 0:"):
                self._arrive()
            with text.block("if broken != 0:"):
                self._wrong(self.coming)
        else:
            self._arrive()
        self.text.add("i += 1")

    def _come_in_slot(self) -> None:
        text = self.text
        with text.block("if place == 0:"):
            text.add("at = 0")
            self.state.load()
        text.add("place += 1", "answers = place == slide")
        seen = "place > skipped"
        with text.block(f"if {seen} and broken == 0:" if self.may_break else f"if {seen}:"):
            self._arrive()
        with text.block("if answers:"):
            text.add("place = 0")
            if self.may_break:
                with text.block("if broken != 0:"):
                    self._wrong(self.coming)

    def _arrive(self) -> None:
        text = self.text
        fields = zip(self.arguments, self.arrays, self.definition.parameters, strict=True)
        for pair, array, field in fields:
            found = read(array, field.type, "i")
            text.add(f"{pair.value}, {pair.null} = {found.value}, {found.null}")
        if self.may_break:
            text.add("at, failed = k, 0")
        elif self.uncertain:
            text.add("at = k")
        self._first_or_next()
        if self.slots:
            with text.block("if answers:"):
                self.statements.event("terminate", after=True)
        elif self.terminates:
            self.statements.event("terminate", after=True)
        if self.uncertain:
            self._one_value()
        if self.may_break:
            with text.block("if failed != 0:"):
                text.add("broken, k = failed, at")

    def _first_or_next(self) -> None:
        """INITIALIZE or ITERATE; once, where they are the same."""
        text, values, named = self.text, self.values, self.values.named
        first, most = self.statements.lines("initialize"), self.values.named
        values.named = named
        if self.statements.lines("iterate") == first:
            text.lines += first
        else:
            values.named = most
            with text.block("if started:"):
                self.statements.event("iterate")
            with text.block("else:"):
                text.add_block(first)
        text.add("started = True")

    def _one_value(self) -> None:
        """A tuple without a value has NULL; with several, something is wrong."""
        text, (out,) = self.text, self.outputs
        answers = "answers" if self.slots else "not active"
        with text.block(f"if k == at and {answers}" + (" and failed == 0:" if self.may_break else ":")):
            self._make_room()
            text.add(f"{out.value}[k], {out.null}[k] = {default(self.definition.returns[0].type)}, True")
            text.add(f"row[k], time[k], wrong[k] = {self.coming}, 0", "k += 1")
        if self.may_break:
            with text.block("elif k - at > 1 and failed == 0:"):
                text.add(f"failed = (k - at) * {FAILURES}")

    # --- results -----------------------------------------------------------------------------------------------------

    def _give(self, values: Sequence[Pair], event: str) -> None:
        """A result. What is returned when a tuple leaves counts only where leaving is an event of its own; in a slot,
        what is returned at the last tuple.
        """
        condition = "active" if event == "expire" else "answers" if self.slots and event != "terminate" else ""
        if not condition:
            self._write(values, event)
            return
        with self.text.block(f"if {condition}:"):
            self._write(values, event)

    def _write(self, values: Sequence[Pair], event: str) -> None:
        self._make_room()
        for pair, found in zip(self.outputs, values, strict=True):
            self.text.add(f"{pair.value}[k], {pair.null}[k] = {found.value}, {found.null}")
        self.text.add(f"row[k], time[k], wrong[k] = {_OLDEST if event == 'expire' else self.coming}, 0", "k += 1")

    def _make_room(self) -> None:
        """Where there may be any number of results, and there is no room for one more: it is begun again with more."""
        if self.many:
            with self.text.block("if k == room:"):
                self.text.add(self._end("-1"))

    def _end(self, results: str) -> str:
        return f"return {results}, saved, {', '.join(self.results)}"


def _names(names: Names, like: str) -> Pair:
    return Pair(names.give(like), (names.give(f"{like}_null"),))


def read(array: Pair, kind: Type, index: str) -> Pair:
    """A value of a tuple."""
    value = f"{array.value}[{index}]"
    if kind is not Type.BOOLEAN and kind is not Type.DOUBLE:
        value = f"single({value})" if kind is Type.FLOAT else f"np.int64({value})"
    return Pair(value, (f"{array.null}[{index}]",))


def _dtype(kind: Type) -> str:
    """What a column of results is made of."""
    if kind is Type.DATETIME:
        return "np.int64"
    return f"np.{kind.arrow.to_pandas_dtype().__name__}"
