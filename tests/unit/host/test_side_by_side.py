"""A new version of a query that catches up while the old one runs, and takes over: `upgrade="side by side"`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fixtures.waiting import PATIENCE, until
from tests.unit.host.test_backfill import changes, content, fresh, lowest, run, write
from tests.unit.host.test_upgrades import FILES, arrive, folder, highest, step, trades

import headrace as hr
from headrace import Stream
from headrace.errors import CheckpointError
from headrace.host.driving import checkpoint as checkpoints
from headrace.host.driving.query import Query
from headrace.store.log import process_mark
from headrace.testing.same import assert_same_history

__all__ = ["folder"]


def started(stream: Stream, place: str = "one", **options: object) -> Query:
    return hr.start_all([(stream, changes(place))], host="local", checkpoint="state", files_per_batch=1, **options)


def test_a_running_query_is_replaced_between_two_batches(folder: Path, caplog: pytest.LogCaptureFixture):
    arrive(folder, "1.csv", "2.csv")
    old = started(highest(trades()))
    old.process_all_available()
    new = started(lowest(trades()), upgrade="side by side")
    assert old.await_termination(PATIENCE)
    assert old.state == "ended"
    assert "a new version takes over its checkpoint" in caplog.text
    arrive(folder, "3.csv")
    new.process_all_available()
    old.stop()
    new.stop()
    assert not (folder / "state" / "takeover").exists()
    assert not (folder / "state" / "upgrade").exists()
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))
    step((lowest(trades()), changes("one")))  # the checkpoint is that of the new version


def test_input_that_arrives_meanwhile_is_read_once(folder: Path):
    arrive(folder, "1.csv")
    old = started(highest(trades()))
    old.process_all_available()
    with pytest.MonkeyPatch.context() as patched:
        take = checkpoints.Checkpoint.take_over

        def later(place: checkpoints.Checkpoint) -> None:
            arrive(folder, "2.csv")  # for the old one, which still runs
            old.process_all_available()
            arrive(folder, "3.csv")
            take(place)

        patched.setattr(checkpoints.Checkpoint, "take_over", later)
        new = started(lowest(trades()), upgrade="side by side")
    new.process_all_available()
    new.stop()
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))


def test_the_rows_are_late_that_were_late(folder: Path):
    """A row is late that is not if its file is read together with the first one."""
    below = trades(delay=0)
    write(folder, {"1.csv": "A,20,1.0,1\n"})
    old = started(highest(below))
    old.process_all_available()
    write(folder, {"2.csv": "A,1,2.0,2\n"})
    old.process_all_available()
    run(lowest(below), "two", 9, upgrade="side by side")
    assert old.await_termination(PATIENCE)
    assert run(lowest(below), "two", 9)[0]["late"] == 1


def test_without_a_running_query_it_is_a_backfill(folder: Path):
    arrive(folder, *FILES)
    step((highest(trades()), changes("one")))
    step((lowest(trades()), changes("one")), upgrade="side by side")
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))


def test_the_same_query_does_not_replace_itself(folder: Path):
    arrive(folder, "1.csv")
    old = started(highest(trades()))
    with pytest.raises(CheckpointError, match="another query uses this checkpoint"):
        started(highest(trades()), upgrade="side by side")
    old.process_all_available()
    old.stop()


def test_what_cannot_be_computed_again_leaves_the_old_one_running(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    old = started(highest(trades()))
    old.process_all_available()
    (folder / "in" / "1.csv").unlink()
    with pytest.raises(CheckpointError, match="the history is gone"):
        started(lowest(trades()), upgrade="side by side")
    arrive(folder, "3.csv")
    old.process_all_available()
    assert old.state == "running"
    old.stop()


def test_one_batch_that_cannot_be_computed_again_leaves_the_old_one_running(folder: Path):
    arrive(folder, "1.csv")
    old = started(highest(trades()))
    old.process_all_available()
    (folder / "in" / "1.csv").unlink()
    with pytest.raises(CheckpointError, match="the history is gone"):
        started(lowest(trades()), upgrade="side by side")
    assert old.state == "running"
    old.stop()


@pytest.mark.parametrize("names", [("1.csv",), ("1.csv", "2.csv")])
@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda: (lowest(trades()).select("symbol"), changes("one")), "have other columns"),
        (lambda: (lowest(trades()), hr.files("one", encoding="upsert", key="symbol")), "cannot be read back"),
        (lambda: (lowest(trades()), hr.files("one", format="parquet", encoding="events")), "have other columns"),
        (lambda: (lowest(trades()), changes("others")), "holds the output of another query"),
    ],
)
def test_an_output_that_cannot_be_corrected_leaves_the_old_one_running(
    folder: Path, names: tuple[str, ...], refused: Callable[[], tuple[Stream, hr.Sink]], message: str
):
    arrive(folder, *names)
    old = started(highest(trades()))
    old.process_all_available()
    hr.start_all([(highest(trades()), changes("others"))], host="local", checkpoint="other state").stop()
    with pytest.raises(hr.HeadraceError, match=message):
        hr.start_all([refused()], host="local", checkpoint="state", upgrade="side by side")
    assert not (folder / "state" / "takeover").exists()
    arrive(folder, "3.csv")
    old.process_all_available()
    assert old.state == "running"
    old.stop()
    assert_same_history(content(highest(trades()), "one"), fresh(highest(trades())))


def test_a_correction_before_the_cti_leaves_the_old_one_running(folder: Path):
    arrive(folder, *FILES)
    place = hr.files("one", format="parquet", encoding="events")
    old = highest(trades()).start(place, host="local", checkpoint="state")
    old.process_all_available()
    with pytest.raises(CheckpointError, match="promised that nothing changes before"):
        lowest(trades()).start(place, host="local", checkpoint="state", upgrade="side by side")
    assert old.state == "running"
    old.stop()


def test_a_query_that_does_not_end_in_time_continues(folder: Path, monkeypatch: pytest.MonkeyPatch):
    arrive(folder, "1.csv")
    old = started(highest(trades()))
    old.process_all_available()
    monkeypatch.setattr(checkpoints, "_TAKEOVER_SECONDS", 0.1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoints.Checkpoint, "is_wanted", lambda _: False)  # as one that hangs
        with pytest.raises(CheckpointError, match="did not end within"):
            started(lowest(trades()), upgrade="side by side")
        assert not (folder / "state" / "takeover").exists()
    old.process_all_available()
    assert old.state == "running"
    old.stop()


def test_a_request_of_a_process_that_died_counts_for_nothing(folder: Path):
    arrive(folder, "1.csv")
    old = started(highest(trades()))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    mark = process_mark().replace(f'"process": {os.getpid()}'.encode(), f'"process": {dead.pid}'.encode())
    (folder / "state" / "takeover").write_bytes(mark)
    arrive(folder, "2.csv")
    old.process_all_available()
    assert old.state == "running"
    old.stop()
    (folder / "state" / "takeover").write_bytes(process_mark())  # a start is wanted by nobody
    again = started(highest(trades()))
    again.process_all_available()
    assert again.state == "running"
    again.stop()


CODE = """
import headrace as hr
from tests.unit.host.test_backfill import changes, lowest
from tests.unit.host.test_upgrades import highest, trades

query = hr.start_all([(%s(trades()), changes("one"))], host="local", checkpoint="state", upgrade=%r)
query.process_all_available()
print("ready", flush=True)
query.await_termination()
query.stop()
print("ended", flush=True)
"""


def process(query: str, upgrade: str | None = None) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # pytest has added the folder of the tests
    code = CODE % (query, upgrade)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ | paths)


def test_between_processes_and_killed_while_it_takes_over(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    with process("highest") as old:
        assert old.stdout is not None
        assert old.stdout.readline() == "ready\n"
        with process("lowest", "side by side") as killed:
            until(lambda: (folder / "state" / "upgrade").exists() or killed.poll() is not None)
            killed.send_signal(signal.SIGKILL)
        arrive(folder, "3.csv")
        with process("lowest", "side by side") as new:
            assert new.stdout is not None
            assert new.stdout.readline() == "ready\n"
            assert old.stdout.read() == "ended\n"
            assert old.wait(PATIENCE) == 0
            new.send_signal(signal.SIGKILL)
    step((lowest(trades()), changes("one")))
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))
