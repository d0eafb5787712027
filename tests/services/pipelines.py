"""Whole queries over Kafka and PostgreSQL, each in a process of its own, which tests kill.

`python -m tests.services.pipelines OPTIONS.json` starts the query `Run.query` and runs it until the file `stop` appears
in its folder. Then it processes all input that exists, ends the input and writes `done.json`. It may also die by
itself, before or after the n-th call of a function of the driver or of an adapter: `DEATHS` names the moments that
matter for exactly-once.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, Literal

import headrace as hr

__all__ = ["AVERAGES", "DEATHS", "QUERIES", "TOTALS", "WINDOW", "Run"]

WINDOW = 10
#: Events are at most so much older than the newest one of their partition, so none is late.
DELAY = 60
EVENTS = "k STRING, slot LONG, ts LONG, v LONG"
_DRIVING = "headrace.host.driving"
_ADAPTERS = "headrace.adapters"
#: Moments: a function, and whether the process dies before the call or after it.
DEATHS: dict[str, tuple[str, Literal["before", "after"]]] = {
    "planned": ("headrace.store.log:Log.plan", "after"),
    "read": (f"{_DRIVING}.driver:Driver._messages", "after"),
    "committed": (f"{_DRIVING}.publish:Publisher.publish", "before"),
    "delivered": (f"{_DRIVING}.publish:Publisher._mark", "before"),
    "marked": (f"{_DRIVING}.publish:Publisher._mark", "after"),
    "acknowledged": (f"{_DRIVING}.ranges:RangePositions.acknowledge", "after"),
    "kafka not committed": (f"{_ADAPTERS}.kafka.delivery:_Part._record", "after"),
    "kafka committed": (f"{_ADAPTERS}.kafka.delivery:_Part._transact", "after"),
    "postgres not committed": (f"{_ADAPTERS}.postgres.sink:PostgresSink._write", "after"),
    "postgres committed": (f"{_ADAPTERS}.postgres.sink:PostgresSink.deliver", "after"),
}


@dataclass(frozen=True)
class Run:
    """What a process runs, and where: the names of topics and tables follow from `mark`."""

    query: str
    folder: str
    bootstrap: str
    dsn: str
    source: str
    mark: str
    host: Literal["local", "spark"] = "local"
    #: The moment at which the process dies, and how often it has passed it then.
    death: str = ""
    calls: int = 1
    #: On Spark, whether workers deliver also few rows, which the driver delivers by itself else.
    from_workers: bool = False

    def place(self, sink: str) -> str:
        """The topic or the table of a sink."""
        return f"{self.mark}_{sink}"

    def dying(self, death: str, calls: int = 1) -> Run:
        """The same, with a moment to die at."""
        return replace(self, death=death, calls=calls)


# --- queries ---------------------------------------------------------------------------------------------------------

_KEY = ("k", "slot")


def averages(run: Run) -> hr.Stream:
    """Averages of a topic's events in windows; they are corrected as events arrive out of order."""
    events = hr.read_kafka(
        run.source, EVENTS, lifetime=hr.point("ts"), progress=hr.advance(delay=DELAY), bootstrap=run.bootstrap
    )
    return events.group_by(*_KEY).window(hr.tumbling(WINDOW)).aggregate(n=hr.count(), mean=hr.avg("v"))


def totals(run: Run) -> hr.Stream:
    """Totals of a table's rows as they are now."""
    rows = hr.read_postgres(run.dsn, run.source, name=run.query)
    return rows.group_by("k").window(hr.snapshot()).aggregate(n=hr.count(), total=hr.sum("v"))


def _topic(encoding: Any, key: tuple[str, ...] = (), **options: Any) -> Callable[[Run, str], Any]:
    return lambda run, place: hr.kafka(
        place, bootstrap=run.bootstrap, encoding=encoding, key=key, create=True, partitions=2, **options
    )


def _table(encoding: Any, key: tuple[str, ...] = (), **options: Any) -> Callable[[Run, str], Any]:
    return lambda run, place: hr.postgres(
        run.dsn, place, encoding=encoding, key=key, create=True, times="ticks", **options
    )


#: The sinks of both queries, by name.
AVERAGES: dict[str, Callable[[Run, str], Any]] = {
    "events": _topic("events", message_key="k"),
    "compacted": _topic("upsert", _KEY),
    "rows": _table("upsert", _KEY),
    "final": _table("final"),
    "log": _table("changes"),
}
TOTALS: dict[str, Callable[[Run, str], Any]] = {
    "current": _table("upsert", ("k",), ended="delete"),
    "copied": _topic("upsert", ("k",), ended="delete"),
}
#: Every query: its stream and its sinks. Those with all sinks show that one commit holds for all of them.
QUERIES: dict[str, tuple[Callable[[Run], hr.Stream], tuple[str, ...]]] = {
    **{name: (averages, (name,)) for name in AVERAGES},
    **{name: (totals, (name,)) for name in TOTALS},
    "averages": (averages, tuple(AVERAGES)),
    "totals": (totals, tuple(TOTALS)),
}


def start(run: Run) -> Any:
    """Start the query, or continue it."""
    stream, names = QUERIES[run.query][0](run), QUERIES[run.query][1]
    sinks = [(stream, {**AVERAGES, **TOTALS}[name](run, run.place(name))) for name in names]
    return hr.start_all(sinks, host=run.host, checkpoint=str(Path(run.folder) / "state"))


# --- the process -----------------------------------------------------------------------------------------------------


def die_at(death: str, calls: int) -> None:
    """End this process, as `kill -9` does, at the so many-th call of a function."""
    place, when = DEATHS[death]
    module, _, path = place.partition(":")
    owner, name = getattr(importlib.import_module(module), path.split(".")[0]), path.split(".")[1]
    function, passed = getattr(owner, name), count(1)

    @wraps(function)
    def dying(*given: Any, **named: Any) -> Any:
        if when == "before" and next(passed) == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*given, **named)
        if when == "after" and next(passed) == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def main(options: Path) -> None:
    """Run until the file `stop` appears, and then to the end of the input."""
    run = Run(**json.loads(options.read_text()))
    folder = Path(run.folder)
    if run.host == "spark":
        # Imported when it is used: an extra.
        from headrace.host.spark import worker
        from headrace.host.spark.session import get_session

        if run.from_workers:
            worker._MOST_FROM_HERE = -1
        get_session("local[2,4]", app="headrace services")
    if run.death:
        die_at(run.death, run.calls)
    query = start(run)
    (folder / f"started-{os.getpid()}").touch()
    while not (folder / "stop").exists():
        if query.await_termination(0.05):
            return
    query.finish()
    draft = folder / "done.tmp"
    draft.write_text(json.dumps({"counts": query.counts, "batches": query.progress()["batch"]}))
    draft.rename(folder / "done.json")
    query.stop()


def options_of(run: Run) -> str:
    """The text that `main` reads."""
    return json.dumps(asdict(run))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
