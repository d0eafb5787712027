"""The demo's Spark process: `python -m headrace.cli.demo.spark_process DIRECTORY [MASTER]`.

It writes one JSON object per text line to its standard output and reads one word from its standard input: `finish`. If
its input ends without that word, the parent is dead, and it kills itself with all processes that it has started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import pyarrow.parquet as pq

import headrace as hr
from headrace.cli.demo.trades import DemoFolder, batch_answer, vwap
from headrace.errors import HeadraceError

_LOOK = 0.03  # seconds between two polls of the query's progress


class _ParentPipe:
    """Messages to the parent, on a descriptor of their own: everything that Spark prints goes to standard error."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, what: str, **facts: Any) -> None:
        self._out.write(json.dumps({"what": what, **facts}) + "\n")
        self._out.flush()


def main(directory: str, master: str | None = None) -> None:
    """Run or continue the query of this directory until `finish` is received, then run the batch query."""
    parent, place = _ParentPipe(), DemoFolder(Path(directory))
    finish = threading.Event()
    threading.Thread(target=_listen, args=(finish,), daemon=True).start()
    try:
        _run(parent, place, finish, master)
    except HeadraceError as error:
        parent.send("failed", text=str(error))
        sys.exit(1)


def _run(parent: _ParentPipe, place: DemoFolder, finish: threading.Event, master: str | None) -> None:
    from headrace.host.spark.session import get_session

    parent.send("hello", pid=os.getpid())
    # Files that a killed Spark leaves are removed with the demo's directory.
    spark = get_session(master, app="headrace demo", options={"spark.local.dir": str(place.root / "spark")})
    parent.send("session")
    sink = hr.files(str(place.output))
    query = vwap(str(place.input)).start(sink, checkpoint=str(place.checkpoint), files_per_batch=1, spark=spark)
    seen = query.progress().get("batch", -1)
    parent.send("started", batch=seen)
    while not finish.wait(_LOOK):
        seen = _send_progress(parent, query, seen)
        if not query.is_active:
            query.await_termination()  # raises what went wrong
    query.finish()
    _send_progress(parent, query, seen)
    start = time.monotonic()
    pq.write_table(batch_answer(spark, place), place.batch)
    parent.send("batch answer", seconds=time.monotonic() - start)
    query.stop()
    spark.stop()


def _send_progress(parent: _ParentPipe, query: Any, seen: int) -> int:
    progress = query.progress()
    number: int = progress.get("batch", -1)
    if number > seen:
        counts = next(iter(progress["counts"].values()))
        state = {name: sum(o[name] for o in progress["operators"]) for name in ("rows", "bytes")}
        parent.send("batch", number=number, cti=progress["cti"], counts=counts, state=state)
    return max(number, seen)


def _listen(finish: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "finish":
            finish.set()
    if not finish.is_set():
        os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
