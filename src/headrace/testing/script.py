"""Scripted faults: streams whose rows say where to pause, where to end, and where the process dies.

    run_scripted(
        {
            "trades": '''
            kind   | le   | re | symbol | price
            insert | 1    | 5  | A      | 10
            pause  | 10 s |    |        |
            insert | 3    | 9  | A      | 12
            abort  |      |    |        |
            insert | 4    | 9  | B      | 7
            eof    |      |    |        |
            '''
        },
        lambda trades: trades.group_by("symbol").window(hr.snapshot()).aggregate(n=hr.count()),
    )

Beside events and CTIs a stream has rows of three other kinds:

    pause    a batch ends here; a duration in `le` moves the clock on before the next one
    abort    the process dies in the middle of this batch; a new one starts from the state after the last batch, as it
             was saved, and reads the batch again
    eof      this input ends here: its CTI becomes infinite while the others go on

The first batches of all inputs run together, then the second ones, and so on. State is saved and restored in bytes,
as a checkpoint on Spark has it. Faults must not show (rule 1.5): the output is compared, batch by batch, with a run in
which no process dies, and a difference is a `Violation`. This finds modules that keep state of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.api.checks import node_of
from headrace.api.inputs import events
from headrace.api.running import Run, outputs_of
from headrace.api.stream import Stream
from headrace.errors import EventError, PlanError, TimeError
from headrace.host.local.run import Block, Runner
from headrace.io.origins import Events
from headrace.io.reading import in_memory
from headrace.plan.nodes import Admit, Source
from headrace.plan.policies import ProgressPolicy
from headrace.schema import SchemaLike
from headrace.stages.cut import Line, line_of
from headrace.testing.batches import check_same_batches
from headrace.testing.clock import ManualClock
from headrace.testing.order import check_order
from headrace.time import duration

__all__ = ["ScriptedRun", "run_scripted"]

#: The values of `kind` that an input may have beside insert, retract and cti.
FAULTS = ("pause", "abort", "eof")


@dataclass
class ScriptedRun(Run):
    """A finished run of scripted inputs, with the number of restarts."""

    restarts: int = 0


def run_scripted(
    inputs: Mapping[str, Any],
    query: Callable[..., Stream],
    *,
    buckets: int = 1,
    clock: ManualClock | None = None,
    progress: Mapping[str, ProgressPolicy] | None = None,
    schemas: Mapping[str, SchemaLike] | None = None,
) -> ScriptedRun:
    """Run a query over scripted inputs; raise a `Violation` if the faults show in the output.

    `inputs` are drawn tables, lists of dicts or Arrow tables, by name; `query` gets a stream for each as an argument of
    that name. `progress` and `schemas` are those of `hr.events`, by name, for inputs that need one. Pauses
    move `clock` from its current time. Default: a clock that starts at 0.
    """
    _check(buckets, inputs, progress, schemas)
    scripts = {name: _read_script(name, data, (schemas or {}).get(name)) for name, data in inputs.items()}
    streams = {name: _stream(script, (progress or {}).get(name)) for name, script in scripts.items()}
    line = line_of(outputs_of({"out": node_of(query(**streams), "a query that gives a stream")}), buckets)
    clock = clock or ManualClock()
    start = clock.now
    run = _Play(line, scripts, buckets, clock).run(faults=True)
    if run.restarts:
        _compare(run, _Play(line, scripts, buckets, ManualClock(start)).run(faults=False))
    check_order(run.events(), "corrections")
    return run


def _check(buckets: int, inputs: Mapping[str, Any], *options: Mapping[str, Any] | None) -> None:
    if type(buckets) is not int or buckets < 1:
        raise PlanError("buckets must be at least 1", given=buckets, instead="buckets=1")
    for names in options:
        for name in names or ():
            if name not in inputs:
                raise PlanError(f"there is no input {name!r}", given=name, allowed=", ".join(inputs))


# --- scripts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Batch:
    """One batch of an input: its number of events, after how many the process dies, and the pause that follows."""

    rows: int = 0
    aborts: tuple[int, ...] = ()
    pause: int = 0
    last: bool = False


@dataclass(frozen=True, eq=False)
class _Script:
    """An input: its events, and their batches."""

    name: str
    events: pa.Table
    schema: SchemaLike | None
    batches: tuple[_Batch, ...]


@dataclass(frozen=True, eq=False)
class _Scripted(Events):
    """Events of a scripted input. The name distinguishes inputs that have equal events in different batches."""

    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {super().__str__()}"


def _read_script(name: str, data: Any, schema: SchemaLike | None) -> _Script:
    kinds, times, rest = _split(data)
    batches = [_Batch()]
    for row, (kind, time) in enumerate(zip(kinds, times, strict=True), 1):
        batch = batches[-1]
        if batch.last:
            raise EventError(f"{name}, row {row}: the input has ended", given=kind, allowed="nothing after eof")
        if kind == "pause":
            batches[-1] = replace(batch, pause=_pause(name, row, time))
            batches.append(_Batch())
        elif kind == "abort":
            batches[-1] = replace(batch, aborts=(*batch.aborts, batch.rows))
        elif kind == "eof":
            batches[-1] = replace(batch, last=True)
        else:
            batches[-1] = replace(batch, rows=batch.rows + 1)
    return _Script(name, rest, schema, tuple(batches))


def _pause(name: str, row: int, time: Any) -> int:
    """How long a pause lasts; in a drawn table a bare number is ticks."""
    if time is None or time == "":
        return 0
    text = str(time).strip()
    try:
        length = duration(int(text) if text.lstrip("+-").isdecimal() else time)
    except TimeError as error:
        raise EventError(f"{name}, row {row}: le of a pause is its duration", given=time, allowed="10 s") from error
    if length < 0:
        raise EventError(f"{name}, row {row}: a pause cannot be negative", given=time, allowed="10 s, or nothing")
    return length


def _split(data: Any) -> tuple[list[str], list[Any], Any]:
    """The kind and `le` of every row, and the data without the fault rows."""
    if isinstance(data, str):
        return _split_lines(data)
    if isinstance(data, pa.Table):
        if "kind" not in data.column_names:
            return ["insert"] * data.num_rows, [None] * data.num_rows, data
        kinds = [_kind(value) for value in data["kind"].to_pylist()]
        return kinds, data["le"].to_pylist(), data.filter(pa.array([kind not in FAULTS for kind in kinds], pa.bool_()))
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        kinds = [_kind(row.get("kind", "insert")) for row in data]
        events = [row for row, kind in zip(data, kinds, strict=True) if kind not in FAULTS]
        return kinds, [row.get("le") for row in data], events
    allowed = "a drawn table (text), a list of dicts, an Arrow table"
    raise EventError("this is not a script", given=type(data).__name__, allowed=allowed)


def _split_lines(text: str) -> tuple[list[str], list[Any], str]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not set(line) <= set("|-+ ")]
    framed = bool(lines) and lines[0].startswith("|")
    cells = [_cells(line, framed=framed) for line in lines]
    header = cells[0] if cells else []
    if "kind" not in header:
        return ["insert"] * (len(lines) - 1), [None] * (len(lines) - 1), text
    kind, le = header.index("kind"), header.index("le") if "le" in header else len(header)
    kinds = [_kind(row[kind] if kind < len(row) else "") for row in cells[1:]]
    times = [row[le] if le < len(row) else None for row in cells[1:]]
    event_lines = [line for line, row_kind in zip(lines[1:], kinds, strict=True) if row_kind not in FAULTS]
    return kinds, times, "\n".join([lines[0], *event_lines])


def _cells(line: str, *, framed: bool) -> list[str]:
    cells = line.removeprefix("|").removesuffix("|") if framed else line
    return [cell.strip() for cell in cells.split("|")]


def _kind(value: Any) -> str:
    return str(value).strip().lower()


def _stream(script: _Script, progress: ProgressPolicy | None) -> Stream:
    sizes = [batch.rows for batch in script.batches]
    node = events(script.events, script.schema, progress=progress, batches=sizes).node
    assert isinstance(node, Admit)
    assert isinstance(node.source.origin, Events)
    origin = _Scripted(node.source.origin.table, node.source.origin.sizes, script.name)
    return Stream(Admit(replace(node.source, origin=origin)))


# --- the run ---------------------------------------------------------------------------------------------------------


class _Play:
    """A run of the scripts."""

    def __init__(self, line: Line, scripts: Mapping[str, _Script], buckets: int, clock: ManualClock) -> None:
        self.line, self.scripts, self.buckets, self.clock = line, scripts, buckets, clock
        self.runner = Runner(line, buckets, clock)
        self.restarts = 0
        self._tables = {source.fingerprint: list(_origin(source).batches()) for source in line.sources}

    def run(self, *, faults: bool) -> ScriptedRun:
        """Run all batches to the end of all inputs."""
        for number in range(max(len(script.batches) for script in self.scripts.values())):
            turn = {name: s.batches[number] for name, s in self.scripts.items() if number < len(s.batches)}
            for name, batch in turn.items() if faults else ():
                for after in batch.aborts:
                    self._die(number, name, after)
            blocks = {s.fingerprint: self._blocks(s, number) for s in self._sources(turn)}
            ended = [s.fingerprint for s in self._sources(turn) if turn[_origin(s).name].last]
            self.runner.round(blocks, ended)
            # Pauses of the same batch overlap.
            self.clock.advance(max(batch.pause for batch in turn.values()))
        self.runner.end()
        done = self.runner.done
        return ScriptedRun(done.results, done.counts, done.statistics, done.examples, self.restarts)

    def _die(self, number: int, name: str, after: int) -> None:
        """Run a batch with only the first `after` rows of one input, then restore the state saved before it."""
        saved = self.runner.save()
        partial_batch = {
            source.fingerprint: self._blocks(source, number, after if _origin(source).name == name else None)
            for source in self.line.sources
            if number < len(self._tables[source.fingerprint])
        }
        self.runner.round(partial_batch)
        self.runner = Runner.restored(self.line, self.buckets, self.clock, saved)
        self.restarts += 1

    def _sources(self, turn: Mapping[str, _Batch]) -> list[Source]:
        return [source for source in self.line.sources if _origin(source).name in turn]

    def _blocks(self, source: Source, number: int, rows: int | None = None) -> list[Block]:
        table = self._tables[source.fingerprint][number]
        return [(in_memory(table if rows is None else table.slice(0, rows), source), None)]


def _origin(source: Source) -> _Scripted:
    if not isinstance(source.origin, _Scripted):
        raise PlanError(
            "a scripted run reads scripted inputs only",
            given=str(source.origin),
            allowed="the streams that are passed to the query",
            instead="run_scripted({'name': events, ...}, query)",
        )
    return source.origin


def _compare(disturbed: ScriptedRun, undisturbed: ScriptedRun) -> None:
    """Raise unless every batch of every output is the same."""
    for name, result in disturbed.results.items():
        label = f"after {disturbed.restarts} restarts, in {name!r}"
        check_same_batches(result, undisturbed.results[name], label)
