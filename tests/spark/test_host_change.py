"""A checkpoint that one host has made goes on on the other: at any batch, in both directions, with the exact answer.

Between the two, its state may be divided among other buckets.
"""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output
from headrace.testing import check_output
from headrace.testing.same import assert_same_history

pytestmark = pytest.mark.usefixtures("spark")
ROWS = 40


def add(folder: Path, number: int) -> None:
    """A file of events, of which some correct events of the files before."""
    folder.mkdir(exist_ok=True)
    draw, lines = random.Random(number), []
    for place in range(ROWS):
        le = 10 * number + draw.randrange(20)
        row = {"kind": "insert", "le": le, "re": le + 30, "k": draw.choice("abcd"), "v": number * ROWS + place}
        lines.append(row)
    if number:
        first = random.Random(number - 1)
        le = 10 * (number - 1) + first.randrange(20)
        gone = {"kind": "retract", "le": le, "re": le + 30, "re_new": le + 25, "k": first.choice("abcd")}
        lines.append({**gone, "v": (number - 1) * ROWS})
    lines.append({"kind": "cti", "le": 10 * number})
    draft = folder / f"_{number}"
    draft.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number:03d}.json")


def streams(folder: Path) -> dict[str, hr.Stream]:
    """Windows of windows, a join, a loop across buckets, and events that are held in memory."""
    rows = hr.read_events(str(folder / "in"), "k STRING, v LONG", format="json", progress=hr.explicit())
    counts = rows.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), a=hr.avg("v"))
    nested = counts.group_by("n").window(hr.tumbling(40)).aggregate(keys=hr.count())
    names = hr.events("kind|le|re|k|name\ninsert|0|∞|a|anna\ninsert|0|∞|b|bert\ncti|∞|||\n")
    joined = rows.join(names, on="k").select("name", "v")
    links = rows.select(src=hr.col("v") % 10, dst=hr.col("v") % 7)
    begin = rows.where(hr.col("k") == "a").select(node=hr.col("v") % 10)
    reached = hr.recurse(begin, lambda found: found.join(links, on={"node": "src"}).select(node=hr.col("dst")))
    return {"counts": counts, "nested": nested, "joined": joined, "reached": reached}


def start(folder: Path, host: str, **options: Any) -> Any:
    pairs = [(stream, hr.files(str(folder / "out" / name))) for name, stream in streams(folder).items()]
    return hr.start_all(pairs, host=host, checkpoint=str(folder / "state"), files_per_batch=1, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rescaled", [False, True], ids=["", "rescaled"])
@pytest.mark.parametrize("hosts", [("local", "spark", "local"), ("spark", "local")], ids=" ".join)
def test_hosts_take_turns_and_the_answer_is_exact(tmp_path: Path, hosts: tuple[str, ...], rescaled: bool):
    given = {"buckets": 2}
    for turn, host in enumerate(hosts):
        add(tmp_path / "in", 2 * turn)
        query = start(tmp_path, host, **given)
        query.process_all_available()
        add(tmp_path / "in", 2 * turn + 1)
        query.process_all_available()
        if turn == len(hosts) - 1:
            query.finish()
        query.stop()
        assert query.counts == hr.run(streams(tmp_path)).counts
        given = {}  # from now on the checkpoint says how many buckets there are
        if rescaled:
            hr.checkpoint(tmp_path / "state").rescale((3, 2, 4)[turn])
            assert hr.checkpoint(tmp_path / "state").show()["buckets"] == (3, 2, 4)[turn]
    right = hr.run(streams(tmp_path))
    for name, stream in streams(tmp_path).items():
        events = read_events_output(str(tmp_path / "out" / name), stream.schema)
        check_output(events)
        assert_same_history(history(to_changes(events, stream.schema)), right.cht(name))


def test_a_batch_that_one_host_has_planned_is_run_by_the_other(tmp_path: Path):
    """The local query fails in the middle of a batch, behind its plan; Spark runs it as it was planned."""
    failing = tmp_path / "fails"

    def fragile(v: int) -> int:
        if failing.exists():
            raise ValueError("fails")
        return v

    function = hr.udf(fragile, takes="LONG", returns="LONG", name="fragile")
    rows = hr.read_events(str(tmp_path / "in"), "k STRING, v LONG", format="json", progress=hr.explicit())
    stream = rows.select("k", v=function("v")).group_by("k").window(hr.tumbling(10)).aggregate(s=hr.sum("v"))
    given: dict[str, Any] = {"checkpoint": str(tmp_path / "state"), "files_per_batch": 1}
    for turn, (host, other) in enumerate((("local", "spark"), ("spark", "local"))):
        sink = hr.files(str(tmp_path / "out"))
        add(tmp_path / "in", 2 * turn)
        failing.touch()
        query = stream.start(sink, host=host, **given)
        with pytest.raises(hr.HeadraceError, match="fails"):
            query.process_all_available()
        query.stop()
        assert (tmp_path / "state/store/plans" / f"{2 * turn:012d}").exists()
        failing.unlink()
        add(tmp_path / "in", 2 * turn + 1)
        query = stream.start(sink, host=other, **given)
        query.process_all_available()
        query.stop()
    events = read_events_output(str(tmp_path / "out"), stream.schema)
    assert_same_history(history(to_changes(events, stream.schema)), stream.run(finish=False).cht())


def test_the_lines_of_a_host_are_those_of_both(tmp_path: Path):
    ended = threading.Semaphore(0)

    def serve(listener: socket.socket) -> None:
        for first in (1, 4, 7):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"".join(b"k,%d\n" % i for i in range(first, first + 3)))
                ended.acquire(timeout=60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        stream = hr.read_host("127.0.0.1", listener.getsockname()[1], "k STRING, v INT")
        for host in ("local", "spark", "local"):
            sink = hr.files(str(tmp_path / "out"))
            query = stream.start(sink, host=host, checkpoint=str(tmp_path / "state"))
            deadline = time.monotonic() + 60
            while query.receivers[0].counts["lines"] < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
            query.process_all_available()
            query.stop()
            ended.release()
    found = history(to_changes(read_events_output(str(tmp_path / "out"), stream.schema), stream.schema))
    assert sorted(found["v"].to_pylist()) == list(range(1, 10))
