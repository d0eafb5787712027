"""A client of Spark Connect, in a process of its own: a process holds one kind of session only.

Runs the queries below and writes what came out, as JSON, to the file that is its second argument; the first is a folder
to work in. `tests/spark/test_connect.py` imports the queries and runs them on the local host.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.errors import HeadraceError
from headrace.host.spark.session import get_session, is_connect
from headrace.io.sinks import FunctionSink

MASTER = "remote:local[2]"
EVENTS = """
    kind    | le | re | re_new | k | v
    insert  | 1  | ∞  |        | a | 10
    insert  | 3  | 7  |        | b | 5
    retract | 1  | ∞  | 5      | a | 10
    cti     | 6  |    |        |   |
    insert  | 4  | 9  |        | b | 4
    insert  | 8  | 20 |        | b | 5
    cti     | 12 |    |        |   |
    insert  | 13 | 14 |        | a | 1
"""
SCHEMA = "k STRING, t LONG, v INT"


def queries() -> dict[str, hr.Stream]:
    """Two stages, a late row, and a stream as it is."""
    stream = hr.events(EVENTS, batches=[2, 3, 2, 1], progress=hr.explicit(late="divert"))
    counts = stream.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), m=hr.avg("v"))
    return {
        "stream": stream,
        "counts": counts,
        "nested": counts.group_by("n").window(hr.tumbling(8)).aggregate(keys=hr.count()),
        "late": stream.diverted(),
    }


def files(folder: Path) -> hr.Stream:
    """A directory of small files, read with a delay of ten."""
    return hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("t"), progress=hr.advance(delay=10))


def rows_of(run: hr.Run, names: list[str]) -> dict[str, Any]:
    return {name: run.cht(name).to_pylist() for name in names}


def main(folder: Path, answer: Path) -> None:
    """Everything a client does: run to the end, start, watch, stop, start again, fail."""
    found: dict[str, Any] = {"connect": is_connect(get_session(MASTER))}
    run = hr.run(queries(), host="spark", buckets=2)
    found["run"] = rows_of(run, list(queries()))
    found["counts"] = run.counts

    data, out, kept, heard = folder / "data", hr.files(str(folder / "out")), hr.memory(), []
    stream = files(data).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    options: dict[str, Any] = {"checkpoint": str(folder / "state"), "buckets": 2}
    query = hr.start_all(
        [(stream, out), (stream, kept), (stream, FunctionSink(function=lambda *_: heard.append(1)))], **options
    )
    query.process_all_available()
    found["first"] = {"memory": kept.cht().to_pylist(), "heard": len(heard), "progress": query.progress()}
    query.stop()
    (data / "2.csv").write_text("k,t,v\na,55,1\nb,41,1\n")
    query = hr.start_all([(stream, out), (stream, hr.memory()), (stream, FunctionSink())], **options)
    query.finish()
    found["second"] = {"progress": query.progress(), "counts": query.counts, "seconds": len(query.batch_seconds)}
    query.stop()
    try:
        hr.run({"raises": hr.events(EVENTS, batches=[2, 3, 2, 1])}, host="spark")
    except HeadraceError as error:
        found["error"] = [type(error).__name__, str(error)]
    answer.write_text(json.dumps(found))
    get_session().stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
