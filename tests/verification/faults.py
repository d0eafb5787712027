"""Planted faults: mistakes that somebody could make in the engine, put in one at a time to see what finds them.

A test that never fails says nothing. So each fault here is a small change of one function's text that gives wrong
answers for some streams, and `planted` makes the engine run with it for a while. A verification run is worth as much
as the share of these faults that it finds; `test_faults_apply.py` shows for each that it can be found, by an example.

    with planted(fault("session that ends one tick late")):
        differential_reference(stream.node)
"""

from __future__ import annotations

from tests.verification.planting import Fault, FaultError, planted

__all__ = ["FAULTS", "Fault", "FaultError", "fault", "planted"]

_CHANGES = (
    Fault(
        "removals that get lost", "headrace.changes", "Changes.consolidate",
        "filter(weight != 0)", "filter(weight > 0)",
        "rows that are taken back are told from rows that cancel by the sign instead of zero",
    ),
    Fault(
        "pairing without the start", "headrace.changes", "_pair",
        "factorize(changes.payload.append_column(LE, pa.array(changes.le)))", "factorize(changes.payload)",
        "a removal and an addition of equal payload become one retraction although they start at different times",
    ),
    Fault(
        "empty lifetimes that stay", "headrace.changes", "Changes.with_lifetimes",
        "filter(le < re)", "filter(le <= re)",
        "an event whose lifetime has become empty is not dropped",
    ),
    Fault(
        "deletion that says its old end", "headrace.events", "to_physical",
        "changes.le[pairing.deletes]", "changes.re[pairing.deletes]",
        "at egress RE_new of a deletion is RE, which changes nothing, instead of LE",
    ),
    Fault(
        "deletion that leaves an instant", "headrace.operators.admit", "as_changes",
        "new_ends > events.le", "new_ends >= events.le",
        "a retraction to its own start leaves an event with an empty lifetime",
    ),
    Fault(
        "minus zero is another key", "headrace.columnar", "factorize",
        "sortable(canonical_floats(table))", "sortable(table)",
        "keys are compared by their bits, in which -0.0 and 0.0 differ",
    ),
)  # fmt: skip

_TRACES = (
    Fault(
        "merge that drops a segment", "headrace.trace", "Trace._move",
        "merged = concat(heads)", "merged = heads[-1]",
        "of the segments that are merged only the last one is kept",
    ),
    Fault(
        "segment dropped with its first row", "headrace.segments", "Part.forget",
        "self.segment.about.last <= floor", "self.segment.about.first <= floor",
        "a whole segment is forgotten as soon as one of its rows may be",
    ),
    Fault(
        "lookup that finds one row a key", "headrace.segments", "Part.find",
        'np.searchsorted(hashes, wanted, "right") - low',
        'np.minimum(np.searchsorted(hashes, wanted, "right") - low, 1)',
        "only the first of several rows with one hash is found",
    ),
    Fault(
        "rows due now that are left behind", "headrace.segments", "Part.until",
        "some <= time", "some < time",
        "rows whose time is just reached are not found, and dropped right after",
    ),
    Fault(
        "restore that forgets what is forgotten", "headrace.trace", "Trace.restore",
        'self._floor = saved["floor"]', "self._floor = NEG_INFINITY",
        "after a restart rows that were dead, but not yet rewritten, are alive again",
        needs="restarts",
    ),
    Fault(
        "restore that forgets the scalars", "headrace.operators.kernel", "Kernel.restore",
        "self.scalars = scalars", "self.scalars = self.scalars",
        "after a restart operators do not know how far time had come",
        needs="restarts",
    ),
    Fault(
        "restore that forgets the clocks", "headrace.stages.stage", "StageRun.restore",
        "self.clocks |= clocks", "self.clocks |= {}",
        "after a restart the promises of the sources are gone until they are made again",
        needs="restarts",
    ),
)  # fmt: skip

_PROGRESS = (
    Fault(
        "the fastest input decides", "headrace.progress", "Progress.together",
        "min(p.cti for p in parts)", "max(p.cti for p in parts)",
        "the CTI of a union, a join or several buckets is the greatest of theirs, not the least",
    ),
    Fault(
        "the first bucket speaks for all", "headrace.stages.stage", "StageRun._inputs",
        "[m.progress for m in arrivals if m.progress]", "[m.progress for m in arrivals if m.progress][:1]",
        "the next level hears the CTI of one bucket, and others may be behind",
        needs="buckets",
    ),
    Fault(
        "hopping windows promise their ends", "headrace.plan.windows", "Grid.cti",
        "self.start_of(self.closed(time) + 1)", "self.end_of(self.closed(time))",
        "the end of the last closed window is the start of the next only where windows do not overlap",
    ),
    Fault(
        "promise that forgets who waits", "headrace.operators.per_window.kernel", "WindowKernel._promise",
        'min(promise, self.groups.least("forget", HOLD))', "promise",
        "the output CTI does not wait for windows that may still change",
    ),
    Fault(
        "final promises too much", "headrace.operators.final", "FinalKernel._promise",
        "return min(cti, int(np.min(left.le, initial=INFINITY)))", "return cti",
        "events that are held back enter at their LE, before the CTI that was given meanwhile",
    ),
    Fault(
        "final one tick too soon", "headrace.operators.final", "FinalKernel.step",
        "now.cti - 1", "now.cti",
        "an event that ends exactly at the CTI is given as final, and may still be extended",
    ),
    Fault(
        "shortening that keeps its promise", "headrace.plan.span", "Extend.progress",
        "min(0, self.by)", "0",
        "ends that are moved back move before the CTI, which is not lowered",
    ),
    Fault(
        "shift that never goes back", "headrace.plan.span", "Shift.progress",
        "add_one(inputs[0].cti, self.by)", "add_one(inputs[0].cti, max(self.by, 0))",
        "the CTI of a stream that is moved into the past stays where it was",
    ),
)  # fmt: skip

_INGRESS = (
    Fault(
        "late at the CTI", "headrace.io.ingress", "Channel._judge",
        "_sync_times(events, le) < before", "_sync_times(events, le) <= before",
        "an event whose sync time is the CTI keeps the promise, and is taken for late",
    ),
    Fault(
        "a retraction is as old as its event", "headrace.io.ingress", "_sync_times",
        "np.minimum(re, re_new)", "le",
        "a retraction of a long event is late, because the CTI has passed the event's start",
    ),
    Fault(
        "admission forgets at the CTI", "headrace.operators.admit", "AdmitKernel.step",
        "now.cti if now.cti == INFINITY else now.cti - 1", "now.cti",
        "an event that ends exactly at the CTI may still be extended, and is no longer known",
    ),
)  # fmt: skip

_STAGES = (
    Fault(
        "rows for the last bucket get lost", "headrace.stages.message", "split",
        "zip(starts.tolist(), ends.tolist(), strict=True)",
        "zip(starts.tolist(), [*ends.tolist()[:-1], 0], strict=True)",
        "where the rows of the last bucket end is not after their start",
        needs="buckets",
    ),
    Fault(
        "together by more is together", "headrace.stages.cut", "_in_place",
        "set(keys) <= set(node.need(0) or ())", "bool(set(keys) & set(node.need(0) or ()))",
        "rows that were brought together by two columns are not together by one of them",
        needs="buckets",
    ),
    Fault(
        "the order of keys does not matter", "headrace.stages.cut", "_in_place",
        "child.properties.keys == node.need(i)",
        "set(child.properties.keys or ()) == set(node.need(i) or ())",
        "the hash of two columns depends on their order, so rows of two inputs do not meet",
        needs="buckets",
    ),
)  # fmt: skip

_GRIDS = (
    Fault(
        "in the window that ends at its start", "headrace.plan.windows", "Hopping.runs",
        "np.ascontiguousarray(le)", "np.ascontiguousarray(le - 1)",
        "an event that starts where a window ends is counted into it",
    ),
    Fault(
        "in the window that starts at its end", "headrace.plan.windows", "Hopping.runs",
        "np.ascontiguousarray(re)", "np.where(re == INFINITY, re, re + 1)",
        "an event that ends where a window starts is counted into it",
    ),
    Fault(
        "windows close without their origin", "headrace.plan.windows", "Hopping.closed",
        "time) - self.origin - self.size", "time) - self.size",
        "which window is the last that has ended is worked out as if windows began at zero",
    ),
    Fault(
        "runs counted twice", "headrace.operators.aggregate.merge", "MergeKernel._delta",
        "max(before + 1, horizon.first_open)", "max(before, horizon.first_open)",
        "an event that waits for windows to come is added again to the last one that was given",
    ),
    Fault(
        "windows dropped when they are seen", "headrace.operators.aggregate.visible", "VisibleWindows.exchange",
        "self.trace.drop(now.cti)", "self.trace.drop(now.seen)",
        "a window is forgotten when its answer is given, and corrections find nothing to correct",
    ),
    Fault(
        "old answers that stay", "headrace.operators.aggregate.visible", "VisibleWindows._corrections",
        "Changes.concat([old, new]).consolidate()", "new",
        "a corrected window gets a second answer, and the first is not taken back",
    ),
    Fault(
        "taken back, and still reaching", "headrace.operators.aggregate.merge", "MergeKernel._ended",
        "kept = compact(both, self.layout, [FIRST, LAST])", "kept = both",
        "at the end of time an event that was deleted says how far endless ones go on",
    ),
    Fault(
        "sliding windows lose their last", "headrace.operators.aggregate.overlapping", "OverlappingKernel._enter",
        "(leaving, last + 1, last > before)", "(leaving, last, last > before)",
        "a run of windows leaves at its last window instead of behind it",
    ),
    Fault(
        "sliding total without the present window",
        "headrace.operators.aggregate.overlapping", "OverlappingKernel._enter",
        "(first <= before) & (last > before)", "(first < before) & (last > before)",
        "a late event that begins in the last window given is missing from the next ones",
    ),
    Fault(
        "sums that run into the next group", "headrace.operators.aggregate.running", "running_sums",
        "sums - np.repeat(sums[starts] - values[starts], sizes)", "sums",
        "running sums go on where another group begins",
    ),
)  # fmt: skip

_AGGREGATES = (
    Fault(
        "nothing counted is nothing changed", "headrace.operators.aggregate.running", "without_zeros",
        "_sums(table, others)", "_sums(table, others)[:1]",
        "an event replaced by another within a batch leaves the count as it was, and its difference in sums is lost",
    ),
    Fault(
        "sums without weights", "headrace.operators.aggregate.accumulators", "Layout.coded_sums",
        "argument.sums(values, rows)", "argument.sums(values, CodedRows(codes, np.ones(len(codes), np.int64), size))",
        "what is taken back is added instead of subtracted",
    ),
    Fault(
        "extremes that remember the dead", "headrace.operators.aggregate.accumulators", "Argument.mergeable_extremes",
        "bool(self.functions & _EXTREMES) and self.insert_only", "bool(self.functions & _EXTREMES)",
        "min and max are kept as one number although values may be taken back",
    ),
    Fault(
        "sums that wrap", "headrace.operators.aggregate.answers", "_sum",
        "(count == 0) | ~fits", "count == 0",
        "a sum that does not fit 64 bits is given wrapped around, instead of null",
    ),
    Fault(
        "infinity less infinity is infinity", "headrace.operators.aggregate.exact", "_with_specials",
        '(columns["nan"] > 0) | (up & down)', 'columns["nan"] > 0',
        "the sum of both infinities is one of them, not NaN",
    ),
    Fault(
        "first by chance", "headrace.operators.aggregate.bags", "Bag._sorted",
        'for name in ("__group", *columns)]', 'for name in ("__group", *columns[:1])]',
        "of values with equal starts the one that happens to stand first is taken, not the least",
    ),
    Fault(
        "distinct by start", "headrace.operators.aggregate.bags", "Bag.distinct",
        'self.argument.bag == "values"', 'self.argument.bag is not None',
        "a value that starts at two times counts as two where starts are kept beside values",
    ),
)  # fmt: skip

_WINDOWS = (
    Fault(
        "session that ends one tick late", "headrace.operators.per_window.divide", "_sessions",
        "np.diff(time) >= window.gap", "np.diff(time) > window.gap",
        "starts that are just a gap apart are one session, and ought to be two",
    ),
    Fault(
        "sessions that never fall apart", "headrace.operators.per_window.sessions", "SessionKernel._replaced",
        "<= 0]] = True", "<= 0]] = False",
        "a session that loses its only event at some start still covers that start",
    ),
    Fault(
        "one more in a count window", "headrace.operators.per_window.divide", "_counts",
        "end = place + window.n - 1", "end = place + window.n",
        "a window of n starts has n + 1",
    ),
    Fault(
        "snapshots forgotten at the CTI", "headrace.operators.per_window.snapshot", "SnapshotWindowKernel._exchange",
        "closing = next_tick(windows.re)", "closing = windows.re",
        "the window that ends exactly at the CTI may still be extended with its event",
    ),
    Fault(
        "what lasts is not looked at again", "headrace.operators.per_window.grid", "GridKernel._enter_next",
        "horizon.shows + 1", "horizon.shows + 2",
        "an event that lasts longer than the visible windows is not found in the next one, unless another is there",
    ),
    Fault(
        "a snapshot continues from one that has ended", "headrace.operators.per_window.snapshot", "_Old.at",
        "windows.re[found] > time", "windows.re[found] >= time",
        "a window that starts where another ends continues from its items",
    ),
    Fault(
        "a snapshot whose content changed alone", "headrace.operators.per_window.snapshot",
        "SnapshotWindowKernel._correct",
        "same[i] = False", "same[i] = same[i]",
        "a window whose ends stay where they are is not computed again",
    ),
    Fault(
        "changed content, same window", "headrace.operators.per_window.kernel", "WindowKernel._recompute",
        "same[i] = False", "same[i] = same[i]",
        "a window whose ends did not change is taken to be as it was",
    ),
    Fault(
        "quiet groups are forgotten", "headrace.operators.per_window.kernel", "WindowKernel.step",
        "touched(delta, forget=now.cti, show=limit)", "touched(delta, forget=now.cti)",
        "windows of a group for which nothing comes are not shown when time has passed them",
    ),
    Fault(
        "answers forgotten when they are seen", "headrace.operators.per_window.kernel", "WindowKernel.step",
        "self.traces[name].drop(now.cti)", "self.traces[name].drop(seen)",
        "what was given is no longer known when it has to be taken back",
    ),
    Fault(
        "twins take one place", "headrace.operators.per_window.content", "TopContent.outputs",
        "np.repeat(np.arange(len(row)), events.weight[row])", "np.arange(len(row))",
        "of equal events only one is ranked",
    ),
    Fault(
        "ties as they came", "headrace.operators.per_window.content", "TopContent.outputs",
        "self._order.columns", "self._order.columns[: len(self.top.by)]",
        "events of equal rank are told apart by where they happen to stand",
    ),
    Fault(
        "clipped at the wrong side", "headrace.operators.per_window.items", "_clipped",
        'node.policy.clipping in ("left", "full")', 'node.policy.clipping in ("right", "full")',
        "the query asks for left clipping and a module sees starts before the window",
    ),
    Fault(
        "states that only grow", "headrace.operators.per_window.items", "Calls._states",
        "removed = self.items(numbers, _members_of(changed, ~coming))",
        "removed = self.items(numbers, _members_of(changed, coming & ~coming))",
        "an incremental module is not told of items that have gone",
    ),
)  # fmt: skip

_SNAPSHOTS = (
    Fault(
        "an end hides a start", "headrace.operators.aggregate.snapshots", "SnapshotKernel._steps",
        "leaving = leaving.append_column(_ENDS, pa.array(changes.weight))",
        "leaving = leaving.append_column(_ENDS, pa.array(-changes.weight))",
        "where one event ends and an equal one starts there is an endpoint, although the sums stay as they are",
    ),
    Fault(
        "snapshot settled at the CTI", "headrace.operators.aggregate.snapshots", "SnapshotKernel._settle",
        "passed = steps.until(cti - 1)\n    steps.drop(cti - 1)", "passed = steps.until(cti)\n    steps.drop(cti)",
        "an endpoint exactly at the CTI may still move, and is summed up already",
    ),
)  # fmt: skip

_JOINS = (
    Fault(
        "each side forgets by its own CTI", "headrace.operators.join", "JoinKernel._inner",
        'self.traces["left"].drop(right_cti)\n    self.traces["right"].drop(left_cti)',
        'self.traces["left"].drop(left_cti)\n    self.traces["right"].drop(right_cti)',
        "an event is forgotten although the other side, which is behind, may still match it",
    ),
    Fault(
        "events that meet are a pair", "headrace.operators.overlap", "overlapping",
        "_pairs(a, left.le, ", "_pairs(a, left.le - 1, ",
        "an event that ends where the other starts does not overlap it",
    ),
    Fault(
        "overlap by one tick is none", "headrace.operators.overlap", "overlapping",
        "left.re, first, runs, others)", "left.re, first, runs - [0, 0, 2], others)",
        "the longest event of its class that just reaches into another is not looked at",
    ),
    Fault(
        "null keys that match", "headrace.operators.overlap", "key_codes",
        "codes = np.where(keyed, codes, -1)", "pass",
        "rows compare nulls as equal, and a join must not",
    ),
    Fault(
        "null groups that are none", "headrace.plan.join", "Join.lifted",
        "self.groups + len(keys)", "self.groups",
        "inside apply the events of the group whose key is null do not meet each other",
    ),
    Fault(
        "covered by the last alone", "headrace.operators.uncovered", "uncovered_parts",
        "_running_maximum(rows, covers, cover_end)", "cover_end[covers]",
        "a short match inside a long one uncovers the rest of the long one",
    ),
    Fault(
        "what covered is not remembered", "headrace.operators.join", "JoinKernel._settle",
        "moved = reached > since", "moved = reached < since",
        "when a match is forgotten, the part of the left event that it covered counts as uncovered",
    ),
    Fault(
        "outer joins forget at the CTI", "headrace.operators.join", "JoinKernel._settle",
        "max(cti - 1, NEG_INFINITY)", "cti",
        "an event that ends exactly at the CTI may still be extended, and is no longer known",
    ),
    Fault(
        "no match before, no match now", "headrace.operators.join", "JoinKernel._outer",
        "was[j] & (i >= len(left))", "is_[j] & (i >= len(left))",
        "what was left over before a change is worked out from the matches after it",
    ),
    Fault(
        "the start that is not inside hides the next", "headrace.operators.clip", "ClipKernel._ends",
        '"right")', '"left")',
        "an event that starts where the other does is found first, and cuts nothing",
    ),
    Fault(
        "clip forgets at the CTI", "headrace.operators.clip", "ClipKernel._settle",
        "max(cti - 1, NEG_INFINITY)", "cti",
        "an event that ends exactly at the CTI may still be extended, and is no longer known",
    ),
)  # fmt: skip

_SPANS = (
    Fault(
        "events that meet stay apart", "headrace.operators.coalesce", "_spans",
        "le[1:] > reach[:-1]", "le[1:] >= reach[:-1]",
        "lifetimes that meet are not made one",
    ),
    Fault(
        "a span as long as its last event", "headrace.operators.coalesce", "_spans",
        "ends[np.maximum.accumulate(codes * len(ends) + ranks) - codes * len(ends)]", "ends[ranks]",
        "a short event inside a long one ends the span",
    ),
    Fault(
        "a span over at the CTI", "headrace.operators.coalesce", "CoalesceKernel._settle",
        "passed.filter(passed.re >= cti)", "passed.filter(passed.re > cti)",
        "the next event may start where this one ends, at the CTI, and then they are one",
    ),
    Fault(
        "a cap that stretches", "headrace.operators.span", "cap_duration",
        "np.minimum(changes.re, add(changes.le, node.duration))", "add(changes.le, node.duration)",
        "events that are shorter than the cap are made as long as it",
    ),
)  # fmt: skip

_RULES = (
    Fault(
        "a filter on answers filters events", "headrace.plan.per_window", "PerWindow.filtered_before",
        "return dict(self.keys)",
        "from headrace.expr import col; "
        "return {name: col(name) for name in self.schema.names if name in self.input.schema}",
        "an aggregate that is called like an input column is no input column: the filter must stay behind the window",
    ),
    Fault(
        "a computed key hides its column", "headrace.optimizer.compute_keys", "_name",
        'f"{name} key" if name in node.input.schema else name', "name",
        "aggregates of a column that has the key's name read the key instead",
    ),
    Fault(
        "partial states of what may be taken back", "headrace.optimizer.combine_modules", "_algebraic",
        " and node.input.properties.insert_only", "",
        "a removal becomes a state that is merged like any other",
    ),
    Fault(
        "filters that stop the clock", "headrace.optimizer.push_filters", "_may_skip_rows",
        "not isinstance(source.policy, Advance) and ", "",
        "rows that a filter leaves out still say how far time has come, and are not read any more",
        needs="files",
    ),
)  # fmt: skip

#: All of them.
FAULTS: tuple[Fault, ...] = (
    *_CHANGES, *_TRACES, *_PROGRESS, *_INGRESS, *_STAGES, *_GRIDS, *_AGGREGATES, *_WINDOWS, *_SNAPSHOTS, *_JOINS,
    *_SPANS, *_RULES,
)  # fmt: skip


def fault(name: str) -> Fault:
    """The fault of this name."""
    return next(found for found in FAULTS if found.name == name)
