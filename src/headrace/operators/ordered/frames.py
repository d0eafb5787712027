"""Frames whose code needs nothing but their tuples (rule 7.4): what a fold keeps of a group is the tuples themselves.

As of a CTI these are the tuples in the frame of some later tuple: the last n of ROWS n PRECEDING, those of the last d
of RANGE d PRECEDING. Under a slide only the frames of the last tuples of slots are computed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.columnar import Bools, Int64s
from headrace.errors import CheckpointError
from headrace.modules.folding import FoldFailure, FoldResult, FoldWork, FrameAnswers, FrameCode, nothing_due
from headrace.operators.ordered.tumbling import answer_schema, output_columns, with_numbers
from headrace.operators.ordered.yields import slot_end
from headrace.plan.nodes import Fold, Over
from headrace.plan.ordered import Frame, Time, Tuples
from headrace.schema import Schema
from headrace.time import INFINITY, add, add_one

__all__ = ["FrameRows", "FrameValues", "frame_codes"]

#: The state of a group with tuples, which is nothing but these; and that of a failed group, in front of the reason.
_STATE, _FAILED = b"", b"failed: "


def frame_codes(node: Over) -> list[FrameCode] | str:
    """The code of each module over frames; or the reason why one has none."""
    codes = []
    for module in node.modules:
        code = module.by_frames()
        if isinstance(code, str):
            return code
        codes.append(code)
    return codes


class _Frames:
    """The frames of a fold's tuples."""

    pickled = False

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def go(self, work: FoldWork) -> FoldResult:
        end = np.flatnonzero(self._answering(work))
        group = np.searchsorted(work.start, end, "right") - 1
        outputs = self.outputs(work, work.start[group], end)
        kept = self._keep(work)
        before = np.r_[0, np.cumsum(kept)]
        counts = before[work.start[1:]] - before[work.start[:-1]]
        needed = work.counts + work.settle > work.begin if isinstance(self.frame.slide, Tuples) else counts > 0
        states = pa.array(np.full(work.groups, _STATE, object), pa.binary(), mask=~needed)
        alarm = until = None
        if self.frame.range is not None:
            alarm = self._leaves(work, before, counts, before[work.start[:-1]])
            if not isinstance(self.frame.slide, Tuples):  # else the number of tuples is needed without end
                until = self._leaves(work, before, counts, before[work.start[1:]] - 1)
        failed = np.array([row for row, _ in outputs.failures], np.int64)
        of = np.searchsorted(work.start, failed, "right") - 1
        failures = tuple(
            FoldFailure(g, int(work.le[row]), row, reason)
            for g, (row, reason) in zip(of.tolist(), outputs.failures, strict=True)
        )
        due, row = nothing_due(work.groups), outputs.row
        return FoldResult(row, work.le[row], outputs.payload, states, kept, due, failures, alarm, until=until)

    def outputs(self, work: FoldWork, begin: Int64s, end: Int64s) -> FrameAnswers:
        """The outputs of the frames that end with these tuples."""
        raise NotImplementedError

    #: Whether frames are computed although a slide hides them.
    all_frames = False

    def _answering(self, work: FoldWork) -> Bools:
        """The tuples whose frames are asked for: those that are not settled, under a slide the last of each slot."""
        sizes, index = np.diff(work.start), np.arange(len(work.le))
        wanted: Bools = index >= np.repeat(work.begin, sizes)
        slide = None if self.all_frames else self.frame.slide
        if isinstance(slide, Tuples):
            wanted &= (index - np.repeat(work.begin - work.counts, sizes) + 1) % slide.count == 0
        elif isinstance(slide, Time):
            ends = slot_end(slide, work.le)
            last = np.r_[ends[1:] != ends[:-1], np.ones(min(len(ends), 1), bool)]
            last[work.start[1:][sizes > 0] - 1] = True
            wanted &= last
        return wanted

    def _keep(self, work: FoldWork) -> Bools:
        """The tuples before the CTI that later tuples see."""
        sizes, index = np.diff(work.start), np.arange(len(work.le))
        keep: Bools = index < np.repeat(work.settle, sizes)
        if self.frame.rows is not None:
            keep &= index >= np.repeat(work.settle - self.frame.rows, sizes)
        else:
            assert self.frame.range is not None
            keep &= work.le >= add_one(work.cti, -self.frame.range)
        return keep

    def _leaves(self, work: FoldWork, before: Int64s, counts: Int64s, number: Int64s) -> Int64s:
        """The CTI at which a kept tuple of each group, given by its number, has left all frames to come."""
        assert self.frame.range is not None
        times = np.full(work.groups, INFINITY, np.int64)
        some = counts > 0
        tuples = np.searchsorted(before, number[some], "right") - 1
        times[some] = add(work.le[tuples], self.frame.range + 1)
        return times


class FrameValues(_Frames):
    """Aggregates in native code over frames, and expressions over them."""

    def __init__(self, node: Over, codes: list[FrameCode]) -> None:
        super().__init__(node.frame)
        self.node, self.codes, self.answers = node, codes, answer_schema(node)
        self.widths = [len(module.fields) for module in node.modules]

    def outputs(self, work: FoldWork, begin: Int64s, end: Int64s) -> FrameAnswers:
        columns = np.split(np.arange(sum(self.widths)), np.cumsum(self.widths)[:-1])
        found: list[FrameAnswers] = []
        failures: dict[int, str] = {}
        for code, own, field, module in zip(self.codes, columns, self.answers, self.node.modules, strict=True):
            tuples = work.tuples.select(own.tolist())
            found.append(code.answers(self.frame, begin, end, work.le, tuples, Schema((field,))))
            prefix = f"{module}: " if len(self.codes) > 1 else ""
            failures |= {row: prefix + reason for row, reason in found[-1].failures if row not in failures}
        good = end[~np.isin(end, list(failures))] if failures else end
        values = []
        for one in found:
            value = one.payload.column(0)
            values.append(value if len(one.row) == len(good) else value.take(pa.array(np.searchsorted(one.row, good))))
        payload = with_numbers(self.node, output_columns(self.node, values), work, good)
        return FrameAnswers(good, payload, tuple(failures.items()))


class FrameRows(_Frames):
    """A module in native code that returns rows over frames. After a failure a group has no more rows."""

    def __init__(self, node: Fold, code: FrameCode) -> None:
        super().__init__(node.frame)
        self.node, self.code_of, self.answers = node, code, node.answers
        self.all_frames = code.may_fail

    @property
    def code(self) -> str:
        """The code that runs."""
        return self.code_of.code

    def outputs(self, work: FoldWork, begin: Int64s, end: Int64s) -> FrameAnswers:
        return self.code_of.answers(self.frame, begin, end, work.le, work.tuples, self.answers)

    def go(self, work: FoldWork) -> FoldResult:
        result = super().go(work)
        failed = self._earlier_failures(work)
        for one in sorted(result.failures, key=lambda failure: failure.row):
            failed.setdefault(one.group, (one.row, one.reason))
        return self._without(result, work, failed) if failed else result

    def _earlier_failures(self, work: FoldWork) -> dict[int, tuple[int, str]]:
        """By group: its first tuple without a row, and why it has none."""
        failed = {}
        for group, state in enumerate(work.states.to_pylist()):
            if state and not state.startswith(_FAILED):
                raise CheckpointError(
                    f"the state of {self.node.describe()} is of an earlier version of Headrace",
                    given="the tuples of a window as Python values",
                    allowed="checkpoints of this version, for modules over frames",
                    instead="a new checkpoint, or the version that wrote this one",
                )
            if state:
                failed[group] = (int(work.begin[group]), state[len(_FAILED) :].decode())
        return failed

    def _without(self, result: FoldResult, work: FoldWork, failed: dict[int, tuple[int, str]]) -> FoldResult:
        """The result without the rows of failed groups."""
        since = work.start[1:].copy()
        since[list(failed)] = [row for row, _ in failed.values()]
        good = result.row < since[np.searchsorted(work.start, result.row, "right") - 1]
        failures = tuple(
            FoldFailure(group, int(work.le[row]), row, reason)
            for group, (first, reason) in failed.items()
            for row in range(first, int(work.start[group + 1]))
        )
        states, until = result.states.to_pylist(), None if result.until is None else result.until.copy()
        for group, (first, reason) in failed.items():
            if first < work.settle[group] or (work.states[group].is_valid and work.states[group].as_py()):
                states[group] = _FAILED + reason.encode()
                if until is not None:
                    until[group] = INFINITY
        payload = result.payload.filter(pa.array(good))
        return replace(
            result, row=result.row[good], time=result.time[good], payload=payload, failures=failures,
            states=pa.array(states, pa.binary()), until=until,
        )  # fmt: skip
