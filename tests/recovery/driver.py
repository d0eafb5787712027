"""A query in a process of its own, to be killed at any moment and started again until it is done.

Usage: `python driver.py FOLDER [HOST [CALLS | MOMENT TIMES]]`. Input is in FOLDER/in, one file a batch; output goes to
FOLDER/out, state to FOLDER/state. HOST is `spark` by default. With CALLS the process kills itself before its so many-th
call that changes a file or a folder. With MOMENT it stops for ever when it reaches that moment for the TIMES-th time,
and writes the step to FOLDER/held.
When everything has been answered the counts are written to FOLDER/done.json.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import failpoints

SCHEMA = "k STRING, v LONG"
FILES = 12


def write_input(folder: Path, seed: int, files: int = FILES) -> None:
    """Files of physical events: every file corrects events of the files before, and ends with a promise."""
    draw, alive, cti = random.Random(seed), [], 0
    folder.mkdir()
    for number in range(files):
        rows: list[dict[str, Any]] = []
        for _ in range(30):
            if alive and draw.random() < 0.4:
                event = alive.pop(draw.randrange(len(alive)))
                floor = max(event["le"], cti)
                new = draw.choice([floor, floor + draw.randrange(40), None])
                if new != event["re"]:
                    rows.append({**event, "kind": "retract", "re_new": new})
                    alive += [{**event, "re": new}] if new != event["le"] else []
            else:
                le = cti + draw.randrange(30)
                end = draw.choice([le + 1, le + 5, None])
                event = {"kind": "insert", "le": le, "re": end, "k": draw.choice("abcd"), "v": draw.randrange(100)}
                rows.append(event)
                alive.append(event)
        cti += draw.randrange(8)
        rows.append({"kind": "cti", "le": cti})
        alive = [event for event in alive if event["re"] is None or event["re"] >= cti]
        _write(folder / f"{number:03d}.json", rows, number)


def _write(path: Path, rows: list[dict[str, Any]], number: int) -> None:
    ends = dict.fromkeys(("re", "re_new"), "inf")
    lines = [json.dumps({n: ends[n] if n in ends and v is None else v for n, v in row.items()}) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    os.utime(path, (number + 1, number + 1))


def queries(folder: Path) -> dict[str, hr.Stream]:
    """What runs: a stream as it is, an aggregate, an aggregate of it in a second stage, and a loop across buckets."""
    stream = hr.read_events(str(folder / "in"), SCHEMA, format="json", progress=hr.explicit())
    counts = stream.group_by("k").window(hr.hopping(20, every=10)).aggregate(n=hr.count(), s=hr.sum("v"), a=hr.avg("v"))
    nested = counts.group_by("n").window(hr.tumbling(40)).aggregate(keys=hr.count(), top=hr.max("s"))
    links = stream.select(src=hr.col("v") % 10, dst=hr.col("v") % 7)
    begin = stream.where(hr.col("k") == "a").select(node=hr.col("v") % 10)
    reached = hr.recurse(begin, lambda found: found.join(links, on={"node": "src"}).select(node=hr.col("dst")))
    return {"stream": stream, "counts": counts, "nested": nested, "reached": reached}


def die_at(calls: int) -> None:
    """End this process, as `kill -9` does, before its so many-th call that changes something on disk."""
    made = count(1)

    def before(event: str, given: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in ("os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir")) and next(made) == calls:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(before)


#: The moments at which a driver can be held: how the text of their step starts, and a word in it.
MOMENTS = {
    "claimed": ("created epochs/", ""),
    "planned": ("planned ", ""),
    "staged": ("ran ", ""),
    "circulating": ("created ", "-trip-"),
    "committed": ("committed ", ""),
    "published": ("published ", ""),
    "any": ("", ""),
}
#: How often each moment is reached at least, while some files are left.
TIMES = {"claimed": 1, "planned": 2, "staged": 2, "circulating": 3, "committed": 2, "published": 2, "any": 60}


def hold_at(folder: Path, moment: str, times: int) -> None:
    """Stop for ever at a moment, and say so in FOLDER/held."""
    (begins, word), reached = MOMENTS[moment], count(1)

    def hear(event: str, given: tuple[Any, ...]) -> None:
        text = f"{given[0]} {given[1]}" if event == failpoints.EVENT else ""
        if text and text.startswith(begins) and word in text and next(reached) == times:
            draft = folder / "held.tmp"
            draft.write_text(text)
            draft.rename(folder / "held")
            threading.Event().wait()

    sys.addaudithook(hear)


def start(folder: Path, host: str) -> Any:
    """Start the query, or go on with it, in as many buckets as it has."""
    formats = {"stream": "parquet", "counts": "jsonl", "nested": "jsonl", "reached": "jsonl"}
    sinks = [(s, hr.files(str(folder / "out" / n), format=formats[n])) for n, s in queries(folder).items()]  # type: ignore[arg-type]
    buckets = None if (folder / "state" / "headrace.json").exists() else 2
    return hr.start_all(sinks, host=host, checkpoint=str(folder / "state"), files_per_batch=1, buckets=buckets)  # type: ignore[arg-type]


def main(folder: Path, host: str = "spark", moment: str = "", times: int = 1) -> None:
    """Run until everything is answered, or until a number of calls or a moment is reached."""
    if host == "spark":
        from headrace.host.spark.session import get_session

        get_session("local[2,4]", app="headrace recovery")
    if moment.isdecimal():
        die_at(int(moment))
    elif moment:
        hold_at(folder, moment, times)
    query = start(folder, host)
    # On a busy machine a trip may take so long that it is the only one of its batch: nothing would circulate.
    query.driver.trip_seconds = math.inf
    query.finish()
    draft = folder / "done.tmp"
    draft.write_text(json.dumps(query.counts))
    draft.rename(folder / "done.json")
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:]))
