"""Files to answers in process: a tumbling average per symbol over CSV, JSON lines and Parquet.

The same trades in each format; the query in Python and in SQL, and DuckDB's query in batch over the same files, on one
thread. A tenth of the trades come up to two seconds late. Events per second of the processor: other processes on the
machine do not show in it. A format's answers are compared with DuckDB's before its speed is reported.

Besides: the speed of reading alone.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

import headrace as hr
from benchmarks.measure import Row, Section, say
from headrace.host.local.run import run_local
from headrace.io.formats import Format, read_file
from headrace.io.generator import Ticks, plain_ticks, write_files
from headrace.plan.nodes import Output
from headrace.schema import Schema

__all__ = ["measure"]

FILES, SYMBOLS = 3, 10_000
COLUMNS = "symbol STRING, ts DATETIME, price DOUBLE, quantity INT"
_SQL_SOURCE = {"csv": "FILE ('{path}', ',')", "json": "JSON ('{path}')", "parquet": "PARQUET ('{path}')"}
_DUCKDB_COLUMNS = "columns={symbol: 'VARCHAR', ts: 'TIMESTAMPTZ', price: 'DOUBLE', quantity: 'INTEGER'}"
_GOAL = 3e6


def measure(root: Path, options: argparse.Namespace) -> Section:
    """Events per second of each format, in Python, in SQL and by DuckDB."""
    events = FILES * options.rows
    say.print(f"reading: writing {events:,} trades in three formats …")
    trades = plain_ticks(
        Ticks(events, seed=1, symbols=SYMBOLS, rate_per_second=options.rows / 20, disorder=0.1, max_delay="2 s")
    )
    section = Section(f"Files to answers in process: {events:,} trades, tumbling average", beside="DuckDB")
    for format in _SQL_SOURCE:
        folder = root / format
        write_files(trades, str(folder), FILES, format)
        _compare(section, format, folder, events, options.rounds)
    return section


def _compare(section: Section, format: str, folder: Path, events: int, rounds: int) -> None:
    say.print(f"{format} …")
    python, sql = _python(format, folder), _sql(format, folder)
    _check(python.cht(), folder, format)
    _check(sql.cht(), folder, format)
    runs: dict[str, Callable[[], object]] = {
        "python": lambda: run_local([Output(python.node, "out")], threads=1),
        "sql": lambda: run_local([Output(sql.node, "out")], threads=1),
        "cores": lambda: run_local([Output(sql.node, "out")]),
        "duckdb": lambda: _duckdb(folder, format),
        "reading": lambda: _read_all(folder, format),
    }
    cpu, wall = _turns(rounds, runs)
    _add(section, f"{format}, Python", f"{format}_python", events, cpu, wall, "python", "duckdb")
    _add(section, f"{format}, SQL", f"{format}_sql", events, cpu, wall, "sql", "duckdb")
    section.rows.append(Row(f"{format}, SQL, all cores, M events/s", "", f"{events / wall['cores'] / 1e6:.2f}"))
    section.figures[f"{format}_all_cores_events_per_second"] = events / wall["cores"]
    _add(section, f"{format}, reading alone", f"{format}_reading", events, cpu, wall, "reading", None)


def _add(
    section: Section,
    what: str,
    name: str,
    events: int,
    cpu: dict[str, float],
    wall: dict[str, float],
    ours: str,
    theirs: str | None,
) -> None:
    rate = events / cpu[ours]
    shown = f"{rate / 1e6:.2f} (wall {events / wall[ours] / 1e6:.2f})"
    section.figures[f"{name}_events_per_cpu_second"] = rate
    other, ratio, goal = "", "", ""
    if theirs:
        other, ratio, goal = f"{events / cpu[theirs] / 1e6:.2f}", f"{cpu[theirs] / cpu[ours]:.2f}", f"≥ {_GOAL / 1e6:g}"
        section.figures[f"{name}_by_duckdb"] = cpu[theirs] / cpu[ours]
    say.print(f"  {what}: {shown} M events per CPU second", highlight=False)
    section.rows.append(Row(f"{what}, M events/s of CPU", other, shown, ratio, goal))


def _turns(rounds: int, runs: dict[str, Callable[[], object]]) -> tuple[dict[str, float], dict[str, float]]:
    """The least seconds of each, of the processor and of the wall, in several turns: noise only ever adds."""
    cpu, wall = (dict.fromkeys(runs, float("inf")) for _ in range(2))
    for _ in range(rounds + 1):
        for name, run in runs.items():
            began, clock = time.process_time(), time.perf_counter()
            run()
            cpu[name] = min(cpu[name], time.process_time() - began)
            wall[name] = min(wall[name], time.perf_counter() - clock)
    return cpu, wall


def _input(format: str, folder: Path) -> hr.Stream:
    read = {"csv": hr.read_csv, "json": hr.read_json, "parquet": hr.read_parquet}[format]
    return read(str(folder), COLUMNS, lifetime=hr.point("ts"), progress=hr.advance("5 s", late="divert"))


def _python(format: str, folder: Path) -> hr.Stream:
    groups = _input(format, folder).group_by("symbol")
    return groups.window(hr.tumbling("10 s")).aggregate(price=hr.avg("price"))


def _sql(format: str, folder: Path) -> hr.Stream:
    source = _SQL_SOURCE[format].format(path=folder)
    script = hr.script(f"""
        CREATE STREAM trades ({COLUMNS}) ORDER BY ts SOURCE {source} WITH PROGRESS ADVANCE 5 s LATE DIVERT;
        QUERY average AS
        SELECT symbol, avg(price) AS price FROM trades [SIZE 10 ON ts EVERY 10 ON ts] GROUP BY symbol;
    """)  # noqa: S608 - names of this file
    return script.queries["average"]


def _read_all(folder: Path, format: str) -> None:
    for path in sorted(folder.iterdir()):
        deque(read_file(str(path), Format(format), Schema.of(COLUMNS), ["symbol", "ts", "price"]), maxlen=0)


def _duckdb(folder: Path, format: str, where: str = "TRUE") -> pa.Table:
    """DuckDB's answer in batch: symbol, start of the window in ticks, average."""
    options = "" if format == "parquet" else f", {_DUCKDB_COLUMNS}"
    with duckdb.connect(config={"threads": 1}) as connection:
        return connection.sql(f"""
            SELECT symbol, epoch_us(time_bucket(INTERVAL '10 s', ts)) AS le, avg(price) AS price
            FROM read_{format}('{folder}/*'{options}) WHERE {where} GROUP BY ALL
        """).to_arrow_table()  # noqa: S608 - names of this file


def _check(answers: pa.Table, folder: Path, format: str, where: str = "TRUE") -> None:
    """Stop unless the answers are DuckDB's; its averages are rounded at every step."""
    order = [("symbol", "ascending"), ("le", "ascending")]
    ours, theirs = (table.sort_by(order) for table in (answers, _duckdb(folder, format, where)))
    same = ours.num_rows == theirs.num_rows and all(ours[name].equals(theirs[name]) for name in ("symbol", "le"))
    if not same or not np.allclose(ours["price"].to_numpy(), theirs["price"].to_numpy(), rtol=1e-9, atol=0):
        raise SystemExit(f"{format}: the answers differ from DuckDB's")
