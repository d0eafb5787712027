"""Base aggregates over frames, as native code: each frame is a run of tuples and has its own answer (rule 7.4).

One function goes through all frames of all groups: `begin` is the first tuple of the group of each, `end` the last of
the frame, and `oldest` its first. A frame is recomputed: INITIALIZE at its first tuple, ITERATE at the others,
TERMINATE. Where `derive.py` finds that the effect of the tuples in between carries over from frame to frame, it is
kept: tuples enter it (up to `high`) and leave it (up to `low`) as frames slide, so a frame costs the same however long
it is. A frame whose first tuple is behind the last frame begins anew; that is also how the next group begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.columnar import Int64s
from headrace.expr.nodes import Bound
from headrace.modules.folding import FrameAnswers
from headrace.plan.ordered import Frame
from headrace.schema import Schema
from headrace.sql.aggregates.front import definition as d
from headrace.sql.aggregates.native.aggregate import MOST_LINES, Column, Native, NativeResult
from headrace.sql.aggregates.native.derive import Chosen, Derivation, NotDerived, Total, derive
from headrace.sql.aggregates.native.fold import array_of, column_of
from headrace.sql.aggregates.native.values import NotNative, Pair, compared
from headrace.sql.aggregates.native.writer import Writer, read

__all__ = ["NativeFrames", "frames_of"]

#: The sizes of LONG terms are rounded up to this many units, so that their sum does not overflow.
_UNIT = 31


@dataclass(frozen=True, eq=False)
class NativeFrames:
    """An aggregate over frames, as native code."""

    native: Native
    #: Why frames are recomputed; empty if the effect of their tuples carries over.
    recomputed: str
    #: What carries over, for `explain`.
    carried: str
    may_fail: bool

    @property
    def code(self) -> str:
        """The code that runs."""
        return self.native.source

    @property
    def path(self) -> str:
        """How frames are computed, for `explain`."""
        if self.recomputed:
            return f"computed anew over each frame ({self.recomputed})"
        return f"derived: {self.carried} carried from frame to frame"

    def answers(
        self, frame: Frame, begin: Int64s, end: Int64s, le: Int64s, tuples: pa.Table, schema: Schema
    ) -> FrameAnswers:
        """The answers of the frames that end with these tuples, in the order of tuples; `begin` as above."""
        fields = self.native.definition.parameters
        columns = [column_of(tuples.column(place), field.type) for place, field in enumerate(fields)]
        ran = self._run(frame, begin, end, le, columns)
        bad = np.flatnonzero(ran.wrong)
        pairs = zip(ran.row[bad].tolist(), ran.wrong[bad].tolist(), strict=True)
        failures = tuple((row, self.native.reason(wrong)) for row, wrong in pairs)
        good = ran.wrong == 0 if failures else slice(None)
        arrays = [
            array_of(values[good], nulls[good], field.type)
            for (values, nulls), field in zip(ran.columns, schema, strict=True)
        ]
        return FrameAnswers(ran.row[good], pa.Table.from_arrays(arrays, schema=schema.arrow), failures)

    def _run(self, frame: Frame, begin: Int64s, end: Int64s, le: Int64s, columns: Sequence[Column]) -> NativeResult:
        native, none = self.native, np.empty(0, np.int64)
        held, places = native.first, np.empty((3, 1), np.int64)
        rows, span = (-1 if limit is None else limit for limit in (frame.rows, frame.range))
        room, k = max(len(end), 1) * max(native.room[0], 1), -1
        while k < 0:  # there may be more results than there is room for
            k, _, row, time, wrong, *outputs = native.code(
                begin, none, end, le, rows, span, False, 0, 0, 0, 0, room, held, held.view(np.float64), none, *places,
                *chain(*columns),
            )  # fmt: skip
            room *= 2
        answers = [(values[:k], nulls[:k]) for values, nulls in zip(outputs[::2], outputs[1::2], strict=True)]
        return NativeResult(row[:k], time[:k], wrong[:k], answers, none, none, none, none)


@lru_cache(maxsize=256)
def frames_of(definition: d.AggregateDefinition) -> NativeFrames | str:
    """The code for frames, or the reason why there is none."""
    reason, carried = "", None
    try:
        carried = derive(definition)
    except NotDerived as why:
        reason = str(why)
    try:
        writer = FrameWriter(definition, carried)
        source = writer.source()
        if source.count("\n") > MOST_LINES:
            return f"it would be {source.count(chr(10))} lines of native code, which take long to compile"
        native = Native(definition, source, True, False, writer.room, writer.failures, writer.state)
        return NativeFrames(native, reason, "" if carried is None else str(carried), writer.may_break)
    except NotNative as why:
        return str(why)
    except RecursionError:
        return "an expression is nested too deep"


class FrameWriter(Writer):
    """Writes one aggregate over frames; `carried` is what carries over."""

    coming = "end[g], le[end[g]]"

    def __init__(self, definition: d.AggregateDefinition, carried: Derivation | None) -> None:
        super().__init__(definition, terminates=True, slots=definition.value)
        self.carried = carried
        self.sums = [_Sum(self, one) for one in carried.totals] if carried else []
        choices = [_Choice(self, one) for one in carried.chosen] if carried else []
        self.parts: list[_Sum | _Choice] = [*self.sums, *choices]

    def source(self) -> str:
        with self._function():
            self.text.add("saved, oldest = np.empty(0, np.int64), 0")
            for table in self.many.values():
                table.declare()
            if self.carried:
                self.text.add("low = high = 0")
            for part in self.parts:
                part.declare()
            with self.text.block("for g in range(len(begin)):"):
                self._frame()
        return "\n".join(self.text.lines) + "\n"

    def _frame(self) -> None:
        text = self.text
        text.add("edge = left_before(le[end[g]], span)")
        with text.block("if oldest < begin[g]:"):
            text.add("oldest = begin[g]")
        with text.block("if 0 <= rows < end[g] - oldest:"):
            text.add("oldest = end[g] - rows")
        with text.block("while le[oldest] < edge:"):
            text.add("oldest += 1")
        if self.carried:
            self._slide()
        text.add("at = 0")
        self.state.load()
        text.add("i, place = oldest, oldest + 1", "answers = i == end[g]")
        self.read_tuple("i")
        text.add("at, failed = k, 0")
        self.statements.event("initialize")
        if self.carried:
            self._carry()
        with text.block("for i in range(place, end[g] + 1):"):
            if self.may_break:
                with text.block("if failed != 0:"):
                    text.add("break")
            text.add("answers = i == end[g]")
            self.read_tuple("i")
            self.statements.event("iterate")
        text.add("i = end[g]")
        if self.slots:
            text.add("answers = True")
        self.statements.event("terminate", after=True)
        if self.uncertain:
            self._one_value()
        if self.may_break:
            with text.block("if failed != 0:"):
                text.add("broken, k = failed, at")
                self._wrong(self.coming)

    def _make_room(self) -> None:
        """Rows may come from every tuple of a frame, however many these are."""
        if self.many or not self.definition.value:
            with self.text.block("if k == room:"):
                self.text.add(self._end("-1"))

    # --- what carries over -------------------------------------------------------------------------------------------

    def _slide(self) -> None:
        """Tuples enter what carries over, and leave it."""
        text = self.text
        with text.block("if oldest + 1 >= high:"):
            text.add("low = high = oldest + 1")
            for one in self.sums:
                one.clear()
        with text.block("while high < end[g]:"):
            self.read_tuple("high")
            for part in self.parts:
                part.enter()
            text.add("high += 1")
        with text.block("while low <= oldest:"):
            if self.sums:
                self.read_tuple("low")
            for one in self.sums:
                one.leave()
            text.add("low += 1")

    def _carry(self) -> None:
        """Between the first tuple and the last, if sums are exact."""
        text = self.text
        exact = [one.exact for one in self.sums if one.exact]
        with text.block(f"if {' and '.join(['place < end[g]', *exact])}:"):
            for part in self.parts:
                part.apply()
            text.add("place = end[g]")

    def read_tuple(self, index: str) -> None:
        """The arguments of a tuple."""
        fields = zip(self.arguments, self.arrays, self.definition.parameters, strict=True)
        for pair, array, field in fields:
            found = read(array, field.type, index)
            self.text.add(f"{pair.value}, {pair.null} = {found.value}, {found.null}")

    @contextmanager
    def where(self, conditions: Sequence[Bound]) -> Iterator[None]:
        """What is added inside happens where all conditions hold."""
        with ExitStack() as inside:
            for one in conditions:
                inside.enter_context(self.text.block(f"if {self.values.of(one).holds}:"))
            yield


class _Sum:
    """The code of a total: the sum of its terms, their size, and how many of them are NULL."""

    def __init__(self, writer: FrameWriter, total: Total) -> None:
        self.writer, self.total, self.text = writer, total, writer.text
        self.variable = writer.values.columns[total.table][total.index]
        self.sum, self.size, self.nulls = (writer.values.new(name) for name in ("sum", "size", "nulls"))

    def declare(self) -> None:
        self.text.add(f"{self.sum} = {self.size} = {self.nulls} = np.int64(0)")

    clear = declare

    def enter(self) -> None:
        self._move("+=", "-=")

    def leave(self) -> None:
        self._move("-=", "+=")

    def _move(self, sign: str, against: str) -> None:
        with self.writer.where(self.total.conditions):
            for negative, term in self.total.terms:
                found = self.writer.values.name(self.writer.values.of(term))
                with self._unless(found, sign):
                    self.text.add(f"{self.sum} {against if negative else sign} {found.value}")
                    self.text.add(f"{self.size} {sign} {self._size(found.value)}")

    @contextmanager
    def _unless(self, found: Pair, sign: str) -> Iterator[None]:
        """NULL terms are only counted."""
        if not found.nulls:
            yield
            return
        with self.text.block(f"if {found.null}:"):
            self.text.add(f"{self.nulls} {sign} 1")
        with self.text.block("else:"):
            yield

    def _size(self, value: str) -> str:
        """A number not less than the absolute value, in units for LONGs; sums of them do not overflow."""
        size = f"({value} if {value} >= 0 else ~{value})"
        return f"(({size} >> {_UNIT}) + 1)" if self.total.bits == 64 else f"(min({size}, {1 << 31}) + 1)"

    @property
    def exact(self) -> str:
        """Whether no sum on the way can be out of range, or the total is NULL in any case."""
        value, null = self.variable.value, self.variable.null
        limit = f"{1 << (63 - _UNIT)}" if self.total.bits == 64 else f"{1 << (self.total.bits - 1)}"
        return f"({null} or {self.nulls} > 0 or {self._size(value)} + {self.size} < {limit})"

    def apply(self) -> None:
        self.text.add(f"{self.variable.null} = {self.variable.null} or {self.nulls} > 0")
        with self.text.block(f"if not {self.variable.null}:"):
            self.text.add(f"{self.variable.value} += {self.sum}")


class _Choice:
    """The code of chosen columns: a queue of the tuples that may be chosen, the best first; or the last tuple."""

    def __init__(self, writer: FrameWriter, chosen: Chosen) -> None:
        self.writer, self.chosen, self.text = writer, chosen, writer.text
        self.tuples, self.keys, self.head, self.tail = (
            writer.values.new(name) for name in ("tuples", "keys", "head", "tail")
        )

    def declare(self) -> None:
        if self.chosen.key is None:
            self.text.add(f"{self.head} = -1")
            return
        kind = "np.float64" if self.chosen.key.type.is_floating else "np.int64"
        self.text.add(f"{self.tuples}, {self.keys} = np.empty(len(le), np.int64), np.empty(len(le), {kind})")
        self.text.add(f"{self.head} = {self.tail} = 0")

    def enter(self) -> None:
        text, key = self.text, self.chosen.key
        with self.writer.where(self.chosen.conditions):
            if key is None:
                text.add(f"{self.head} = high")
                return
            found = self.writer.values.name(self.writer.values.of(key))
            with text.block(f"if not {found.one_null}:"):
                # Those that are worse leave no trace: this tuple is better for as long as they are there.
                function = "lt" if self.chosen.greatest else "gt"
                function = {"lt": "le", "gt": "ge"}[function] if self.chosen.last_of_equal else function
                worse = compared(function, key.type, f"{self.keys}[{self.tail} - 1]", found.value)
                with text.block(f"while {self.tail} > {self.head} and {worse}:"):
                    text.add(f"{self.tail} -= 1")
                text.add(f"{self.tuples}[{self.tail}], {self.keys}[{self.tail}] = high, {found.value}")
                text.add(f"{self.tail} += 1")

    def apply(self) -> None:
        text = self.text
        if self.chosen.key is None:
            with text.block(f"if {self.head} > oldest:"):
                self._update(self.head)
            return
        with text.block(f"while {self.head} < {self.tail} and {self.tuples}[{self.head}] <= oldest:"):
            text.add(f"{self.head} += 1")
        with text.block(f"if {self.head} < {self.tail}:"):
            self._update(f"{self.tuples}[{self.head}]")

    def _update(self, index: str) -> None:
        self.writer.read_tuple(index)
        self.writer.statements.update(self.chosen.update)
