"""The demo's Spark process: `python -m headrace.cli.demo.spark_process DIRECTORY [MASTER]`.

It speaks one JSON object a line on its standard output and hears one word on its standard input: `finish`. When its
input ends without that, whoever started it is gone, and it ends itself with everything it has started.
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

_LOOK = 0.03  # seconds between two looks at the query's progress


class _Voice:
    """Lines to the parent, on a descriptor that Spark does not know: what Spark prints goes where errors go."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def say(self, what: str, **facts: Any) -> None:
        self._out.write(json.dumps({"what": what, **facts}) + "\n")
        self._out.flush()


def main(directory: str, master: str | None = None) -> None:
    """Run or continue the query of this directory until told to finish, then ask the batch query."""
    voice, place = _Voice(), DemoFolder(Path(directory))
    finish = threading.Event()
    threading.Thread(target=_listen, args=(finish,), daemon=True).start()
    try:
        _run(voice, place, finish, master)
    except HeadraceError as error:
        voice.say("failed", text=str(error))
        sys.exit(1)


def _run(voice: _Voice, place: DemoFolder, finish: threading.Event, master: str | None) -> None:
    from headrace.host.spark.session import get_session

    voice.say("hello", pid=os.getpid())
    # What a killed Spark leaves behind goes away with the demo's directory.
    spark = get_session(master, app="headrace demo", options={"spark.local.dir": str(place.root / "spark")})
    voice.say("session")
    sink = hr.files(str(place.output))
    query = vwap(str(place.input)).start(sink, checkpoint=str(place.checkpoint), files_per_batch=1, spark=spark)
    seen = query.progress().get("batch", -1)
    voice.say("started", batch=seen)
    while not finish.wait(_LOOK):
        seen = _tell(voice, query, seen)
        if not query.is_active:
            query.await_termination()  # raises what went wrong
    query.finish()
    _tell(voice, query, seen)
    began = time.monotonic()
    pq.write_table(batch_answer(spark, place), place.batch)
    voice.say("batch answer", seconds=time.monotonic() - began)
    query.stop()
    spark.stop()


def _tell(voice: _Voice, query: Any, seen: int) -> int:
    progress = query.progress()
    number: int = progress.get("batch", -1)
    if number > seen:
        counts = next(iter(progress["counts"].values()))
        state = {name: sum(o[name] for o in progress["operators"]) for name in ("rows", "bytes")}
        voice.say("batch", number=number, cti=progress["cti"], counts=counts, state=state)
    return max(number, seen)


def _listen(finish: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "finish":
            finish.set()
    if not finish.is_set():
        os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
