"""Traces of what ran: batches of a checkpoint that are run again."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.cli import app
from headrace.cli.loading import load_file
from headrace.cli.replaying import trace_again
from headrace.errors import CheckpointError, PlanError, StoreError, TraceError
from headrace.host.saved.folder import SavedCheckpoint
from headrace.host.saved.replay import kept_batches
from headrace.io.adapter import Offsets, SourceAdapter
from headrace.io.decoded import DecodedBlock, decoded
from headrace.io.sinks import Memory
from headrace.schema import Schema
from headrace.store.storage import LocalStorage

SCHEMA = "k STRING, ts LONG, x LONG"


def write(folder: Path, number: int, *rows: tuple[str, int, int]) -> None:
    folder.mkdir(exist_ok=True)
    file = folder / f"{number:04d}.csv"
    file.write_text("k,ts,x\n" + "".join(f"{k},{ts},{x}\n" for k, ts, x in rows))
    os.utime(file, ns=(number * 10**9, number * 10**9))


def fill(folder: Path, first: int, count: int) -> None:
    """Files with a row each; every third is late by its batch."""
    for number in range(first, first + count):
        back = 20 if number % 3 == 2 else 0
        write(folder, number, ("ab"[number % 2], 4 * number - back, number))


def sums(folder: Path) -> hr.Stream:
    ticks = hr.read_csv(
        str(folder), schema=SCHEMA, lifetime=hr.point("ts"), progress=hr.advance(delay=12, late="divert")
    )
    return ticks.where(col("x") > 0).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("x"))


def run_all(stream: hr.Stream, place: Path, **options: Any) -> Memory:
    """Start it, process what is there, stop it; the batches of this start."""
    sink = hr.memory()
    query = stream.start(sink, host="local", checkpoint=str(place), files_per_batch=1, **options)
    try:
        query.process_all_available()
    finally:
        query.stop()
    return sink


def rows(changes: Changes) -> list[str]:
    return sorted(map(repr, changes.consolidate().to_table().to_pylist()))


def answers(trace: Any, batch: int) -> list[str]:
    parts = [changes for number, changes in trace.record.changes_by_batch(trace.record.output) if number == batch]
    return rows(Changes.concat([Changes.empty(trace.record.output.node.schema), *parts]))


def live(sink: Memory) -> dict[int, list[str]]:
    return {number: rows(changes) for number, (changes, _) in zip(sink.numbers, sink.batches, strict=True)}


@pytest.mark.parametrize("buckets", [1, 3])
def test_traced_batches_are_those_that_ran(tmp_path: Path, buckets: int):
    fill(tmp_path / "in", 0, 6)
    stream, place = sums(tmp_path / "in"), tmp_path / "state"
    published = live(run_all(stream, place, buckets=buckets))
    fill(tmp_path / "in", 6, 3)
    published |= live(run_all(stream, place))
    trace = hr.trace_checkpoint(place, stream, batches=(4, 8), state=True)
    assert {number: answers(trace, number) for number in range(4, 9)} == {n: published[n] for n in range(4, 9)}
    assert set(trace.batches["batch"].to_pylist()) == set(range(4, 9))
    diverted = [row["operator"] for row in trace.operators.to_pylist() if row["kind"] == "Diverted"]
    assert set(trace.of(*diverted)["batch"].to_pylist()) == {5, 8}
    assert repr(trace).startswith("Trace of the batches 4 to 8, from the state before them")
    (aggregate,) = [row["operator"] for row in trace.operators.to_pylist() if row["kind"] == "Aggregate"]
    assert sum(table.num_rows for table in trace.state(aggregate, 8).values()) > 0


def test_a_trace_from_the_beginning_has_histories(tmp_path: Path):
    fill(tmp_path / "in", 0, 4)
    stream = sums(tmp_path / "in")
    run_all(stream, tmp_path / "state")
    trace = hr.trace_checkpoint(tmp_path / "state", stream)
    assert trace.history()["n"].to_pylist() == [1]
    assert len(trace.why(n=1).inputs) == 1
    later = hr.trace_checkpoint(tmp_path / "state", stream, batches=(2, 3))
    with pytest.raises(TraceError, match="this trace begins with batch 2"):
        later.history()
    with pytest.raises(TraceError, match="another run needs the rows from the beginning"):
        later.without()


def test_only_the_last_batches_are_kept(tmp_path: Path):
    fill(tmp_path / "in", 0, 22)
    stream = sums(tmp_path / "in")
    run_all(stream, tmp_path / "state")
    kept = kept_batches(SavedCheckpoint(tmp_path / "state"))
    assert kept is not None
    assert 8 < kept.first < kept.last == 21
    with pytest.raises(TraceError, match="what they need is not kept") as found:
        hr.trace_checkpoint(tmp_path / "state", stream, batches=(3, 5))
    assert found.value.given == "batches 3..5"
    assert found.value.allowed == f"batches {kept}"
    assert "record='1 h'" in found.value.instead
    assert hr.trace_checkpoint(tmp_path / "state", stream, batches=(kept.first, 21)).record.first == kept.first


def test_a_recorded_query_keeps_its_batches(tmp_path: Path):
    fill(tmp_path / "in", 0, 22)
    stream = sums(tmp_path / "in")
    published = live(run_all(stream, tmp_path / "state", record="1 h"))
    trace = hr.trace_checkpoint(tmp_path / "state", stream)
    assert {number: answers(trace, number) for number in range(22)} == published
    assert hr.checkpoint(str(tmp_path / "state")).verify()["problems"] == []
    hr.checkpoint(str(tmp_path / "state")).gc()
    assert answers(hr.trace_checkpoint(tmp_path / "state", stream, batches=(7, 9)), 8) == published[8]


def test_what_is_older_than_the_recording_is_removed_and_counted(tmp_path: Path):
    fill(tmp_path / "in", 0, 22)
    stream = sums(tmp_path / "in")
    run_all(stream, tmp_path / "state", record=1)  # a microsecond
    folder = SavedCheckpoint(tmp_path / "state")
    kept = kept_batches(folder)
    assert kept is not None
    assert kept.first > 8
    last = folder.log.read(21).record["recording"]
    assert last["removed"] == folder.log.floor()


def test_the_input_of_a_batch_is_gone(tmp_path: Path):
    fill(tmp_path / "in", 0, 6)
    stream = sums(tmp_path / "in")
    run_all(stream, tmp_path / "state")
    (tmp_path / "in" / "0004.csv").unlink()
    with pytest.raises(TraceError, match="the input of batch 4 is no longer there") as found:
        hr.trace_checkpoint(tmp_path / "state", stream)
    assert "0004.csv is gone" in found.value.given
    hr.trace_checkpoint(tmp_path / "state", stream, batches=(5, 5))
    changed = tmp_path / "in" / "0005.csv"
    for text in (changed.read_text().swapcase(), "k,ts,x\n"):  # of the same size, and shorter
        changed.write_text(text)
        with pytest.raises(TraceError, match="the input of batch 5 is no longer there") as found:
            hr.trace_checkpoint(tmp_path / "state", stream, batches=(5, 5))
        assert "0005.csv was changed" in found.value.given


def test_another_query_is_refused_with_what_differs(tmp_path: Path):
    fill(tmp_path / "in", 0, 3)
    run_all(sums(tmp_path / "in"), tmp_path / "state")
    with pytest.raises(CheckpointError, match="another query") as found:
        hr.trace_checkpoint(tmp_path / "state", sums(tmp_path / "in").where(col("n") > 1))
    assert "+ 1 Where n > 1" in str(found.value)
    with pytest.raises(CheckpointError, match="has 1 output"):
        hr.trace_checkpoint(tmp_path / "state", *[sums(tmp_path / "in")] * 2)


def test_final_answers_and_upserts(tmp_path: Path):
    fill(tmp_path / "in", 0, 6)
    stream = sums(tmp_path / "in")
    query = stream.start(hr.memory(encoding="final"), host="local", checkpoint=str(tmp_path / "final"))
    query.process_all_available()
    query.stop()
    assert "Final" in hr.trace_checkpoint(tmp_path / "final", stream).operators["kind"].to_pylist()
    sink = hr.files(str(tmp_path / "out"), encoding="upsert", key="k")
    query = stream.start(sink, host="local", checkpoint=str(tmp_path / "upsert"))
    query.process_all_available()
    query.stop()
    assert "EdgeLifetimes" in hr.trace_checkpoint(tmp_path / "upsert", (stream, sink)).operators["kind"].to_pylist()


def test_a_recording_needs_a_checkpoint_and_a_duration(tmp_path: Path):
    fill(tmp_path / "in", 0, 1)
    with pytest.raises(PlanError, match="kept in the checkpoint"):
        sums(tmp_path / "in").start(hr.memory(), host="local", record="1 h")
    with pytest.raises(PlanError, match="lasts a duration"):
        sums(tmp_path / "in").start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"), record=0)


# --- services --------------------------------------------------------------------------------------------------------

#: The rows of a service, by offset, and the first that it still has.
SERVED: list[tuple[str, int, int]] = []
FIRST = [0]


@dataclass(frozen=True)
class Letters(SourceAdapter):
    """A service that forgets what is acknowledged."""

    keeps_rows: ClassVar[bool] = False

    @property
    def schema(self) -> Schema:
        return Schema.of(SCHEMA)

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:  # noqa: ARG002
        return {"letters": Offsets(FIRST[0], len(SERVED))}

    def read(
        self,
        partition: str,  # noqa: ARG002 - there is one
        start: int,
        end: int,
        columns: Sequence[str],
    ) -> Generator[DecodedBlock, None, int | None]:
        names = ("k", "ts", "x")
        found = pa.table({name: [row[i] for row in SERVED[start:end]] for i, name in enumerate(names)})
        yield decoded(found.select(list(columns)), np.arange(start, end), self.schema)
        return None

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        if self.keeps_rows is False:
            FIRST[0] = positions["letters"]


@dataclass(frozen=True)
class Kept(Letters):
    """A service that keeps its rows for some time."""

    keeps_rows: ClassVar[bool] = True


def served(adapter: SourceAdapter) -> hr.Stream:
    ticks = hr.read_source(adapter, lifetime=hr.point("ts"), progress=hr.advance(delay=12, late="divert"))
    return ticks.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("x"))


@pytest.fixture(autouse=True)
def _letters(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("ab"[n % 2], 4 * n - (20 if n % 3 == 2 else 0), n) for n in range(30)]
    monkeypatch.setattr(f"{__name__}.SERVED", found)
    monkeypatch.setattr(f"{__name__}.FIRST", [0])


def test_what_a_service_forgets_is_recorded(tmp_path: Path):
    stream = served(Letters())
    sink = hr.memory()
    query = stream.start(sink, host="local", checkpoint=str(tmp_path / "state"), rows_per_batch=2, record="1 h")
    query.process_all_available()
    query.stop()
    assert FIRST == [30]
    trace = hr.trace_checkpoint(tmp_path / "state", stream)
    published = live(sink)
    assert len(published) >= 15
    assert {number: answers(trace, number) for number in published} == published
    (diverted,) = [row["operator"] for row in trace.operators.to_pylist() if row["kind"] == "Diverted"]
    (counts,) = query.counts.values()
    assert len(trace.of(diverted)) == counts["diverted"] > 0


class DiesOnce:
    """Lets the store fail once: at its n-th new file, before or after it is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
        self.left = n
        create = LocalStorage.create

        def failing(storage: LocalStorage, key: str, data: Any, *, lasting: bool = True) -> bool:
            self.left -= 1
            if self.left == 0 and n % 2:
                raise StoreError("it dies here")
            done = create(storage, key, data, lasting=lasting)
            if self.left == 0:
                raise StoreError("it dies here")
            return done

        monkeypatch.setattr(LocalStorage, "create", failing)


@pytest.mark.parametrize("call", [4, 5, 6, 7, 8, 9, 11, 12])
def test_a_batch_is_recorded_exactly_if_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int):
    stream, published, failed = served(Letters()), {}, 0
    DiesOnce(monkeypatch, call)
    for _ in range(2):
        sink = hr.memory()
        options: dict[str, Any] = {"checkpoint": str(tmp_path / "state"), "rows_per_batch": 8, "record": "1 h"}
        try:
            query = stream.start(sink, host="local", **options)
        except StoreError:
            failed += 1
            continue
        try:
            query.process_all_available()
        except StoreError:
            failed += 1
        finally:
            query.stop()
        published |= live(sink)
    assert failed == 1
    trace = hr.trace_checkpoint(tmp_path / "state", stream)
    assert {number: answers(trace, number) for number in published} == published
    assert hr.checkpoint(str(tmp_path / "state")).verify()["problems"] == []


def test_what_a_service_has_forgotten_is_an_error(tmp_path: Path):
    stream = served(Kept())
    query = stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"), rows_per_batch=8)
    query.process_all_available()
    query.stop()
    hr.trace_checkpoint(tmp_path / "state", stream)
    FIRST[0] = 20
    with pytest.raises(TraceError, match="the input of batch 0 is no longer there") as found:
        hr.trace_checkpoint(tmp_path / "state", stream)
    assert "20 to 30" in found.value.allowed
    assert hr.trace_checkpoint(tmp_path / "state", stream, batches=(3, 3)).record.first == 3


# --- the command -----------------------------------------------------------------------------------------------------

SCRIPT = """
CREATE STREAM ticks (k STRING, ts LONG, x LONG) ORDER BY ts SOURCE FILE ('in/*.csv', ',')
  WITH PROGRESS ADVANCE 12 us LATE DIVERT;
QUERY sums AS SELECT k, count(*) AS n, sum(x) AS s FROM ticks [TUMBLING 10 us] GROUP BY k;
"""


def test_the_command(tmp_path: Path):
    fill(tmp_path / "in", 0, 16)
    script, state = tmp_path / "sums.sql", tmp_path / "state"
    script.write_text(SCRIPT)
    run = CliRunner().invoke(app, ["run", str(script), "--checkpoint", str(state), "--record", "1 h"])
    assert run.exit_code == 0, run.output
    target = [f"{script}:sums", "--checkpoint", str(state / "sums")]
    shown = CliRunner().invoke(app, ["trace", *target, "--batches", "12..14"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("sums: Trace of the batches 12 to 14, from the state before them")
    changes = CliRunner().invoke(app, ["trace", *target, "--batches", "12..14", "--operator", "1"])
    assert {line.split("|")[0].strip() for line in changes.output.splitlines()[1:]} == {"12", "13"}
    gone = CliRunner().invoke(app, ["trace", *target, "--batches", "3..50"])
    assert gone.exit_code != 0


SEVERAL = """
CREATE STREAM s (t LONG, x LONG) ORDER BY t SOURCE FILE ('s.csv', ',');
QUERY large AS SELECT x FROM s WHERE x > 4;
QUERY small AS SELECT x + 1 AS y FROM s WHERE x < 4;
INSERT INTO FILE ('all', encoding => 'upsert', key => 'x') SELECT x FROM s;
"""


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.mark.parametrize("output", ["events", "final"])
def test_one_of_several_queries_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str):
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("t,x\n1,1\n2,5\n")
    Path("q.sql").write_text(SEVERAL)
    invoke("run", "q.sql", "--checkpoint", "kept", "--output", output)
    shown = invoke("trace", "q.sql:small", "--checkpoint", "kept/q")
    assert shown.startswith("small: Trace of 1 batch")
    assert "x < 4" in shown
    assert "x > 4" not in shown
    assert ("Final" in shown) == (output == "final")
    assert "x > 4" in invoke("trace", "q.sql:large", "--checkpoint", "kept/q")
    if output == "events":
        assert "y = 2" in invoke("trace", "q.sql:small", "--checkpoint", "kept/q", "--why", "y = 2").splitlines()[0]
    assert "Latest" in invoke("trace", "q.sql:query_3", "--checkpoint", "kept/q")
    none = CliRunner().invoke(app, ["trace", "q.sql:s", "--checkpoint", "kept/q"])
    assert isinstance(none.exception, CheckpointError)
    assert "'s' is none of the outputs of this checkpoint" in str(none.exception)


def test_the_delivery_of_a_script_alone_and_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("t,x\n1,1\n2,5\n")
    stream, *_, insert = SEVERAL.strip().splitlines()
    Path("q.sql").write_text(f"{stream}\n{insert}\n")
    invoke("run", "q.sql", "--checkpoint", "whole")
    invoke("run", "q.sql:query_1", "--checkpoint", "named")
    assert "Latest" in invoke("trace", "q.sql", "--checkpoint", "whole/q")
    assert "Latest" not in invoke("trace", "q.sql:query_1", "--checkpoint", "named/query_1")
    Path("q.sql").write_text(f"{stream}\n{insert[:-1]} WHERE x > 2;\n")
    with pytest.raises(CheckpointError, match="belongs to another query") as raised:
        trace_again("whole/q", "q.sql")
    assert "x > 2" in str(raised.value)


def test_several_streams_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in", 0, ("a", 1, 1), ("b", 2, 5))
    Path("two.py").write_text(
        f"import headrace as hr\nfrom headrace import col\n"
        f"ticks = hr.read_csv({str(tmp_path / 'in')!r}, schema={SCHEMA!r}, lifetime=hr.point('ts'))\n"
        f"large, small = ticks.where(col('x') > 4), ticks.where(col('x') < 4)\n"
    )
    streams = vars(load_file(Path("two.py")))
    query = hr.start_all(
        [(streams["large"], hr.memory()), (streams["small"], hr.memory())], host="local", checkpoint="kept"
    )
    query.process_all_available()
    query.stop()
    shown = invoke("trace", "two.py:large,small", "--checkpoint", "kept", "--why", "x = 5")
    assert "k = b" in shown
    with pytest.raises(CheckpointError, match="the query of this checkpoint has 2 outputs") as raised:
        trace_again("kept", "two.py:large")
    assert "FILE.py:A,B" in str(raised.value)
    with pytest.raises(PlanError, match="there is no stream 'smal'"):
        trace_again("kept", "two.py:large,smal")


def test_a_recording_of_the_command_needs_a_checkpoint(tmp_path: Path):
    (tmp_path / "sums.sql").write_text(SCRIPT)
    refused = CliRunner().invoke(app, ["run", str(tmp_path / "sums.sql"), "--record", "1 h"])
    assert isinstance(refused.exception, PlanError) or "kept in a checkpoint" in refused.output
