"""Checkpoints in people's hands: shown, checked, copied and tidied up, with their query at work or not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.errors import CheckpointError, SinkError
from headrace.host.saved.folder import SavedCheckpoint
from headrace.io.sinks import read_events_output
from headrace.store.blocks import write_blocks
from headrace.store.cleanup import PINS
from headrace.testing.same import assert_same_history

SCHEMA = "t LONG, k STRING, v LONG"
DAY = 24 * 3600 * 10**6


def add(folder: Path, *rows: tuple[int, str, int]) -> None:
    """One more file, which appears whole."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    draft = folder / f"_{number}"
    draft.write_text("t,k,v\n" + "".join(f"{20_000 * DAY + t},{k},{v}\n" for t, k, v in rows))
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number:03d}.csv")


def sums(folder: Path) -> hr.Stream:
    rows = hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("t"), progress=hr.advance(delay=15))
    return rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("v"))


def running(stream: hr.Stream, place: Path, out: str, **more: Any) -> Any:
    query = stream.start(hr.files(str(place / out)), host="local", files_per_batch=1, **more)
    query.process_all_available()
    return query


@pytest.fixture
def stream(tmp_path: Path) -> hr.Stream:
    for number in range(3):
        add(tmp_path / "in", *((10 * number + i, "abc"[i % 3], i) for i in range(9)))
    return sums(tmp_path / "in")


@pytest.fixture
def state(stream: hr.Stream, tmp_path: Path) -> Path:
    """The checkpoint of a query that has read three files and was stopped."""
    running(stream, tmp_path, "out", checkpoint=str(tmp_path / "state")).stop()
    return tmp_path / "state"


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["checkpoint", *arguments])


# --- show ------------------------------------------------------------------------------------------------------------


def test_show_says_whose_it_is_and_how_far_it_came(state: Path, tmp_path: Path):
    found = hr.checkpoint(state).show()
    assert (found["batch"], found["buckets"], found["kept"]) == (2, 1, [0, 1, 2])
    (source,) = found["sources"]
    assert source["source"] == f"csv {tmp_path}/in ({SCHEMA})"
    assert (source["cti"], source["files_read"]) == (20_000 * DAY + 13, 3)
    assert source["newest_file"] == f"{tmp_path}/in/002.csv"
    (operator,) = [operator for operator in found["operators"] if operator.get("rows")]
    assert operator["operator"].startswith("Merge for Aggregate n = count(*)")
    assert operator["bytes"] > 0
    assert operator["held_by"].startswith("windows from")
    assert found["sinks"][0]["path"] == str(tmp_path / "out")
    assert found["sinks"][0]["batches"] == 3
    files = [path for path in state.rglob("*") if path.is_file()]
    assert found["files"] == len(files)
    assert found["bytes"] == sum(path.stat().st_size for path in files)
    assert json.loads(json.dumps(found)) == found


def test_show_for_people(state: Path):
    shown = command("show", str(state)).output
    assert "batch 2, committed at 20" in shown
    assert "CTI 1728000000000013, 3 files read" in shown
    assert "rows, " in shown
    assert "held by windows from" in shown
    assert json.loads(command("show", str(state), "--json").output) == hr.checkpoint(state).show()


def test_show_before_the_first_batch(tmp_path: Path):
    (tmp_path / "in").mkdir()
    running(sums(tmp_path / "in"), tmp_path, "out", checkpoint=str(tmp_path / "state")).stop()
    found = hr.checkpoint(tmp_path / "state").show()
    assert found["batch"] is None
    assert "no batch is committed yet" in str(found)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at this path"):
        hr.checkpoint(tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "headrace.json").write_text('{"format": 1}')
    with pytest.raises(CheckpointError, match="another version"):
        hr.checkpoint(tmp_path).show()


@pytest.mark.parametrize(
    ("part", "value"),
    [("fingerprint", None), ("owner", None), ("plan", "x"), ("buckets", "x"), ("sources", 5), ("sinks", {}),
     ("dates", "x"), ("operators", []), ("outputs", "x"), ("nodes", 5), ("buckets", True), ("buckets", 0),
     ("dates", []), ("dates", ["x"]), ("source_dates", []), ("outputs", []), ("outputs", [5]), ("outputs", [{}]),
     ("nodes", [5]), ("bases", []), ("bases", ["x"]), ("origins", {}), ("origins", {"x": "y"}), ("origins", {"x": 5}),
     ("places", {"x": "y"}), ("operators", {"x": {}}),
     ("operators", {"x": {"operator": "y", "columns": {}, "merged": {}, "spread": False}}),
     ("plan", [5]), ("sources", [5]), ("sinks", [{}]), ("modules", [5]), ("services", [5]), ("left_out", [5])],
)  # fmt: skip
def test_a_description_that_somebody_has_changed_is_named(
    stream: hr.Stream, state: Path, tmp_path: Path, part: str, value: object
):
    """None: the part is missing."""
    about = json.loads((state / "headrace.json").read_text())
    changed = {name: content for name, content in about.items() if name != part}
    (state / "headrace.json").write_text(json.dumps(changed if value is None else changed | {part: value}))
    saved = hr.checkpoint(state)
    damaged = f"headrace.json is damaged: '{part}'"
    for use in (
        saved.show,
        saved.gc,
        lambda: running(stream, tmp_path, "out", checkpoint=str(state)),
        lambda: running(stream.where(hr.col("n") > 1), tmp_path, "more", checkpoint=str(state), upgrade="keep"),
    ):
        with pytest.raises(CheckpointError, match=damaged):
            use()
    assert damaged in saved.verify()["problems"][0]
    (state / "headrace.json").write_text(json.dumps(about))
    running(stream, tmp_path, "out", checkpoint=str(state)).stop()


# --- verify ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A checkpoint whose state is too large for its commits."""
    rows = [(i % 10, f"k{i}", i) for i in range(5000)]
    add(tmp_path / "in", *rows)
    add(tmp_path / "in", *rows[:7])
    running(sums(tmp_path / "in"), tmp_path, "out", checkpoint=str(tmp_path / "state")).stop()
    return tmp_path / "state"


def test_a_folder_of_checkpoints_names_them(state: Path, tmp_path: Path):
    """The command line keeps the checkpoint of each query in a folder of its own."""
    with pytest.raises(CheckpointError, match="there is no checkpoint at this path") as error:
        hr.checkpoint(tmp_path)
    assert error.value.instead == str(state)


def test_a_description_that_is_missing_is_named(stream: hr.Stream, state: Path, tmp_path: Path):
    about = state / "headrace.json"
    content = about.read_bytes()
    about.unlink()
    with pytest.raises(CheckpointError, match=r"headrace.json is missing, and it has batches up to 2"):
        running(stream, tmp_path, "out", checkpoint=str(state))
    assert not about.exists()
    about.write_bytes(content)
    running(stream, tmp_path, "out", checkpoint=str(state)).stop()


def test_verify_of_a_whole_checkpoint(large: Path):
    found = hr.checkpoint(large).verify()
    assert found["problems"] == []
    assert found["commits"] == 2
    assert found["files"] >= 1
    assert found["blocks"] >= 1
    assert command("verify", str(large)).exit_code == 0
    assert not list((large / "store" / PINS).iterdir())


@pytest.mark.parametrize("part", ["data", "commits"])
@pytest.mark.parametrize("harm", ["missing", "shorter", "changed"])
def test_verify_names_what_is_wrong(large: Path, part: str, harm: str):
    file = min((large / "store" / part).iterdir())
    content = file.read_bytes()
    file.unlink()
    if harm == "shorter":
        file.write_bytes(content[:-10])
    elif harm == "changed":
        place = 200 if part == "data" else len(content) // 2
        file.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
    found = hr.checkpoint(large).verify()
    assert len(found["problems"]) >= 1
    name = "batches 0" if (part, harm) == ("commits", "missing") else file.name
    assert name in str(found)
    answer = command("verify", str(large))
    assert answer.exit_code == 1
    assert name in answer.output


# --- copy ------------------------------------------------------------------------------------------------------------


def output(place: Path, *outs: str) -> Any:
    """The physical events of several directories, one after the other, as one output has them."""
    target = place / "together"
    shutil.rmtree(target, ignore_errors=True)
    for number, out in enumerate(outs):
        for batch in (place / out).glob("batch-*"):
            shutil.copytree(batch, target / f"batch-{number}{batch.name[-7:]}")
    return read_events_output(str(target), sums(place / "in").node.schema)


def test_a_copy_of_a_running_query_goes_on_by_itself(stream: hr.Stream, tmp_path: Path):
    query = running(stream, tmp_path, "out", checkpoint=str(tmp_path / "state"))
    copied = hr.checkpoint(tmp_path / "state").copy(tmp_path / "copy")
    assert copied.verify()["problems"] == []
    assert copied.show()["batch"] == 2
    shutil.copytree(tmp_path / "out", tmp_path / "before")
    add(tmp_path / "in", (31, "a", 5), (22, "b", 7))  # one that corrects a window that was given
    query.finish()
    query.stop()
    other = running(stream, tmp_path, "other", checkpoint=str(tmp_path / "copy"))
    other.finish()
    other.stop()
    assert_same_history(output(tmp_path, "out"), stream.cht())
    assert_same_history(output(tmp_path, "before", "other"), stream.cht())


@pytest.mark.slow
def test_a_copy_made_while_batches_run_is_consistent(tmp_path: Path):
    for number in range(20):
        add(tmp_path / "in", *((10 * number + i, "abc"[i % 3], i) for i in range(9)))
    stream = sums(tmp_path / "in")
    query = stream.start(
        hr.files(str(tmp_path / "out")), host="local", files_per_batch=1, checkpoint=str(tmp_path / "state")
    )
    while query.progress().get("batch", -1) < 3:
        assert query.is_active
    copies = [hr.checkpoint(tmp_path / "state").copy(tmp_path / f"copy{i}") for i in range(3)]
    query.finish()
    query.stop()
    for number, copied in enumerate(copies):
        assert copied.verify()["problems"] == []
        batch = copied.show()["batch"]
        other = running(stream, tmp_path, f"out{number}", checkpoint=str(tmp_path / f"copy{number}"))
        other.finish()
        other.stop()
        before = tmp_path / f"before{number}"
        for folder in sorted((tmp_path / "out").glob("batch-*")):
            if int(folder.name[6:]) <= batch:
                shutil.copytree(folder, before / folder.name)
        assert_same_history(output(tmp_path, f"before{number}", f"out{number}"), stream.cht())


def test_a_copy_may_not_write_where_the_original_does(stream: hr.Stream, state: Path, tmp_path: Path):
    hr.checkpoint(state).copy(tmp_path / "copy")
    with pytest.raises(SinkError, match="holds the output of another query, or of this one from another checkpoint"):
        running(stream, tmp_path, "out", checkpoint=str(tmp_path / "copy"))
    running(stream, tmp_path, "out", checkpoint=str(state)).stop()  # the original still does


def test_what_was_in_memory_is_not_read_again_by_a_copy_or_after_a_move(tmp_path: Path):
    drawn = hr.events("kind | le | re | k\ninsert | 1 | 5 | a\ninsert | 3 | 8 | a", batches=[1, 1])
    stream = drawn.window(hr.tumbling(10)).aggregate(n=hr.count())
    sinks = hr.memory(), hr.memory(), hr.memory()
    first = stream.start(sinks[0], host="local", checkpoint=str(tmp_path / "state"))
    first.process_all_available()
    first.stop()
    hr.checkpoint(tmp_path / "state").copy(tmp_path / "copy")
    (tmp_path / "state").rename(tmp_path / "moved")
    for sink, place in zip(sinks[1:], ("copy", "moved"), strict=True):
        again = stream.start(sink, host="local", checkpoint=str(tmp_path / place))
        again.finish()
        again.stop()
        assert [counts["rows"] for counts in again.counts.values()] == [2]
        assert [row["n"] for row in sinks[0].cht().to_pylist() + sink.cht().to_pylist()] == [2]


def test_a_copy_goes_to_a_new_place_only(state: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match="the place for the copy is taken"):
        hr.checkpoint(state).copy(tmp_path / "in")
    answer = command("copy", str(state), str(tmp_path / "copy"))
    assert "copied batch 2 to" in answer.output
    assert answer.exit_code == 0


def test_damaged_files_are_not_copied(large: Path, tmp_path: Path):
    file = min((large / "store" / "data").iterdir())
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:200] + bytes([content[200] ^ 255]) + content[201:])
    with pytest.raises(CheckpointError, match="damaged"):
        hr.checkpoint(large).copy(tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "state"]


def test_input_that_goes_away_is_copied_only_while_the_query_is_stopped(stream: hr.Stream, tmp_path: Path):
    query = running(stream, tmp_path, "out", checkpoint=str(tmp_path / "state"))
    (tmp_path / "state" / "spool").mkdir()
    with pytest.raises(CheckpointError, match="must wait until it is stopped"):
        hr.checkpoint(tmp_path / "state").copy(tmp_path / "copy")
    query.stop()
    (tmp_path / "state" / "spool" / "lines").write_text("1")
    hr.checkpoint(tmp_path / "state").copy(tmp_path / "copy")
    assert (tmp_path / "copy" / "spool" / "lines").read_text() == "1"


# --- gc --------------------------------------------------------------------------------------------------------------


def test_gc_removes_what_no_commit_names(stream: hr.Stream, state: Path, tmp_path: Path):
    folder = SavedCheckpoint(state)
    litter = write_blocks(folder.storage, 1, 1, {"x": b"litter"}, inline=0).file
    attempt = write_blocks(folder.storage, 3, 1, {"x": b"attempt"}, inline=0).file
    found = hr.checkpoint(state).gc()
    assert (found["files"], found["unfinished"], found["running"]) == (1, 1, False)
    assert litter not in folder.storage.keys("data")
    assert attempt in folder.storage.keys("data")
    assert hr.checkpoint(state).verify()["problems"] == []
    again = running(stream, tmp_path, "out", checkpoint=str(state))
    again.finish()
    again.stop()
    assert_same_history(output(tmp_path, "out"), stream.cht())


def test_gc_leaves_the_files_of_a_running_query(stream: hr.Stream, tmp_path: Path):
    query = running(stream, tmp_path, "out", checkpoint=str(tmp_path / "state"))
    litter = write_blocks(SavedCheckpoint(tmp_path / "state").storage, 1, 1, {"x": b"litter"}, inline=0).file
    found = hr.checkpoint(tmp_path / "state").gc()
    assert (found["running"], found["files"]) == (True, 0)
    assert "removes its files by itself" in command("gc", str(tmp_path / "state")).output
    assert (tmp_path / "state" / "store" / litter).exists()
    add(tmp_path / "in", (41, "a", 5))
    query.process_all_available()
    query.stop()


@pytest.mark.slow
def test_gc_removes_the_pins_of_readers_that_have_died(state: Path):
    code = f"""
import os
from headrace.store.cleanup import pinned
from headrace.store.log import Log
from headrace.store.storage import LocalStorage
with pinned(Log(LocalStorage({str(state / "store")!r}))):
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    storage = SavedCheckpoint(state).storage
    storage.create(f"{PINS}/{2:012d}-elsewhere", b'{"host": "another machine", "process": 1}')
    storage.create(f"{PINS}/{2:012d}-here", json.dumps({"host": os.uname().nodename, "process": os.getpid()}).encode())
    found = hr.checkpoint(state).gc()
    assert len(found["pins"]) == 1
    assert found["pins_left"] == storage.keys(PINS) == [f"{PINS}/{2:012d}-{name}" for name in ("elsewhere", "here")]
    assert "on another machine" in str(found)


# --- rescale ---------------------------------------------------------------------------------------------------------


def test_a_rescaled_query_goes_on_with_other_buckets(stream: hr.Stream, state: Path, tmp_path: Path):
    assert "the state is now in 3 buckets" in command("rescale", str(state), "--buckets", "3").output
    found = hr.checkpoint(state).show()
    assert (found["batch"], found["buckets"]) == (3, 3)
    assert hr.checkpoint(state).verify()["problems"] == []
    hr.checkpoint(state).rescale(3)  # as it is: nothing happens
    assert hr.checkpoint(state).show()["batch"] == 3
    add(tmp_path / "in", (31, "a", 5), (22, "b", 7))
    again = running(stream, tmp_path, "out", checkpoint=str(state))
    again.finish()
    again.stop()
    buckets = {row["bucket"] for one in hr.checkpoint(state).state().values() for t in one.tables.values()
               for row in t.to_pylist()}  # fmt: skip
    assert buckets <= {0, 1, 2}
    assert_same_history(output(tmp_path, "out"), stream.cht())


def test_start_says_how_to_get_other_buckets(stream: hr.Stream, state: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match="another number of buckets") as caught:
        running(stream, tmp_path, "out", checkpoint=str(state), buckets=4)
    assert f"headrace checkpoint rescale {state} --buckets 4" in caught.value.instead
    hr.checkpoint(state).rescale(4)
    running(stream, tmp_path, "out", checkpoint=str(state), buckets=4).stop()


def test_a_running_query_is_not_rescaled(stream: hr.Stream, tmp_path: Path):
    query = running(stream, tmp_path, "out", checkpoint=str(tmp_path / "state"))
    with pytest.raises(CheckpointError, match="rescaling must wait until it is stopped"):
        hr.checkpoint(tmp_path / "state").rescale(2)
    add(tmp_path / "in", (41, "a", 5))
    query.process_all_available()
    query.stop()


def test_what_has_not_left_yet_is_not_passed_over(state: Path, tmp_path: Path):
    shutil.rmtree(max((tmp_path / "out").glob("batch-*")))
    with pytest.raises(CheckpointError, match="the last batch has not reached") as error:
        hr.checkpoint(state).rescale(2)
    assert "if the place was removed" in str(error.value)
    assert hr.checkpoint(state).show()["buckets"] == 1


def test_a_checkpoint_that_does_not_say_how_it_is_divided(stream: hr.Stream, state: Path, tmp_path: Path):
    about = json.loads((state / "headrace.json").read_text())
    del about["operators"]
    (state / "headrace.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match="without a description of how its state is divided"):
        hr.checkpoint(state).rescale(2)
    assert hr.checkpoint(state).state()
    running(stream, tmp_path, "out", checkpoint=str(state)).stop()
    hr.checkpoint(state).rescale(2)
    assert json.loads((state / "headrace.json").read_text())["owner"] == about["owner"]


def test_a_copy_can_be_rescaled(stream: hr.Stream, state: Path, tmp_path: Path):
    hr.checkpoint(state).copy(tmp_path / "copy").rescale(2)
    other = running(stream, tmp_path, "other", checkpoint=str(tmp_path / "copy"))
    other.finish()
    other.stop()
    assert hr.checkpoint(state).show()["buckets"] == 1
    assert_same_history(output(tmp_path, "out", "other"), stream.cht())
