"""Rows that are not used are seen where people look: once a run, with counts, the reason, the file and the line."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console as Terminal
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.cli.sql.shell import Shell
from headrace.errors import RowsNotUsed, SqlError
from headrace.io import console
from headrace.notebook import Cells
from headrace.sql.session import SqlSession

SCHEMA = "t LONG, k STRING, v INT"
ROWS = "t,k,v\n\n1,a,1\nx,b,2\n50,c,3\n9,d,4\n51,e\n"
ASIDE = [(4, "column 't': 'x' is not of type LONG"), (6, "late: its sync time 9 is before the CTI 40")]
ASIDE += [(7, "the row has 2 fields, expected 3")]
TOLD = "3 of 5 rows not used (1 late, 2 malformed; 3 diverted); for example"
SQL = (
    "CREATE STREAM ticks (t LONG, k STRING, v INT) ORDER BY t SOURCE CSV ('ticks.csv') "
    "WITH PROGRESS ADVANCE 10 us LATE INTO lost;"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ticks.csv"
    path.write_text(ROWS)
    return path


def read(file: Path, **options: Any) -> hr.Stream:
    return hr.read_csv(str(file), SCHEMA, lifetime=hr.point("t"), progress=hr.advance(10, **options))


def warned(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        action()
    assert all(one.category is RowsNotUsed and one.filename == __file__ for one in found), "it points at this file"
    return [str(one.message) for one in found]


# --- where they are -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [None, 1, 2])
def test_a_row_of_a_text_file_has_the_line_on_which_it_begins(tmp_path: Path, batch_rows: int | None):
    path = tmp_path / "rows.csv"
    path.write_text('t,k,v\r\n\r\n1,"a\nb",1\r\n\r\nx,c,2\n90,d,3\n5,"e\n\nf",4\n"91,g,5\n92,h\n')
    (found,) = warned(lambda: read(path).run(batch_rows=batch_rows).diverted())
    assert "4 of 6 rows" in found
    run = hr.run({"rows": read(path), "aside": read(path).diverted()}, batch_rows=batch_rows)
    places = {(row["file"], row["line"]) for row in run.cht("aside").to_pylist()}
    assert places == {(str(path), line) for line in (6, 8, 11, 12)}


def test_a_row_of_json_or_parquet_has_its_line_or_number(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"t": 1}\n\n{"t": "x"}\n{"t": 90}\n\n{"t": 2}\n')
    pq.write_table(pa.table({"t": [1, 90, None, 2]}), tmp_path / "a.parquet")
    for reader, lines in ((hr.read_json, [3, 6]), (hr.read_parquet, [3, 4])):
        path = tmp_path / ("a.json" if reader is hr.read_json else "a.parquet")
        stream = reader(str(path), "t LONG", lifetime=hr.point("t"), progress=hr.advance(10))
        rows = stream.diverted().cht().to_pylist()
        assert sorted((row["file"], row["line"]) for row in rows) == [(str(path), line) for line in lines]


def test_events_in_memory_have_no_file():
    stream = hr.events("""
        kind   | le | re | p
        insert | 50 | 60 | a
        cti    | 40 |    |
        insert | 9  | 60 | b
    """, progress=hr.explicit(late="divert"))  # fmt: skip
    (row,) = stream.diverted().cht().to_pylist()
    assert (row["file"], row["line"]) == (None, None)


# --- in Python ------------------------------------------------------------------------------------------------------


def test_a_run_warns_once_with_counts_and_an_example(file: Path):
    (text,) = warned(lambda: read(file).cht(batch_rows=1))
    assert text.startswith(f"csv {file}: {TOLD} {file}, line ")
    assert any(f"line {line}: {reason}" in text for line, reason in ASIDE)
    assert len(warned(lambda: hr.run({"out": read(file)}))) == 1
    (dropped,) = warned(lambda: read(file, late="drop").cht())
    assert f"(1 late, 2 malformed; 2 diverted, 1 dropped); for example {file}, line 6: late" in dropped
    assert '{"t": 9, "k": "d", "v": 4}' in dropped


def test_a_query_that_reads_its_diverted_rows_knows_of_them(file: Path):
    stream, dropping = read(file), read(file, late="drop")
    assert warned(lambda: hr.run({"out": stream, "aside": stream.diverted()})) == []
    assert warned(lambda: stream.diverted().cht()) == []
    assert len(warned(lambda: hr.run({"out": dropping, "aside": dropping.diverted()}))) == 1, "one is dropped"


def test_nothing_is_said_when_every_row_is_used(file: Path):
    file.write_text("t,k,v\n1,a,1\n2,b,2\n")
    run = read(file).run()
    assert repr(run) == "Run of out: every row was used"
    assert (run.lost, run.losses(), run.diverted().num_rows) == (0, "", 0)


def test_a_finished_run_shows_its_losses(file: Path):
    with pytest.warns(RowsNotUsed):
        run = read(file).run()
    assert TOLD in repr(run)
    assert run.lost == 3
    (example,) = run.progress()["examples"].values()
    assert example["file"] == str(file)
    assert f"line {example['line']}: {example['reason']}" in str(run.progress())


def test_retractions_of_nothing_and_modules_that_fail_are_losses_too():
    stream = hr.events("""
        kind    | le | re | re_new | p
        insert  | 1  | 9  |        | a
        retract | 2  | 9  | 5      | b
    """, bad_rows="divert")  # fmt: skip
    (text,) = warned(stream.cht)
    assert "1 of 2 rows not used (1 retracting what is not there; 1 diverted); for example it retracts" in text

    class Fails(hr.Aggregate):
        """Fails."""

        input, output = "value DOUBLE", "DOUBLE"

        def compute(self, values: list[float]) -> float:
            raise ValueError(len(values))

    answers = stream.where(hr.col("p") == "a").window(hr.tumbling(5), on_error="skip")
    assert any("left out, because the module failed" in one for one in warned(answers.aggregate(x=Fails().of(1.0)).cht))


# --- under tables, in the shell, in SQL -----------------------------------------------------------------------------


def test_the_console_says_it_below_the_table(file: Path, monkeypatch: pytest.MonkeyPatch):
    text = io.StringIO()
    monkeypatch.setattr(console, "Terminal", lambda: Terminal(file=text, width=200, force_terminal=False))
    with pytest.warns(RowsNotUsed):
        hr.run({"out": read(file)}, sinks={"out": hr.console()}, batch_rows=1)
    assert text.getvalue().count(TOLD) == 1
    assert text.getvalue().rindex("│") < text.getvalue().index(TOLD)


def test_headrace_run_says_it_on_standard_error(file: Path):
    script = file.with_name("query.sql")
    script.write_text(f"{SQL} SELECT t, k FROM ticks;")
    for output in ("cht", "jsonl"):
        result = CliRunner().invoke(app, ["run", str(script), "--output", output], catch_exceptions=False)
        assert result.stderr.count(TOLD) == 1
        assert TOLD not in result.stdout


def test_the_shell_says_it_and_shows_the_rows(file: Path):
    text = io.StringIO()
    screen = Terminal(file=text, width=1000, force_terminal=False)
    shell = Shell(SqlSession(base=file.parent), screen, screen)
    shell.execute(SQL)
    with pytest.raises(SqlError, match="no query has run yet"):
        shell.execute("SHOW DIVERTED;")
    shell.execute("SELECT t, k FROM ticks;")
    assert TOLD in text.getvalue()
    shell.execute("SHOW DIVERTED;")
    shown = text.getvalue().partition("source")[2]
    for line, reason in ASIDE:
        assert f"{reason:<45}"[:40] in shown
        assert f" {line} " in shown
    assert str(file) in shown


def test_a_notebook_says_it_below_the_table(file: Path):
    cells = Cells({})
    cells.session.catalog.base = file.parent
    cells.execute("", SQL)
    answer = cells.execute("", "SELECT t, k FROM ticks")
    assert TOLD in repr(answer)
    assert TOLD in answer._repr_html_()
    assert "late: its sync time 9" in repr(cells.execute("", "SHOW DIVERTED"))


def test_late_into_is_the_stream_of_diverted_rows(file: Path):
    script = hr.script(f"{SQL} SELECT reason, line FROM lost WHERE line > 5;", base=file.parent)
    ticks = script.streams["ticks"]
    assert script.streams["lost"].node == ticks.diverted().node
    (rows,) = (stream.cht().to_pylist() for stream in script.queries.values())
    assert sorted((row["line"], row["reason"]) for row in rows) == ASIDE[1:]
    counted = hr.script(f"{SQL} SELECT count(*) AS n FROM lost [TUMBLING 100 us];", base=file.parent).run()
    assert counted.cht()["n"].to_pylist() == [1, 2]  # at the CTIs -9 and 40
    with pytest.raises(SqlError, match="ticks"):
        hr.script(SQL.replace("INTO lost", "INTO ticks"), base=file.parent)
