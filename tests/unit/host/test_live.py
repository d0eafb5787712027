"""Queries that run in this process until they are stopped: every source and sink, waiting, failures, restarts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fixtures.waiting import SAYS_THAT_IT_WAITS, until

import headrace as hr
from headrace.errors import CheckpointError, EventError, HeadraceError, HostError, LateEvent, PlanError
from headrace.host.driving import query as query_module
from headrace.host.driving import tasks
from headrace.io.origins import SparkRead
from headrace.io.sinks import FunctionSink, Nowhere, read_events_output
from headrace.plan.nodes import Source
from headrace.store.cleanup import KEPT
from headrace.testing.same import assert_same_history

SCHEMA = "t LONG, k STRING, v LONG"


def add(folder: Path, *rows: tuple[int, str, int]) -> None:
    """One more file, which appears whole."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    draft = folder / f"_{number}"
    draft.write_text("t,k,v\n" + "".join(f"{t},{k},{v}\n" for t, k, v in rows))
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number:03d}.csv")


def sums(folder: Path) -> hr.Stream:
    rows = hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("t"), progress=hr.advance(delay=5))
    return rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("v"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for number in range(4):
        add(tmp_path / "in", *((10 * number + i, "abc"[i % 3], i) for i in range(9)))
    return tmp_path / "in"


def test_a_query_that_would_read_what_it_writes_is_refused(data: Path, tmp_path: Path):
    state, out = str(tmp_path / "state"), hr.files(str(tmp_path / "out"))
    for sink, checkpoint in [(hr.files(str(data / "out")), state), (out, str(data)), (out, f"file:{data}/state")]:
        with pytest.raises(PlanError, match="would read its own output"):
            sums(data).start(sink, host="local", checkpoint=checkpoint)
    assert sorted(path.name for path in data.iterdir()) == ["000.csv", "001.csv", "002.csv", "003.csv"]
    for source, sink in [(data, "_out"), (data / "*.csv", "out")]:  # what begins with _ is no data
        query = sums(source).start(hr.files(str(data / sink)), host="local")
        query.process_all_available()
        query.stop()


def test_an_empty_text_is_no_checkpoint(data: Path):
    with pytest.raises(CheckpointError, match="must be a path"):
        sums(data).start(hr.memory(), host="local", checkpoint="")


def test_the_end_of_input_may_take_as_long_as_it_takes(data: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(query_module, "_END_SECONDS", 0.05)
    slow = FunctionSink(function=lambda _, __, progress: time.sleep(0.2 if progress.cti == hr.INFINITY else 0))
    query = sums(data).start(slow, host="local")
    query.finish()
    query.stop()


# --- sources and sinks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [1, 3])
def test_files_that_keep_coming_into_every_sink(data: Path, tmp_path: Path, buckets: int):
    called: list[int] = []
    memory, out, stream = hr.memory(), str(tmp_path / "out"), sums(data)
    sinks = [
        memory,
        hr.files(out),
        hr.console(),
        Nowhere(),
        FunctionSink(function=lambda batch, *_: called.append(batch)),
    ]
    given: dict[str, Any] = {"host": "local", "checkpoint": str(tmp_path / "state"), "files_per_batch": 1}
    query = stream.start(*sinks, **given, buckets=buckets)
    query.process_all_available()
    assert query.progress()["batch"] == 3
    add(data, (41, "a", 7), (42, "d", 8))
    until(lambda: query.progress()["batch"] == 4)
    query.finish()
    assert query.progress()["cti"] == hr.INFINITY
    assert [operator["held_by"] for operator in query.progress()["operators"]]
    query.stop()
    assert not query.is_active
    right = stream.run()
    assert_same_history(memory.cht(), right.cht())
    assert_same_history(read_events_output(out, stream.schema), right.cht())
    assert called == list(range(6))
    assert query.counts == right.counts


def test_several_streams_and_diverted_rows(data: Path, tmp_path: Path):
    add(data, (1, "late", 1))
    rows = hr.read_csv(str(data), SCHEMA, lifetime=hr.point("t"), progress=hr.ordered())
    seen, counted = hr.memory(), hr.memory()
    query = hr.start_all(
        [(rows, seen), (rows.window(hr.tumbling(10)).aggregate(n=hr.count()), counted)],
        host="local", checkpoint=str(tmp_path / "state"), files_per_batch=1,
    )  # fmt: skip
    query.finish()
    query.stop()
    assert sum(counted.cht()["n"].to_pylist()) == seen.cht().num_rows == 36
    (counts,) = query.counts.values()
    assert (counts["late"], counts["diverted"]) == (1, 1)
    assert list((tmp_path / "state" / "diverted").rglob("part-*"))


def test_generated_streams_and_events_in_memory(tmp_path: Path):
    trades = hr.generated("trades", rows=500, disorder=0.2)
    drawn = hr.events("kind|le|re|re_new|x\ninsert|1|9||3\ncti|2|||\nretract|1|9|5|3\n")
    for number, stream in enumerate(
        (trades.group_by("symbol").window(hr.tumbling("1 s")).aggregate(hr.count()), drawn)
    ):
        memory = hr.memory()
        query = stream.start(memory, host="local", checkpoint=str(tmp_path / str(number)))
        query.finish()
        query.stop()
        assert_same_history(memory.cht(), stream.cht())


@pytest.mark.slow
def test_lines_of_a_host_across_a_restart(tmp_path: Path):
    """Each connection gets other lines; what came before the restart is not lost and does not come twice."""
    ended = threading.Semaphore(0)

    def serve(listener: socket.socket) -> None:
        for first in (1, 4):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"".join(b"k,%d\n" % i for i in range(first, first + 3)))
                ended.acquire(timeout=240)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        stream = hr.read_host("127.0.0.1", listener.getsockname()[1], "k STRING, v INT")
        seen = [hr.memory(), hr.memory()]
        for turn, memory in enumerate(seen):
            query = stream.start(memory, host="local", checkpoint=str(tmp_path / "state"), record="1 h")
            until(lambda q=query: q.receivers[0].counts["lines"] == 3)  # type: ignore[misc]
            query.process_all_available()
            (counts,) = query.counts.values()
            assert counts["accepted"] == 3 * (turn + 1)
            query.stop()
            ended.release()
    assert [sorted(memory.cht()["v"].to_pylist()) for memory in seen] == [[1, 2, 3], [4, 5, 6]]
    recorded = hr.trace_checkpoint(tmp_path / "state", stream)  # the files of these lines are gone
    assert sorted(recorded.history()["v"].to_pylist()) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_heartbeat_goes_on_without_input(tmp_path: Path):
    now = int(time.time() * 1_000_000)
    add(tmp_path / "in", (now, "a", 1))
    rows = hr.read_csv(str(tmp_path / "in"), SCHEMA, lifetime=hr.point("t"), progress=hr.heartbeat("100 ms"))
    memory = hr.memory()
    query = rows.window(hr.tumbling("200 ms")).aggregate(n=hr.count()).final().start(memory, host="local")
    until(lambda: memory.batches and memory.cht().num_rows == 1)
    query.stop()
    assert memory.cht()["n"].to_pylist() == [1]


def test_what_only_spark_can_read_is_refused(tmp_path: Path):
    rows = hr.read_csv(str(tmp_path), SCHEMA, lifetime=hr.point("t")).node
    assert isinstance(rows, Source)
    stream = hr.Stream(replace(rows, origin=SparkRead("kafka")))
    with pytest.raises(PlanError, match="only Spark can read this source") as caught:
        stream.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
    assert caught.value.instead == "start(..., host='spark')"
    assert not (tmp_path / "state").exists()


def test_options_of_spark_and_unknown_hosts_are_refused(tmp_path: Path):
    stream = hr.read_csv(str(tmp_path), SCHEMA, lifetime=hr.point("t"))
    with pytest.raises(PlanError, match="there is no option 'master' here"):
        stream.start(hr.memory(), host="local", master="local[2]")
    with pytest.raises(PlanError, match="unknown host") as caught:
        stream.start(hr.memory(), host="flink")
    assert caught.value.allowed == "local, spark"


# --- starting again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [1, 2])
def test_it_goes_on_from_its_checkpoint(data: Path, tmp_path: Path, buckets: int):
    out, stream = str(tmp_path / "out"), sums(data)
    given: dict[str, Any] = {"host": "local", "checkpoint": str(tmp_path / "state"), "files_per_batch": 1}
    for number in range(4):
        query = stream.start(hr.files(out), **given, **({"buckets": buckets} if not number else {}))
        query.process_all_available()
        query.stop()
        assert not [key for key in tasks._STAGES if str(tmp_path) in key[0]], "a query that has ended keeps nothing"
        add(data, (40 + number, "abcd"[number], 1), (38, "b", 100))
    query = stream.start(hr.files(out), **given)
    with pytest.raises(CheckpointError, match="another query uses this checkpoint, in this process"):
        stream.start(hr.files(out), **given)
    query.finish()
    query.stop()
    right = stream.run()
    assert_same_history(read_events_output(out, stream.schema), right.cht())
    assert query.counts == right.counts


def test_a_run_to_the_end_with_a_checkpoint(data: Path, tmp_path: Path):
    given: dict[str, Any] = {"checkpoint": str(tmp_path / "state"), "finish": False}
    first = sums(data).run(**given)
    add(data, (47, "a", 7))
    second = sums(data).run(**given)
    assert (first.counts, second.counts) != (second.counts, first.counts)
    together = pa.concat_tables([first.events(), second.events()])
    assert_same_history(together, sums(data).run(finish=False).cht())


@pytest.mark.slow
def test_a_query_that_runs_for_long_keeps_a_bounded_number_of_files_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The store's docstring has the numbers."""
    monkeypatch.setattr(query_module, "_KEPT_BATCHES", 20)
    for number in range(90):
        add(tmp_path / "in", (10 * number, "a", number), (10 * number + 3, "b", number))
    store, most = tmp_path / "state" / "store", dict.fromkeys(("epochs", "floors", "commits", "plans", "data"), 0)

    def look(*_: object) -> None:
        for folder in most:
            most[folder] = max(most[folder], len(list((store / folder).glob("*"))))

    given: dict[str, Any] = {"host": "local", "checkpoint": str(tmp_path / "state"), "files_per_batch": 1}
    query = sums(tmp_path / "in").start(FunctionSink(function=look), **given)
    query.finish()
    query.stop()
    assert query.progress()["batch"] == 90
    assert most["epochs"] == 1
    assert most["floors"] <= 2
    assert most["commits"] <= KEPT + 4
    assert most["plans"] <= KEPT + 4
    assert most["data"] <= 8
    assert len(query.batch_seconds) == len(query.statistics) == 20


# --- waiting and failing ---------------------------------------------------------------------------------------------


def test_waiting_ends_with_the_query_and_tells_why_it_failed(tmp_path: Path):
    add(tmp_path / "in", (9, "a", 1), (1, "a", 1))
    rows = hr.read_csv(str(tmp_path / "in"), SCHEMA, lifetime=hr.point("t"), progress=hr.ordered("raise"))
    query = rows.start(hr.memory(), host="local")
    with pytest.raises(LateEvent, match="breaks the promise"):
        query.await_termination(30)
    query.stop()


def test_waiting_ends_when_it_is_stopped_or_the_time_is_up(data: Path):
    query = sums(data).start(hr.memory(), host="local")
    assert not query.await_termination(0.05)
    query.stop()
    assert query.await_termination(30)


@pytest.mark.parametrize("buckets", [1, 3])
def test_a_failed_query_says_why_and_may_be_started_again(data: Path, tmp_path: Path, buckets: int):
    failing = tmp_path / "fails"
    failing.touch()

    def fragile(s: int) -> int:
        if failing.exists() and s == 12:
            raise ZeroDivisionError("no twelves")
        return s

    function = hr.udf(fragile, takes="LONG", returns="LONG", name="fragile")
    stream = sums(data).select("k", s=function("s"))
    given: dict[str, Any] = {"host": "local", "checkpoint": str(tmp_path / "state"), "buckets": buckets}
    query = stream.start(hr.files(str(tmp_path / "out")), **given)
    with pytest.raises(HeadraceError, match="no twelves"):
        query.process_all_available()
    assert isinstance(query.exception(), HeadraceError)
    failing.unlink()
    again = stream.start(hr.files(str(tmp_path / "out")), **given)  # although nobody has stopped the one that failed
    again.finish()
    again.stop()
    query.stop()
    assert_same_history(read_events_output(str(tmp_path / "out"), stream.schema), stream.cht())


def test_an_error_of_a_sink_is_a_host_error_with_its_cause(data: Path, tmp_path: Path):
    healthy = threading.Event()

    def take(*_: object) -> None:
        if not healthy.is_set():
            raise ZeroDivisionError("not today")

    given: dict[str, Any] = {"host": "local", "checkpoint": str(tmp_path / "state")}
    query = sums(data).start(FunctionSink(function=take), **given)
    with pytest.raises(HostError, match="the query failed: ZeroDivisionError: not today") as caught:
        query.process_all_available()
    assert caught.value.instead == f"start again with this checkpoint: checkpoint={str(tmp_path / 'state')!r}"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not query.is_active
    healthy.set()
    again = sums(data).start(FunctionSink(function=take), **given)  # although nobody has stopped the one that failed
    again.process_all_available()
    again.stop()
    query.stop()


ALONE = """
import signal, sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is not to be imported")

sys.meta_path.insert(0, NoSpark())
import headrace as hr
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
rows = hr.read_csv(sys.argv[1], "t LONG, k STRING, v LONG", lifetime=hr.point("t"), progress=hr.advance(delay=5))
memory = hr.memory()
stream = rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
query = stream.start(memory, host="local", checkpoint=sys.argv[2], buckets=2)
query.process_all_available()
print(sum(memory.cht()["n"].to_pylist()), flush=True)
if sys.argv[3] == "wait":
    try:
        query.await_termination()
    except KeyboardInterrupt:
        print("stopped", not query.is_active, flush=True)
"""


@pytest.mark.slow
def test_nothing_of_spark_is_imported_and_control_c_stops_without_noise(data: Path, tmp_path: Path):
    command = [sys.executable, "-c", SAYS_THAT_IT_WAITS + ALONE, str(data), str(tmp_path / "state"), "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "27\n", process.stderr.read() if process.stderr else ""
        assert process.stdout.readline() == "it waits\n"
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=240)
    assert (out, errors) == ("stopped True\n", "")


@pytest.mark.slow
def test_a_process_that_forgets_to_stop_its_query_ends_quietly(data: Path, tmp_path: Path):
    command = [sys.executable, "-c", ALONE, str(data), str(tmp_path / "state"), "go"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "27\n", "")


def test_a_run_that_continues_says_so_when_it_corrects_answers_from_before(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("t,x\n1,1\n12,2\n")
    read = hr.read_csv(str(tmp_path / "in"), "t LONG, x LONG", lifetime=hr.point("t"), progress=hr.advance(100))
    total = read.window(hr.tumbling(10)).aggregate(x=hr.sum("x"))
    assert total.cht(checkpoint=str(tmp_path / "state"), finish=False)["x"].to_pylist() == [1]
    (tmp_path / "in" / "b.csv").write_text("t,x\n3,5\n")
    again = total.run(checkpoint=str(tmp_path / "state"), finish=False)
    assert again.events().num_rows
    with pytest.raises(EventError, match="continued a checkpoint with batch 1"):
        again.cht()


@pytest.mark.parametrize("ends", [(False, True), (True, False)])
def test_a_run_with_a_checkpoint_continues_whether_it_ended_the_streams_or_not(ends: tuple[bool, ...], tmp_path: Path):
    (tmp_path / "in").mkdir()
    read = hr.read_json(str(tmp_path / "in"), "t DATETIME, k STRING", lifetime=hr.point("t"))
    for number, finish in enumerate(ends):
        (tmp_path / "in" / f"{number}.json").write_text('{"t": 1, "k": "a"}\n{"t": null, "k": "b"}\n')
        with pytest.warns(hr.RowsNotUsed):
            run = read.select("k").run(checkpoint=str(tmp_path / "state"), finish=finish)
        assert run.diverted().num_rows == run.lost == number + 1 + (number and ends[0])  # after an end, rows are late
        assert list(run.results) == ["out", "(diverted) 0"]
