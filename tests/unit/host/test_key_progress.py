"""Progress by key in a started query: files that arrive, restarts, and what `progress()` says (rule 3.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import HeadraceError, PlanError

SCHEMA = "ts LONG, sensor STRING, v LONG"
FILES = ("1,a,1\n2,b,2\n", "40,a,3\n", "9,b,4\n41,a,5\n", "75,a,6\n60,b,7\n30,b,8\n")


def readings(folder: Path) -> hr.Stream:
    progress = hr.advance(2, per="sensor", idle=50, late="drop")
    return hr.read_csv(str(folder), SCHEMA, lifetime=hr.point("ts"), progress=progress)


@pytest.mark.filterwarnings("ignore::headrace.errors.RowsNotUsed")
def test_keys_survive_restarts(tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    query_of = readings(folder).select("v")
    ctis, held = [], []
    for number, text in enumerate(FILES):
        (folder / f"{number}.csv").write_text("ts,sensor,v\n" + text)
        query = query_of.start(hr.memory(), host="local", checkpoint=str(tmp_path / "state"))
        query.process_all_available()
        progress = query.progress()
        ctis.append(progress["cti"])
        held.append(next(iter(progress["intake"].values()))["held_by"])
        counts = query.counts
        query.stop()
    # a is at 1, 40, 41, 75; b at 2, 2, 9: more than 50 behind, so that 75 - 2 is promised before b goes on.
    assert ctis == [-1, 0, 7, 73]
    assert held == ['sensor = "a"', 'sensor = "b"', 'sensor = "b"', 'sensor = "b"']
    (total,) = counts.values()
    assert (total["rows"], total["late"]) == (8, 2)


def test_a_silent_key_holds_nobody_back():
    rows = [{"le": 1, "k": "silent"}, *({"le": time, "k": "busy"} for time in range(2, 60, 3))]
    stream = hr.events(rows, progress=hr.advance(0, per="k", idle=30))
    assert stream.run(finish=False).cti() == 59
    assert hr.events(rows, progress=hr.advance(0, per="k", idle=100)).run(finish=False).cti() == 1


def test_the_two_zeros_are_one_key():
    rows = [{"le": 10, "k": 0.0}, {"le": 20, "k": -0.0}]
    stream = hr.events(rows, "k DOUBLE", progress=hr.advance(1, per="k", idle=100))
    assert stream.run(finish=False).cti() == 19


def test_what_makes_no_sense_is_refused(tmp_path: Path):
    with pytest.raises(PlanError, match="how long a key may be silent"):
        hr.advance(0, per="k")
    with pytest.raises(HeadraceError, match="other"):
        hr.events([{"le": 1, "k": "a"}], progress=hr.advance(0, per="other", idle=5))
    with pytest.raises(PlanError, match="never late"):
        hr.read_csv(str(tmp_path), SCHEMA, lifetime=hr.by_arrival(), progress=hr.advance(0, per="sensor", idle=5))
    stream = hr.events([{"le": 1, "k": "a"}], progress=hr.advance(0, per="k", idle=5))
    with pytest.raises(HeadraceError, match="which rows were late is not stored"):
        stream.history("duckdb").cht()


def test_sql_names_the_key(tmp_path: Path):
    (tmp_path / "r.csv").write_text("ts,sensor,v\n1,a,1\n")
    text = f"""
        CREATE STREAM r (ts LONG, sensor STRING, v LONG) SOURCE FILE ('{tmp_path}/r.csv')
        ORDER BY ts WITH PROGRESS ADVANCE 2 ticks PER sensor IDLE 50 ticks;
        SELECT v FROM r;
    """
    assert "per=sensor" in hr.sql(text).explain()
