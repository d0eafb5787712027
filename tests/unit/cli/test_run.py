"""`headrace run`: live or over history, and what is printed of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.explain import find_stream
from headrace.errors import CheckpointError, HistoryError, PlanError, SinkError
from headrace.events import history_diff
from headrace.io.encode import jsonl_to_physical
from headrace.testing.same import read_history

QUERY = '''
import headrace as hr

ticks = hr.events("""
    kind    | le | re | re_new | k | x
    insert  | 1  | ∞  |        | A | 10.5
    retract | 1  | ∞  | 5      | A | 10.5
    insert  | 3  | 9  |        | B | 2.0
    cti     | 6  |    |        |   |
    insert  | 7  | 8  |        | A | 1.0
""", batches=(1, 1, 3))
answers = ticks.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), m=hr.median("x"))
aside = ticks.diverted()
'''
HISTORY = ["--history", "--engine", "duckdb"]


@pytest.fixture
def query(tmp_path: Path) -> str:
    path = tmp_path / "query.py"
    path.write_text(QUERY)
    return f"{path}:answers"


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["run", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_live_run_prints_its_history(query: str):
    lines = run(query).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")] == ["le", "re", "k", "n", "m"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "0", "4", "4", "8"]
    assert len({line.index("|") for line in lines}) == 1


def test_a_history_prints_the_same(query: str):
    assert run(query, *HISTORY) == run(query)


@pytest.mark.parametrize("options", [[], HISTORY], ids=["live", "history"])
def test_json_lines_are_the_physical_events(query: str, options: list[str]):
    text = run(query, "--output", "jsonl", *options)
    assert {tuple(json.loads(line)) for line in text.splitlines()} == {("kind", "le", "re", "re_new", "payload")}
    stream = find_stream(query)[1]
    events = jsonl_to_physical(text.encode(), stream.schema)
    assert history_diff(read_history(events), stream.cht()) == ""


def test_events_and_what_is_final(query: str):
    target = query.replace(":answers", ":ticks")
    assert "retract | 1  | ∞  | 5" in run(target, "--output", "events")
    assert "retract" not in run(target, "--output", "final")
    assert "insert | 1  | 5" in run(target, "--output", "final")
    assert "retract" not in run(target, "--output", "events", *HISTORY)


@pytest.mark.parametrize("options", [[], HISTORY], ids=["live", "history"])
def test_a_history_is_written_as_parquet(query: str, tmp_path: Path, options: list[str]):
    place = tmp_path / "out"
    assert run(query, "--to", str(place), *options) == ""
    assert history_diff(pq.read_table(place), find_stream(query)[1].cht()) == ""
    with pytest.raises(SinkError, match="new or empty"):
        run(query, "--to", str(place), *options)


def test_the_statements_can_be_read(query: str):
    text = run(query, "--sql")
    assert "-- Aggregate n = count(*), m = median(x) over tumbling(4 ticks) per k" in text
    assert "`k`" in text
    assert '"k"' in run(query, "--sql", "--engine", "duckdb")


def test_diverted_rows_are_told(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("ts,k\n9,a\n1,b\nx,c\n")
    (tmp_path / "late.py").write_text(
        "from pathlib import Path\nimport headrace as hr\n"
        "rows = hr.read_csv(str(Path(__file__).parent / 'rows.csv'), 'ts LONG, k STRING', lifetime=hr.point('ts'),\n"
        "                   progress=hr.ordered())\n"
    )
    result = CliRunner().invoke(app, ["run", str(tmp_path / "late.py")], catch_exceptions=False)
    assert "2 of 3 rows not used (1 late, 1 malformed; 2 diverted)" in result.stderr
    included = run(str(tmp_path / "late.py"), *HISTORY, "--late", "include")
    assert len(included.splitlines()) == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--engine", "duckdb"], "instead: --history --engine duckdb"),
        (["--late", "include"], "instead: --history --late include"),
        (["--history", "--host", "local"], "instead: --history --engine duckdb"),
        (["--metrics-port", "0"], "instead: --follow --host local --metrics-port 0"),
        (["--history", "--metrics-port", "0"], "a history ends"),
        (["--master", "local[2]"], "instead: --host spark --master"),
        ([*HISTORY, "--master", "local[2]"], "only Spark has a master"),
    ],
    ids=str,
)
def test_options_that_would_do_nothing_are_refused(query: str, options: list[str], told: str):
    with pytest.raises(PlanError, match=told.replace("[", r"\[")):
        run(query, *options)


def test_what_has_no_history_is_refused(query: str):
    with pytest.raises(HistoryError, match="Diverted"):
        run(query.replace(":answers", ":aside"), *HISTORY)


FILED = """
import headrace as hr

rows = hr.read_csv("PLACE", "k STRING, ts LONG, x LONG", lifetime=hr.point("ts"), progress=hr.advance(delay=0))
answers = rows.group_by("k").window(hr.tumbling(SIZE)).aggregate(x=hr.sum("x"))
"""


def test_upgrades(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("k,ts,x\nA,1,2\nA,5,9\nB,6,1\nA,9,1\n")
    query = tmp_path / "query.py"
    text = FILED.replace("PLACE", str(tmp_path / "rows.csv"))
    kept = [f"{query}:answers", "--checkpoint", str(tmp_path / "state"), "--output", "jsonl"]
    query.write_text(text.replace("SIZE", "4"))
    assert '"x":2' in run(*kept).replace(" ", "")
    query.write_text(text.replace("SIZE", "4") + "answers = answers.where(hr.col('x') > 5)")
    with pytest.raises(CheckpointError, match="belongs to another query"):
        run(*kept)
    assert '"insert"' not in run(*kept, "--upgrade", "keep")  # there are no new rows
    query.write_text(text.replace("SIZE", "2"))
    printed = [json.loads(line) for line in run(*kept, "--upgrade", "backfill").splitlines()]
    assert [row["payload"]["x"] for row in printed if row["kind"] == "insert"] == [2, 9, 1]
    query.write_text(text.replace("SIZE", "3"))
    printed = [json.loads(line) for line in run(*kept, "--upgrade", "side-by-side").splitlines()]
    assert [row["payload"]["x"] for row in printed if row["kind"] == "insert"] == [2, 9, 1]
    with pytest.raises(PlanError, match="an upgrade continues a checkpoint"):
        run(f"{query}:answers", "--upgrade", "keep")
