"""Ingress: turns rows into events, makes promises, and catches rows that break one (rules 1.2 and 3.1 to 3.3).

A row is *late* when its sync time is before the CTI in force when it arrives: the promise of the batches before,
raised by the rows before it in the same channel (a file, or all of an in-process input). So within a channel the order
of the rows decides, and not their division into batches. Files that a batch reads together are channels side by side
and do not judge each other, so which files arrive together (`files_per_batch`) counts as arrival: with smaller batches
more rows may be late. The plan of a batch is committed, so a restart decides the same. The input's policy applies to
late rows; malformed rows are diverted or raised. Every row is counted: `rows = accepted + diverted + dropped`, always.

Partitions of an adapter's source are channels with names and progress of their own, which lasts: a row is late when it
breaks the promise of its own partition, and the promise of the source is the least of its partitions' (rule 3.4). So
the pace at which partitions are read does not decide either. A partition that has been silent for the policy's `idle`
does not hold the others back; the rows that it sends later are also judged by the promise of the source (rule 3.2).

Rows that are points at their arrival (rule 8.1) are never late: a row whose file was modified before the CTI arrives
now, at the CTI. The same holds for changes of a table in the order of their log (`keyed_changes.py`); pre-images are
accepted, and not used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.border import as_ticks, with_date_texts
from headrace.changes import Changes
from headrace.columnar import Int64s, to_numpy
from headrace.errors import BadRow, LateEvent
from headrace.events import CONTROL, event_problems
from headrace.expr import Expr, evaluate
from headrace.io.arrival_times import in_log_order, move_to_cti, spaced
from headrace.io.decoded import DecodedBlock
from headrace.io.drift import DRIFT_COUNTERS
from headrace.io.key_progress import KeyTimes, active
from headrace.io.keyed_changes import is_preimage, row_problems
from headrace.io.lateness import histogram, together
from headrace.io.on_time import all_on_time, within_skew
from headrace.literals import sql_text
from headrace.plan.nodes import DIVERTED, Source
from headrace.plan.policies import Advance, Arrival, Changed, Edge, Interval, Lifetime, Physical, Point, ProgressPolicy
from headrace.plan.source import RE_NEW, diverted_rows
from headrace.progress import Progress
from headrace.schema import STAMPS, Schema
from headrace.time import CHRONON, INFINITY, NEG_INFINITY, add, format_ticks

__all__ = ["Channel", "ChannelReport", "count_orphans", "lifetimes_of", "resolve", "row_texts"]

Flags = NDArray[np.bool_]
RowLookup = Callable[[Int64s], pa.Table]
#: The counters of a source: of rows, of files that were missing or changed when they were read, and of other columns.
COUNTERS = (
    "rows", "accepted", "diverted", "dropped", "adjusted", "ctis", "late", "malformed", "missing_files",
    "changed_files", "old_files", "lost_offsets", "preimages", "shed", *DRIFT_COUNTERS,
)  # fmt: skip


@dataclass
class ChannelReport:
    """The progress and counts of one channel in one batch."""

    high: int = NEG_INFINITY
    cti: int = NEG_INFINITY
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    #: The first row that was diverted or dropped: its `reason`, `file`, `line` and `row`.
    example: dict[str, Any] | None = None
    #: The name of a partition; then `high` and `cti` are those of all its batches.
    channel: str | None = None
    #: Whether the partition has been silent for so long that it holds nothing back.
    idle: bool = False
    #: With progress by key: the highest times of keys that are not idle.
    keys: dict[str, int] | None = None
    #: How late the late rows were (`io/lateness.py`); None if there were none.
    lateness: list[int] | None = None

    def to_json(self) -> dict[str, Any]:
        report = {"high": self.high, "cti": self.cti, "counts": self.counts, "example": self.example}
        if self.keys is not None:
            report["keys"] = self.keys
        if self.lateness is not None:
            report["lateness"] = self.lateness
        return report if self.channel is None else report | {"channel": self.channel, "idle": self.idle}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ChannelReport:
        named = data.get("channel"), data.get("idle", False)
        return cls(
            data["high"], data["cti"], data["counts"], data["example"], *named, data.get("keys"), data.get("lateness")
        )

    def promise(self, policy: ProgressPolicy) -> int:
        """The CTI of the channel."""
        return max(self.cti, policy.cti(self.high)) if isinstance(policy, Advance) else self.cti


def resolve(policy: ProgressPolicy, before: Progress, reports: Iterable[ChannelReport]) -> Progress:
    """An input's progress after a batch, from the reports of its channels: of partitions, from all of them."""
    high, cti = before.high, before.cti
    partitions: list[ChannelReport] = []
    keys = dict(before.keys)
    for report in reports:
        high = max(high, report.high)
        keys |= {key: max(time, keys.get(key, time)) for key, time in (report.keys or {}).items()}
        if report.channel is None:
            cti = max(cti, report.cti)
        else:
            partitions.append(report)
    if partitions:
        promises = [p.promise(policy) for p in partitions if not p.idle]
        # If all are idle, none holds back another.
        cti = max(cti, min(promises) if promises else max(p.promise(policy) for p in partitions))
    elif isinstance(policy, Advance) and policy.per is not None:
        keys = active(keys, policy.idle or 0)
        cti = max(cti, policy.cti(min(keys.values(), default=NEG_INFINITY)))
    elif isinstance(policy, Advance):
        cti = max(cti, policy.cti(high))
    return Progress(cti, max(high, cti) if cti != INFINITY else high, tuple(sorted(keys.items())))


def count_orphans(counts: dict[str, int], source: str, statistics: Iterable[dict[str, Any]]) -> None:
    """Count retractions that ingress accepted and `Admit` diverted as diverted."""
    orphans = sum(part.get("orphans", {}).get(source, 0) for part in statistics)
    counts["accepted"] -= orphans
    counts["diverted"] += orphans


class Channel:
    """One ordered part of an input during one batch: turns blocks of rows into changes, and counts them."""

    def __init__(
        self, source: Source, start: Progress, clock: int | None = None, report: ChannelReport | None = None
    ) -> None:
        self.source = source
        self.start = start
        self.clock = clock
        self.report = report or ChannelReport()
        #: The file of the rows, to show to users; None if it is not a file of theirs.
        self.file: str | None = None
        self._high = start.high
        self._cti = start.cti
        self._keys = KeyTimes.of(source.policy, start.keys)
        #: The earliest time of the next change in the order of the log.
        self._floor = start.high
        #: The CTI before each row of the last block with refused rows, and after it.
        self._passed = np.array([start.cti], np.int64)

    def begin_file(self) -> None:
        """Begin a file: its changes happen after those of other files, because positions do not tell files apart."""
        if self._high != NEG_INFINITY:
            self._floor = self._high + 1

    @classmethod
    def of_partition(cls, source: Source, start: Progress, before: ChannelReport) -> Channel:
        """The channel of a partition: `start` is the progress of the source, `before` the latest report."""
        cti = max(start.cti, before.promise(source.policy))
        report = ChannelReport(before.high, before.cti, channel=before.channel)
        return cls(source, Progress(cti, before.high), report=report)

    def take(
        self,
        table: pa.Table,
        full_rows: RowLookup | None = None,
        lines: Int64s | None = None,
        *,
        refused_between: bool = False,
    ) -> tuple[Changes, Changes]:
        """`(accepted, diverted)` of a block of rows of the source's columns.

        `full_rows` looks up rows by their place in the block, with the columns that the query does not read; `lines`
        are the rows' lines in the file, -1 where unknown; with `refused_between`, `refuse` follows.
        """
        self.report.counts["rows"] += table.num_rows
        lifetime = self.source.lifetime
        quick = None if refused_between else self._on_time(table)
        if quick is not None:
            return quick, Changes.empty(DIVERTED)
        size = table.num_rows
        kept = np.arange(size)
        if isinstance(lifetime, Changed):
            kept = np.flatnonzero(~is_preimage(lifetime, table))
            table, full_rows, lines = self._without_preimages(table, kept, full_rows, lines)
        rows = self._events(table)
        if isinstance(lifetime, Arrival):
            rows = spaced(rows, self._high)
        bad, why_bad = self._problems(rows, table)
        by_log = isinstance(lifetime, Changed) and lifetime.in_log_order
        if by_log:
            rows = in_log_order(rows, max(self._high, self._floor), ~bad)
        late, cti = self._judge(rows, ~bad, table)
        if refused_between:
            self._passed = np.r_[cti, self._cti][np.searchsorted(kept, np.arange(size + 1))]
        if (isinstance(lifetime, Arrival) or by_log) and late.any():
            rows, late = move_to_cti(rows, late, cti)
        events, refused = self._apply_policy(rows, late, cti, ~bad)
        if self.source.policy.late == "drop" and late.any():
            self._note_dropped(rows, table, late, cti, lines)
        if not (refused.any() or bad.any()):
            return self._accept(events), Changes.empty(DIVERTED)
        reasons = _late_reasons(rows, refused, cti, self.source.policy.late, self.source.dates)
        reasons[bad] = why_bad[bad] if bad.any() else ""
        places = np.flatnonzero(refused | bad)
        unused = full_rows(places) if full_rows is not None else table.take(pa.array(places))
        at = None if lines is None else pa.array(lines[places], mask=lines[places] < 0)
        texts = row_texts(unused, self.source)
        return self._accept(events), self._diverted(list(reasons[places]), texts, cti[places], at)

    def _on_time(self, table: pa.Table) -> Changes | None:
        """All rows of a block, if a quick look shows that they are sound and on time."""
        lifetime, policy = self.source.lifetime, self.source.policy
        delay, every = (policy.delay, policy.every) if isinstance(policy, Advance) else (-1, 1)
        guarded = isinstance(policy, Advance) and (policy.max_skew is not None or policy.per is not None)
        if guarded or isinstance(lifetime, (Physical, Changed, Arrival)) or not table.num_rows:
            return None
        le, re = lifetimes_of(lifetime, table)
        if le.null_count or re.null_count:
            return None
        starts, ends = to_numpy(le), to_numpy(re)
        fine, high, cti = all_on_time(starts, ends, self._high, self._cti, delay, every)
        if not fine:
            return None
        self._high = self.report.high = high
        self._cti = cti
        self.report.counts["accepted"] += table.num_rows
        return Changes.inserts(starts, ends, table.select(list(self.source.schema.names)))

    # --- rows to events ----------------------------------------------------------------------------------------------

    def _without_preimages(
        self, table: pa.Table, kept: Int64s, full_rows: RowLookup | None, lines: Int64s | None
    ) -> tuple[pa.Table, RowLookup | None, Int64s | None]:
        """A block without the rows that repeat what was there before a change; they are accepted, and counted."""
        if len(kept) == table.num_rows:
            return table, full_rows, lines
        for counter in ("accepted", "preimages"):
            self.report.counts[counter] += table.num_rows - len(kept)
        lookup = None if full_rows is None else lambda places: full_rows(kept[places])
        return table.take(pa.array(kept)), lookup, None if lines is None else lines[kept]

    def _events(self, table: pa.Table) -> pa.Table:
        """The rows as physical events: the control columns and the payload."""
        if isinstance(self.source.lifetime, Physical):
            return as_ticks(table.select([*CONTROL, *self.source.schema.names]))
        le, re = lifetimes_of(self.source.lifetime, table)
        control = [_inserts(table.num_rows), le, re, pa.nulls(table.num_rows, pa.int64())]
        payload = [table.column(name) for name in self.source.schema.names]
        return pa.table([*control, *payload], names=[*CONTROL, *self.source.schema.names])

    def _problems(self, events: pa.Table, table: pa.Table) -> tuple[Flags, NDArray[Any]]:
        bad, reasons = event_problems(events)
        reasons = _naming_times(self.source.lifetime, reasons, table)
        if isinstance(self.source.lifetime, Changed):
            bad, reasons = row_problems(self.source.lifetime, table, bad, reasons)
        self.report.counts["malformed"] += int(np.count_nonzero(bad))
        if bad.any() and self.source.bad_rows == "raise":
            row = int(np.flatnonzero(bad)[0])
            text = row_texts(events.slice(row, 1), self.source)[0]
            raise self._bad_row(reasons[row], text)
        return bad, reasons

    def _bad_row(self, reason: str, text: str, line: int | None = None) -> BadRow:
        where = "" if self.file is None else f", in {self.file!r}" + ("" if line is None else f", line {line}")
        return BadRow(f"{self.source.origin}: {reason}{where}", given=text, instead="bad_rows='divert'")

    # --- lateness ----------------------------------------------------------------------------------------------------

    def _judge(self, events: pa.Table, fine: Flags, table: pa.Table) -> tuple[Flags, Int64s]:
        """Which rows are late, and the CTI when each arrived; advances the channel's progress."""
        policy = self.source.policy
        le = to_numpy(pc.fill_null(events.column("le"), 0))
        promise = fine & _of_kind(events, "cti")
        counted = self._trusted(le, fine & ~promise, promise)
        promised = np.where(promise, le, NEG_INFINITY)
        ctis = promised
        if isinstance(policy, Advance):
            high = self._followed(table, le, counted)
            delayed = add(high, -policy.delay)
            steps = delayed - delayed % policy.every
            followed = np.where((high == NEG_INFINITY) | (steps > delayed), NEG_INFINITY, steps)  # it may wrap
            ctis = np.maximum(followed, promised)
        after = np.maximum(np.maximum.accumulate(ctis), self._cti) if len(le) else ctis
        before = np.r_[self._cti, after[:-1]] if len(le) else after
        self._advance(le, counted, promised, after)
        late = fine & (_sync_times(events, le) < before)
        return late, before

    def _followed(self, table: pa.Table, le: Int64s, counted: Flags) -> Int64s:
        """The time that the CTI follows, after each row: the highest, or that of the key that is farthest behind."""
        if self._keys is None:
            high = np.maximum.accumulate(np.where(counted, le, NEG_INFINITY)) if len(le) else le
            return np.maximum(high, self._high)
        behind = self._keys.take(table, le, counted)
        self.report.keys = self._keys.active()
        return behind

    def _trusted(self, le: Int64s, event: Flags, promise: Flags) -> Flags:
        """The events that may advance progress: those that pass the skew guard (rule 3.2)."""
        policy = self.source.policy
        if not isinstance(policy, Advance) or policy.max_skew is None or not event.any():
            return event
        if self.clock is not None:
            return event & (le <= self.clock + policy.max_skew)
        known = event | (promise & (le != INFINITY))  # every promise is trusted
        trusted = np.zeros(len(le), bool)
        trusted[known] = within_skew(le[known], promise[known], self._high, policy.max_skew)
        return trusted & event

    def _advance(self, le: Int64s, counted: Flags, promised: Int64s, after: Int64s) -> None:
        if not len(le):
            return
        self._high = max(self._high, int(np.max(le, where=counted, initial=NEG_INFINITY)))
        self._cti = max(self._cti, int(after[-1]))
        # The last finite promise is how far the stream reached, also if a promise of the end of time follows.
        finite = int(np.max(promised, where=promised != INFINITY, initial=NEG_INFINITY))
        if isinstance(self.source.policy, Advance):
            self._high = max(self._high, finite)
        self.report.high = max(self.report.high, self._high, finite)
        # `resolve` computes the CTI that follows from the highest LE, because it knows all channels. The highest times
        # of keys do not tell what was promised while one of them was idle.
        reached = self._cti if self._keys is not None else int(promised.max())
        self.report.cti = max(self.report.cti, reached)

    def _apply_policy(self, events: pa.Table, late: Flags, cti: Int64s, fine: Flags) -> tuple[pa.Table, Flags]:
        """`(accepted events, rows to divert)`."""
        count = int(np.count_nonzero(late))
        if not count:
            return (events if fine.all() else events.filter(pa.array(fine))), late
        self.report.counts["late"] += count
        sync = _sync_times(events, to_numpy(pc.fill_null(events.column("le"), 0)))
        self.report.lateness = together(self.report.lateness, histogram(cti[late] - sync[late]))
        policy = self.source.policy.late
        if policy == "raise":
            row = int(np.flatnonzero(late)[0])
            promise = format_ticks(int(cti[row]), dates=self.source.dates)
            adjusts = isinstance(self.source.lifetime, (Interval, Physical))
            others = "'divert', 'adjust' or 'drop'" if adjusts else "'divert' or 'drop'"
            raise LateEvent(
                f"{self.source.origin}: an event breaks the promise of the CTI {promise}",
                given=row_texts(events.slice(row, 1), self.source)[0],
                instead=f"late={others} in the input's progress, or a longer delay",
            )
        if policy == "adjust":
            return self._adjust(events, late, cti, fine)
        on_time = events.filter(pa.array(fine & ~late))
        if policy == "drop":
            self.report.counts["dropped"] += count
            return on_time, np.zeros(len(late), bool)
        return on_time, late

    def _adjust(self, events: pa.Table, late: Flags, cti: Int64s, fine: Flags) -> tuple[pa.Table, Flags]:
        """Move the violated endpoint up to the CTI; divert events with nothing left."""
        le, re, re_new = (to_numpy(pc.fill_null(events.column(name), 0)) for name in ("le", "re", "re_new"))
        insert = late & _of_kind(events, "insert")
        retract = late & ~insert
        gone = (insert & (re <= cti)) | (retract & (re < cti)) | (retract & (np.maximum(re_new, cti) == re))
        self.report.counts["adjusted"] += int(np.count_nonzero(late & ~gone))
        moved = {
            "le": np.where(insert, np.maximum(le, cti), le),
            "re_new": np.where(retract, np.maximum(re_new, cti), re_new),
        }
        for name, values in moved.items():
            missing = np.asarray(pc.is_null(events.column(name)))
            events = events.set_column(events.schema.get_field_index(name), name, pa.array(values, mask=missing))
        return events.filter(pa.array(fine & ~gone)), gone

    # --- results -----------------------------------------------------------------------------------------------------

    def _accept(self, events: pa.Table) -> Changes:
        schema = self.source.schema
        if isinstance(self.source.lifetime, Physical):
            ctis = int(np.count_nonzero(_of_kind(events, "cti")))
            self.report.counts["ctis"] += ctis
            self.report.counts["accepted"] += events.num_rows
            return _physical(events.filter(pc.not_equal(events.column("kind"), "cti")), schema)
        self.report.counts["accepted"] += events.num_rows
        return Changes.inserts(
            to_numpy(events.column("le")), to_numpy(events.column("re")), events.select(list(schema.names))
        )

    def refuse(self, block: DecodedBlock) -> Changes:
        """Divert the rows of a block that could not be decoded, each at the CTI of the rows before it."""
        reasons, texts = (block.refused[name].to_pylist() for name in ("reason", "raw"))
        if texts and self.source.bad_rows == "raise":
            raise self._bad_row(reasons[0], texts[0], block.refused["line"][0].as_py())
        self.report.counts["rows"] += len(texts)
        self.report.counts["malformed"] += len(texts)
        passed = self._passed if len(block.rows) else np.array([self._cti])
        lines = block.refused["line"] if self.file is not None else None
        return self._diverted(reasons, texts, passed[block.rows_before_refused], lines)

    def _diverted(self, reasons: list[str], texts: list[str], cti: Int64s, lines: pa.Array | None) -> Changes:
        if not texts:
            return Changes.empty(DIVERTED)
        self.report.counts["diverted"] += len(texts)
        times = np.where(cti == NEG_INFINITY, 0, np.minimum(cti, INFINITY - 1))
        payload = diverted_rows(str(self.source.origin), reasons, texts, self.file, lines)
        self._note(payload.drop_columns(["source"]).slice(0, 1).to_pylist()[0])
        return Changes.inserts(times, times + CHRONON, payload)

    def _note_dropped(self, events: pa.Table, table: pa.Table, late: Flags, cti: Int64s, lines: Int64s | None) -> None:
        row = int(np.flatnonzero(late)[0])
        line = None if lines is None or lines[row] < 0 else int(lines[row])
        place = slice(row, row + 1)
        reason = _late_reasons(events.slice(row, 1), late[place], cti[place], "drop", self.source.dates)[0]
        self._note(
            {"reason": reason, "file": self.file, "line": line, "row": row_texts(table.slice(row, 1), self.source)[0]}
        )

    def _note(self, example: dict[str, Any]) -> None:
        """Keep the first row that is not used, as an example."""
        if self.report.example is None:
            self.report.example = example


def _inserts(size: int) -> pa.DictionaryArray | pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int8)), pa.array(["insert"]))


def lifetimes_of(lifetime: Point | Interval | Edge, table: pa.Table) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The starts and ends of rows; those of a signal end with the next row of their key, and are points here."""
    if isinstance(lifetime, Interval):
        ends = _times(lifetime.end, table)
        if lifetime.null_is_endless(Schema.of(table.schema)):
            ends = pc.if_else(_absent(lifetime.end, table), INFINITY, ends)
        return _times(lifetime.start, table), ends
    le = _times(lifetime.at, table)
    return le, pc.add(le, CHRONON)


def _naming_times(lifetime: Lifetime, reasons: NDArray[Any], table: pa.Table) -> NDArray[Any]:
    """The reasons why rows are no events, with the names of the columns that the times are read from."""
    if isinstance(lifetime, Physical) or not len(reasons):
        return reasons
    start, end = (lifetime.start, lifetime.end) if isinstance(lifetime, Interval) else (lifetime.at, lifetime.at)
    hint = "; hr.interval(..., endless=True) reads it as one without an end" if isinstance(lifetime, Interval) else ""
    named = reasons.astype(object)
    for reason, time, more in (("le is missing", start, ""), ("re is missing", end, hint)):
        rows, name = reasons == reason, ", ".join(sorted(time.columns())) or str(time)
        named[rows] = f"the time {name} is missing{more}"
        named[rows & ~to_numpy(_absent(time, table))] = f"the time of {name} is out of range, or has no value"
    return named


def _absent(time: Expr, table: pa.Table) -> pa.Array:
    """The rows without a value in a column of the time."""
    flags = [to_numpy(pc.is_null(table.column(name))) for name in time.columns()]
    return pa.array(np.logical_or.reduce([np.zeros(table.num_rows, bool), *flags]))


def _times(expr: Expr, table: pa.Table) -> pa.ChunkedArray:
    values = evaluate(expr, table)
    return pc.cast(values, pa.int64())


def _physical(events: pa.Table, schema: Schema) -> Changes:
    """Inserts and retractions for `Admit`: a retraction has a new end."""
    ends = pc.if_else(pc.equal(events.column("kind"), "retract"), events.column("re_new"), pa.scalar(None, pa.int64()))
    payload = events.select(list(schema.names)).append_column(RE_NEW, ends)
    return Changes.inserts(to_numpy(events.column("le")), to_numpy(events.column("re")), payload)


def _late_reasons(events: pa.Table, late: Flags, cti: Int64s, policy: str, dates: bool) -> NDArray[Any]:
    reasons = np.full(len(late), "", object)
    sync = _sync_times(events, to_numpy(pc.fill_null(events.column("le"), 0)))
    more = ", and nothing of its lifetime is left after it" if policy == "adjust" else ""
    promises = {time: format_ticks(time, dates=dates) for time in np.unique(cti[late]).tolist()}
    reasons[late] = [
        f"late: its sync time {format_ticks(time, dates=dates)} is before the CTI {promises[met]}{more}"
        for time, met in zip(sync[late].tolist(), cti[late].tolist(), strict=True)
    ]
    return reasons


def _sync_times(events: pa.Table, le: Int64s) -> Int64s:
    kind = events.column("kind")
    if pa.types.is_dictionary(kind.type):
        return le
    re, re_new = (to_numpy(pc.fill_null(events.column(name), 0)) for name in ("re", "re_new"))
    sync = np.where(_of_kind(events, "retract"), np.minimum(re, re_new), le)
    return np.where(_of_kind(events, "cti"), INFINITY, sync)


def _of_kind(events: pa.Table, kind: str) -> Flags:
    if pa.types.is_dictionary(events.column("kind").type):
        return np.full(events.num_rows, kind == "insert")
    return np.asarray(pc.fill_null(pc.equal(events.column("kind"), kind), False), bool)


def row_texts(table: pa.Table, source: Source) -> list[str]:
    """The rows as users see them, each as JSON."""
    table = table.drop_columns([name for name in table.column_names if name in STAMPS])
    table = with_date_texts(table) if source.dates else table
    return [json.dumps(row, default=sql_text, ensure_ascii=False) for row in table.to_pylist()]
