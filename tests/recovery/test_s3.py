"""Checkpoints and outputs on S3: exact answers after `kill -9`, one driver at a time, damage, what is refused."""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fixtures.s3_server import KEY, SECRET, S3Server
from tests.recovery.driver import queries, write_input
from tests.recovery.s3_driver import start
from typer.testing import CliRunner

import headrace as hr
from headrace.changes import Changes
from headrace.cli import app
from headrace.errors import CheckpointError, HeadraceError, PlanError, SinkError, SourceError, StoreError, Superseded
from headrace.events import history, to_changes
from headrace.io.files import list_files
from headrace.io.object_batches import ObjectBatches
from headrace.io.sinks import read_events_output
from headrace.store.objects import ObjectStorage
from headrace.testing import check_output
from headrace.testing.same import assert_same_history

ROOT = Path(__file__).parents[2]
FILES = 4
PARTS = ("out-a", "out-b")
SEED = int(os.environ.get("HEADRACE_KILL_SEED", "1"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_input(tmp_path / "in", 1, FILES)
    return tmp_path


def check(folder: Path, url: str) -> None:
    """Every output has what an undisturbed run gives, no more and no less."""
    streams = queries(folder)
    right = hr.run(streams)
    for name, stream in streams.items():
        place = f"{url}/out/{name}"
        events = read_events_output(place, stream.schema)
        check_output(events)
        diff = hr.history_diff(right.cht(name), history(to_changes(events, stream.schema)), names=("expected", "found"))
        assert not diff, diff
        out = ObjectBatches(place)
        assert out.storage.keys("_staging") == []
        there = {out.storage.uri(key) for n in range(100) for key in out.storage.keys(f"batch-{n:08d}")}
        assert there == set(out.files()), "whoever lists files finds those of the batches, and no others"


def drive(folder: Path, url: str, calls: int = 0) -> int:
    command = [sys.executable, "-m", "tests.recovery.s3_driver", str(folder), url, str(calls)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode in (0, -9), done.stderr.decode(errors="replace")[-3000:]
    return done.returncode


# --- kill -9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_at_any_call_it_goes_on_with_the_exact_answer(folder: Path, s3: str):
    """One life after the other, each of which ends at a call of the store, before or after it."""
    draw = random.Random(SEED)
    deaths = [drive(folder, s3, draw.randint(2, 40)) for _ in range(8)]
    assert -9 in deaths
    assert drive(folder, s3) == 0
    check(folder, s3)


# --- two at once ------------------------------------------------------------------------------------------------------


def test_of_two_drivers_the_older_is_superseded(folder: Path, s3: str):
    old = start(folder, s3)
    old.process_all_available()
    new = start(folder, s3)
    write_input(folder / "more", 1, FILES + 1)
    (folder / "more" / f"{FILES:03d}.json").rename(folder / "in" / f"{FILES:03d}.json")
    with pytest.raises(Superseded, match="another process has started the query"):
        old.await_termination(60)
    new.finish()
    old.stop()
    new.stop()
    check(folder, s3)


# --- what is on the store ---------------------------------------------------------------------------------------------


def sums(folder: Path) -> hr.Stream:
    return sums_of(str(folder))


def sums_of(place: str) -> hr.Stream:
    rows = hr.read_csv(place, "t LONG, k STRING, v LONG", lifetime=hr.point("t"), progress=hr.advance(delay=5))
    return rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("v"))


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_diverted_rows_and_events_in_memory_are_on_the_store_too(tmp_path: Path, s3: str):
    (tmp_path / "1.csv").write_text("t,k,v\n1,a,2\nx,a,3\n")
    query = sums(tmp_path).start(hr.files(f"{s3}/out", encoding="final"), checkpoint=f"{s3}/state", host="local")
    query.finish()
    query.stop()
    (diverted,) = ObjectBatches(f"{s3}/state/diverted/0").files()
    assert "'x' is not of type LONG" in json.dumps(json.loads(read(diverted)))
    trades = hr.generated("trades", rows=500, disorder=0.2)
    drawn = hr.events("kind|le|re|re_new|x\ninsert|1|9||3\ncti|2|||\nretract|1|9|5|3\n")
    for number, stream in enumerate(
        (trades.group_by("symbol").window(hr.tumbling("1 s")).aggregate(hr.count()), drawn)
    ):
        memory = hr.memory()
        query = stream.start(memory, checkpoint=f"{s3}/{number}", host="local")
        query.finish()
        query.stop()
        assert_same_history(memory.cht(), stream.cht())


def read(uri: str) -> bytes:
    place, _, name = uri.rpartition("/")
    place, _, folder = place.rpartition("/")
    return ObjectStorage(place).read(f"{folder}/{name}").to_pybytes()


def test_no_secret_is_on_the_store(folder: Path, s3: str, s3_server: S3Server):
    query = start(folder, s3)
    query.finish()
    query.stop()
    client, prefix = s3_server.client(), s3.rpartition("/")[2]
    found = [about["path"] for page in obstore.list(client, prefix) for about in page]
    assert len(found) > 10
    for path in found:
        data = bytes(obstore.get(client, path).bytes())
        assert SECRET.encode() not in data
        assert KEY.encode() not in data


def test_files_on_s3_are_found_and_read_in_every_way(s3: str):
    """A file, what is below a prefix, patterns; text, compressed text, and formats that are read from the end."""
    store = ObjectStorage(f"{s3}/in")
    table = pa.table({"t": [1, 2], "k": ["a", "b"], "v": [3, 4]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    store.create("sub/c.parquet", sink.getvalue())
    text = b"t,k,v\n1,a,3\n2,b,4\n"
    for key in ("a.csv", "sub/b.csv", "sub/deep/d.csv", "_hidden.csv", "sub/_b/e.csv"):
        store.create(key, text)
    store.create("g.csv.gz", gzip.compress(text))
    store.create("bomb.gz", gzip.compress(bytes(70 << 20)))
    every = {"a.csv", "g.csv.gz", "bomb.gz", "sub/b.csv", "sub/c.parquet", "sub/deep/d.csv"}
    found = {
        "": every, "/": every, "/a.csv": {"a.csv"}, "/*.csv": {"a.csv"}, "/sub": {n for n in every if "sub" in n},
        "/**/*.csv": {"a.csv", "sub/b.csv", "sub/deep/d.csv"}, "/sub/?.*": {"sub/b.csv", "sub/c.parquet"},
        "/nothing/": set(), "/nothing/*": set(),
    }  # fmt: skip
    for ending, keys in found.items():
        assert {path.removeprefix(f"{s3}/in/") for path in list_files(f"{s3}/in{ending}")} == keys, ending
    with pytest.raises(SourceError, match="there is no file"):
        list_files(f"{s3}/in/nothing")
    columns = {"lifetime": hr.point("t")}
    for stream in (
        hr.read_csv(f"{s3}/in/a.csv", "t LONG, k STRING, v LONG", **columns),
        hr.read_csv(f"{s3}/in/g.csv.gz", "t LONG, k STRING, v LONG", **columns),
        hr.read_parquet(f"{s3}/in/sub/*.parquet", **columns),
    ):
        assert stream.cht()["v"].to_pylist() == [3, 4]
    with pytest.raises(SourceError, match="decompresses to more than 200 times"):
        hr.read_csv(f"{s3}/in/bomb.gz", "t LONG, k STRING, v LONG", bad_rows="raise", **columns).run()


def test_sources_on_s3_across_a_restart(s3: str):
    source = ObjectStorage(f"{s3}/in")
    stream = sums_of(f"{s3}/in")
    for number in range(2):
        lines = "".join(f"{t},{'ab'[t % 2]},{t}\n" for t in range(10 * number, 10 * number + 10))
        assert source.create(f"{number}.csv", f"t,k,v\n{lines}".encode())
        query = stream.start(hr.files(f"{s3}/out", format="parquet"), checkpoint=f"{s3}/state", host="local")
        query.finish() if number else query.process_all_available()
        query.stop()
    found = history(to_changes(read_events_output(f"{s3}/out", stream.schema), stream.schema))
    assert found.num_rows == 4
    assert not hr.history_diff(stream.cht(), found, names=("expected", "found"))


def test_folders_named_after_values_on_s3(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A driver dies while it copies the files of a batch; the next one makes each of them once."""
    values = ["a", None, "x/y=1 %", "ü", ""]
    rows = pa.table({"ts": pa.array(range(5), pa.int64()), "k": pa.array(values), "v": pa.array(range(5), pa.int64())})
    stream = hr.from_arrow(rows, lifetime=hr.point("ts"))

    def query() -> Any:
        out = hr.files(f"{s3}/out", format="parquet", encoding="final", partition_by="k", sort_by="v")
        return stream.start(out, checkpoint=str(tmp_path / "state"), host="local")

    with monkeypatch.context() as broken:
        copies = iter([True, True])
        copy = ObjectStorage.copy

        def copy_two(self: ObjectStorage, key: str, to: str) -> None:
            if not next(copies, False):
                raise StoreError("the store is gone")
            copy(self, key, to)

        broken.setattr(ObjectStorage, "copy", copy_two)
        first = query()
        with pytest.raises(SinkError, match="the store is gone"):
            first.finish()
        first.stop()
    second = query()
    second.finish()
    second.stop()
    files = list_files(f"{s3}/out")
    assert sorted(files) == sorted(ObjectBatches(f"{s3}/out").files())
    folders = {path.split("/")[-2] for path in files}
    assert folders == {"k=a", "k=__HIVE_DEFAULT_PARTITION__", "k=x%2Fy%3D1 %25", "k=ü"}
    again = hr.read_parquet(f"{s3}/out", "le LONG, k STRING, v LONG", lifetime=hr.point("le")).cht()
    assert again.sort_by("v")["k"].to_pylist() == values
    with pytest.raises(PlanError, match=r"cannot be merged .* object store") as caught:
        hr.files(f"{s3}/out", format="parquet", compact=10)
    assert "hr.delta_lake" in caught.value.instead


def test_a_script_with_its_checkpoint_on_s3(tmp_path: Path, s3: str):
    (tmp_path / "ticks.csv").write_text("ts,price\n1,10\n2,20\n")
    script = tmp_path / "job.sql"
    made = "CREATE STREAM ticks (ts LONG, price LONG) ORDER BY ts SOURCE FILE ('ticks.csv') WITH PROGRESS ADVANCE 1;"
    script.write_text(f"{made} SELECT price FROM ticks;")
    command = ["run", str(script), "--host", "local", "--checkpoint", s3, "--output", "jsonl"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert '"price": 20' in done.stdout
    assert ObjectStorage(f"{s3}/job").keys("store/commits")


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(folder: Path, s3: str) -> ObjectStorage:
    """A query that was stopped."""
    query = start(folder, s3)
    query.process_all_available()
    query.stop()
    return ObjectStorage(f"{s3}/state/store")


def replace(storage: ObjectStorage, key: str, data: bytes | None) -> None:
    storage.remove(key)
    if data is not None:
        assert storage.create(key, data)


def test_a_missing_commit_is_an_error_that_says_so(begun: ObjectStorage, folder: Path, s3: str):
    replace(begun, begun.keys("commits")[-1], None)
    with pytest.raises(HeadraceError, match=r"was planned, and the last commit|commits were lost") as caught:
        start(folder, s3)
    assert isinstance(caught.value, CheckpointError | SinkError)


def test_a_damaged_commit_is_an_error_that_names_it(begun: ObjectStorage, folder: Path, s3: str):
    key = begun.keys("commits")[-1]
    replace(begun, key, begun.read(key).to_pybytes()[:-1])
    with pytest.raises(StoreError, match=f"the file '{key}' of the checkpoint is damaged"):
        start(folder, s3)


def test_a_damaged_mark_is_an_error_that_names_it(begun: ObjectStorage, folder: Path, s3: str):  # noqa: ARG001
    replace(ObjectStorage(f"{s3}/state"), "headrace.json", b"{")
    with pytest.raises(CheckpointError, match=r"headrace.json cannot be read"):
        start(folder, s3)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_what_needs_a_directory_is_refused(s3: str, tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        lines = hr.read_host("127.0.0.1", port, "k STRING, v INT")
        with pytest.raises(CheckpointError, match="need a checkpoint in a directory") as caught:
            lines.start(hr.memory(), checkpoint=s3, host="local")
        assert "spool=" in caught.value.message
        spooled = hr.read_host("127.0.0.1", port, "k STRING, v INT", spool=str(tmp_path / "spool"))
        spooled.start(hr.memory(), checkpoint=s3, host="local").stop()


@pytest.mark.parametrize("place", ["hdfs://name-node/state", "ftp://host/state"])
def test_other_stores_are_refused(place: str, tmp_path: Path):
    stream = sums(tmp_path / "*.csv")
    with pytest.raises(CheckpointError, match="a store cannot be on"):
        stream.start(hr.memory(), checkpoint=place, host="local")
    with pytest.raises(SinkError, match="a store cannot be on"):
        stream.start(hr.files(place), checkpoint=str(tmp_path / "state"), host="local")


@pytest.mark.parametrize(
    "ending", ["q[1]", "q?v=1", "q*", "q#1", "q%20x", "q x", "a//b", "a/../b", "a/./b", "q{1}", "q~"]
)
def test_urls_that_may_mean_two_places_are_refused(s3: str, ending: str):
    with pytest.raises(CheckpointError, match="is ambiguous"):
        hr.events("le|re|x\n0|9|1\n").start(hr.memory(), host="local", checkpoint=f"{s3}/{ending}")
    with pytest.raises(SinkError, match="is ambiguous"):
        hr.events("le|re|x\n0|9|1\n").start(hr.files(f"{s3}/{ending}"), host="local")


@pytest.mark.parametrize("place", ["S3://bucket/state", "s3://", "s3:///state"])
def test_urls_without_a_bucket_or_with_a_capital_scheme_are_refused(place: str):
    with pytest.raises(CheckpointError, match=r"is ambiguous|names no bucket"):
        hr.events("le|re|x\n0|9|1\n").start(hr.memory(), host="local", checkpoint=place)


@pytest.mark.parametrize("place", ["s3:/bucket/state", " s3://bucket/state", 5, b"x", [], ""])
def test_what_is_neither_a_directory_nor_a_url_is_refused(place: Any):
    for use in (lambda: hr.events("le|re|x\n0|9|1\n").start(hr.memory(), host="local", checkpoint=place),
                lambda: hr.checkpoint(place)):  # fmt: skip
        with pytest.raises(CheckpointError, match=r"must be a path|looks like a misspelled URL"):
            use()


def test_another_query_is_refused(begun: ObjectStorage, tmp_path: Path, s3: str):  # noqa: ARG001
    def query() -> Any:
        return sums(tmp_path).start(hr.memory(), checkpoint=f"{s3}/state", host="local", buckets=2)

    with pytest.raises(CheckpointError, match="belongs to another query"):
        query()


def test_another_number_of_buckets_is_refused(begun: ObjectStorage, s3: str, folder: Path):  # noqa: ARG001
    with pytest.raises(CheckpointError, match="another number of buckets") as caught:
        start(folder, s3, buckets=7)
    assert caught.value.instead == f"buckets=2, or first headrace checkpoint rescale {s3}/state --buckets 7"


def test_a_query_that_would_read_what_it_writes_is_refused(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert ObjectStorage(s3).create("in/a.csv", b"t,k,v\n")
    for sink, checkpoint in [(f"{s3}/in/out", f"{s3}/state"), (f"{s3}/out", f"{s3}/in"), (f"{s3}/out", f"{s3}/in/a/")]:
        with pytest.raises(PlanError, match="would read its own output"):
            sums_of(f"{s3}/in").start(hr.files(sink), checkpoint=checkpoint, host="local")
    sums_of(f"{s3}/in").start(hr.files(f"{s3}/in/_out"), checkpoint=f"{s3}/in2", host="local").stop()
    (tmp_path / "a.csv").write_text("t,k,v\n")
    monkeypatch.chdir(tmp_path)
    sums(tmp_path).start(hr.files(f"{s3}/other"), checkpoint=f"{s3}/state", host="local").stop()


# --- checkpoint tools -------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_shown_and_checked(begun: ObjectStorage, s3: str):
    saved = hr.checkpoint(f"{s3}/state")
    shown = saved.show()
    assert shown["path"] == f"{s3}/state"
    assert shown["driver"]["ended"]
    assert shown["files"] == len(ObjectStorage(f"{s3}/state").sizes())
    assert shown["bytes"] > 10_000
    assert "which has ended" in str(shown)
    assert saved.verify()["problems"] == []
    assert saved.state()
    done = CliRunner().invoke(app, ["checkpoint", "verify", f"{s3}/state"], catch_exceptions=False)
    assert done.exit_code == 0
    key = begun.keys("commits")[-1]
    replace(begun, key, begun.read(key).to_pybytes()[:-1])
    assert CliRunner().invoke(app, ["checkpoint", "verify", f"{s3}/state"]).exit_code == 1


def test_what_is_no_checkpoint_is_an_error(s3: str):
    with pytest.raises(CheckpointError, match="there is no checkpoint at this path"):
        hr.checkpoint(f"{s3}/nothing")


@pytest.mark.parametrize("kinds", ["store to store", "store to directory", "directory to store"])
def test_a_copy_of_a_running_query_goes_on(kinds: str, s3: str, tmp_path: Path):
    """What the original has written up to the copy, and what the copy writes, are together the whole answer."""
    places = zip("ab", kinds.split(" to "), strict=True)
    first, second = (f"{s3}/{name}" if kind == "store" else str(tmp_path / name) for name, kind in places)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("t,k,v\n1,a,1\n2,b,2\n25,a,1\n")
    rows = hr.read_csv(str(tmp_path / "in"), "t LONG, k STRING, v LONG", lifetime=hr.point("t")).select("k", "v")
    kept = hr.events("kind|le|re|re_new|k|v\ninsert|1|9||a|3\nretract|1|9|5|a|3\ninsert|25|26||b|5\n")
    stream = rows.union(kept).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("v"))
    one = stream.start(hr.files(str(tmp_path / "out-a")), checkpoint=first, host="local")
    one.process_all_available()
    assert hr.checkpoint(first).copy(second).verify()["problems"] == []
    with pytest.raises(CheckpointError, match="the place for the copy is taken"):
        hr.checkpoint(first).copy(second)
    one.stop()
    (tmp_path / "in" / "b.csv").write_text("t,k,v\n3,a,3\n4,c,4\n")
    two = stream.start(hr.files(str(tmp_path / "out-b")), checkpoint=second, host="local")
    two.finish()
    assert not any(counts["changed_files"] for counts in two.counts.values())
    two.stop()
    parts = [to_changes(read_events_output(str(tmp_path / name), stream.schema), stream.schema) for name in PARTS]
    assert all(map(len, parts))
    assert_same_history(history(Changes.concat(parts)), stream.cht())


def test_of_two_copies_to_one_place_the_second_is_refused(begun: ObjectStorage, s3: str):  # noqa: ARG001
    """Both have seen that there is nothing; the first one has only begun."""
    assert ObjectStorage(f"{s3}/copy").create("copied-by", b"another process")
    with pytest.raises(CheckpointError, match="the place for the copy is taken"):
        hr.checkpoint(f"{s3}/state").copy(f"{s3}/copy")


@pytest.mark.parametrize("buckets", ["4", None, 2.5, True, 0])
def test_buckets_are_a_whole_number(begun: ObjectStorage, s3: str, buckets: Any):  # noqa: ARG001
    with pytest.raises(CheckpointError, match="buckets must be at least 1"):
        hr.checkpoint(f"{s3}/state").rescale(buckets)


def test_rescaling_waits_for_a_query_that_may_be_running(folder: Path, s3: str):
    query = start(folder, s3)
    query.process_all_available()
    saved = hr.checkpoint(f"{s3}/state")
    with pytest.raises(CheckpointError, match="may be running: rescaling must wait") as caught:
        saved.rescale(3)
    assert str(os.getpid()) in str(caught.value.given)
    assert saved.gc()["running"]
    query.stop()
    saved.rescale(3)
    assert saved.show()["buckets"] == 3
    assert not saved.gc()["running"]
    again = start(folder, s3, buckets=3)
    again.finish()
    again.stop()
    check(folder, s3)


def test_rescaling_takes_over_from_a_process_that_is_gone(folder: Path, s3: str):
    """It has not said that it ended; and if it runs all the same, it stops before its next commit."""
    query = start(folder, s3)
    query.process_all_available()
    saved = hr.checkpoint(f"{s3}/state")
    command = ["checkpoint", "rescale", f"{s3}/state", "--buckets", "3", "--take-over"]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert saved.show()["buckets"] == 3
    write_input(folder / "more", 1, FILES + 1)
    (folder / "more" / f"{FILES:03d}.json").rename(folder / "in" / f"{FILES:03d}.json")
    with pytest.raises(Superseded):
        query.await_termination(60)
    query.stop()
    again = start(folder, s3, buckets=3)
    again.finish()
    again.stop()
    check(folder, s3)


def test_rescaling_asks_outputs_on_the_store_for_the_last_batch(s3: str, tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("t,k,v\n1,a,1\n2,b,2\n")
    stream = sums(tmp_path / "in")

    def run(*, last: bool = False) -> None:
        query = stream.start(hr.files(f"{s3}/out"), checkpoint=str(tmp_path / "state"), host="local")
        query.finish() if last else query.process_all_available()
        query.stop()

    run()
    out, saved = ObjectBatches(f"{s3}/out"), hr.checkpoint(tmp_path / "state")
    mark = out.storage.keys("_batches")[-1]
    kept = out.storage.read(mark).to_pybytes()
    replace(out.storage, mark, None)
    with pytest.raises(CheckpointError, match="the last batch has not reached s3://"):
        saved.rescale(3)
    assert out.storage.create(mark, kept)
    saved.rescale(3)
    assert saved.show()["buckets"] == 3
    (tmp_path / "in" / "b.csv").write_text("t,k,v\n3,a,3\n4,c,4\n")
    run(last=True)
    found = history(to_changes(read_events_output(f"{s3}/out", stream.schema), stream.schema))
    assert_same_history(found, stream.cht())
