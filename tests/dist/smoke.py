"""What an installed Headrace must do: `python smoke.py [server] [spark]`, in the environment that has it.

This file imports nothing of the repository: it is copied to an empty folder and runs there.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

TRADES = """
    le | symbol | price
    1  | A      | 10
    2  | B      | 50
    12 | A      | 30
"""
EXPECTED = [("A", 0, 10, 10), ("A", 10, 20, 30), ("B", 0, 10, 50)]


def installed() -> None:
    """It is the installed package that runs, with the version of its metadata, and types for checkers."""
    import headrace as hr

    place = Path(hr.__file__)
    assert place.is_relative_to(sys.prefix), place
    assert metadata.version("headrace") == hr.__version__
    assert (place.parent / "py.typed").exists()


def python() -> None:
    """A query in Python, to its end."""
    assert _answers(_highest()) == EXPECTED


def _highest() -> object:
    import headrace as hr

    windows = hr.events(TRADES).group_by("symbol").window(hr.tumbling(10))
    return windows.aggregate(high=hr.max("price"))


def _answers(stream: object) -> list[tuple[object, ...]]:
    rows = stream.cht().to_pylist()  # type: ignore[attr-defined]
    return sorted((row["symbol"], row["le"], row["re"], row["high"]) for row in rows)


def sql() -> None:
    """The same in SQL."""
    import headrace as hr

    text = "SELECT symbol, max(price) AS high FROM trades [TUMBLING 10 ticks] GROUP BY symbol"
    assert _answers(hr.sql(text, trades=hr.events(TRADES))) == EXPECTED


def aggregate() -> None:
    """An aggregate written in SQL, which is compiled, and one of the library."""
    import headrace as hr

    source = """CREATE AGGREGATE total(next LONG): LONG {
        TABLE state(sum LONG);
        INITIALIZE: { INSERT INTO state VALUES (next); }
        ITERATE: { UPDATE state SET sum = sum + next; }
        TERMINATE: { INSERT INTO RETURN SELECT sum FROM state; }
    };
    SELECT symbol, total(price) AS high FROM trades [TUMBLING 100 ticks] GROUP BY symbol"""
    assert [row[3] for row in _answers(hr.sql(source, trades=hr.events(TRADES)))] == [40, 50]


def live(host: str = "local") -> None:
    """A query that is started, stopped and continued."""
    import headrace as hr

    for _ in range(2):
        query = _highest().start(  # type: ignore[attr-defined]
            hr.files(f"out-{host}", format="parquet"), host=host, checkpoint=f"state-{host}"
        )
        query.process_all_available()
        query.stop()
    assert hr.checkpoint(f"state-{host}").verify()["problems"] == []
    assert json.loads(Path(f"state-{host}/headrace.json").read_text())["headrace"] == hr.__version__


def history() -> None:
    """The same answer by batch SQL, and a data frame."""
    frame = _highest().cht().to_pandas()  # type: ignore[attr-defined]
    assert sorted(frame["high"]) == [10, 30, 50]
    _highest().verify(seeds=3)  # type: ignore[attr-defined]


def frames() -> None:
    """Rows of a data frame of pandas as a stream."""
    import pandas as pd

    import headrace as hr

    frame = pd.DataFrame({"t": [1, 2, 12], "symbol": ["A", "B", "A"], "price": [10, 50, 30]})
    stream = hr.from_pandas(frame, lifetime=hr.point("t")).group_by("symbol").window(hr.tumbling(10))
    assert _answers(stream.aggregate(high=hr.max("price"))) == EXPECTED


def command() -> None:
    """The command line."""
    version = metadata.version("headrace")
    assert _headrace("--version") == f"headrace {version}\n"
    assert _headrace("version").startswith(f"headrace {version}\n")
    assert "checkpoint" in _headrace("--help")


def _headrace(*arguments: str) -> str:
    command = [str(Path(sys.executable).parent / "headrace"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def server() -> None:
    """A server: a request, a statement, and the page for browsers."""
    command = [sys.executable, "-m", "headrace", "serve", "--data", "data", "--port", "0", "--no-postgres"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = None
        while found is None:
            line = process.stdout.readline()
            assert line, f"the server ended with {process.wait()}"
            found = re.search(r"http://([^\s/]+)", line)
        text = "CREATE TABLE t (k STRING PRIMARY KEY); INSERT INTO t VALUES ('a'); SELECT k FROM t"
        reply = _request(found[1], "POST", "/sql", json.dumps({"sql": text}))
        assert json.loads(reply)["replies"][-1]["rows"][0]["k"] == "a", reply
        assert b"<script" in _request(found[1], "GET", "/ui/")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _request(server: str, method: str, path: str, body: str | None = None) -> bytes:
    connection = http.client.HTTPConnection(server, timeout=60)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    content = reply.read()
    assert reply.status == 200, (reply.status, content)
    return content


def spark() -> None:
    """A started query on Spark, and the demo, which kills Spark and continues."""
    live("spark")
    assert "Spark" in _headrace("demo", "--events", "500")


CHECKS: tuple[Callable[[], None], ...] = (installed, python, sql, aggregate, live, history, frames, command)


def main(extras: list[str]) -> None:
    """Run the checks, and those of `extras`."""
    begun = time.monotonic()
    for check in (*CHECKS, *({"server": server, "spark": spark}[name] for name in extras)):
        check()
        sys.stdout.write(f"ok  {check.__name__:<10} {time.monotonic() - begun:6.1f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
