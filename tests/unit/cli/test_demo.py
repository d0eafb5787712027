"""The demo without Spark: its data, what it makes of the answers, and how that is shown."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.demo.answers import AnswerFiles, BatchUpdate, Correction
from headrace.cli.demo.story import Verdict, compare
from headrace.cli.demo.trades import DemoFolder, trades, vwap
from headrace.cli.demo.view import View, ViewFacts, clock
from headrace.errors import PlanError
from headrace.events import events_table
from headrace.io.commit import BatchDirectory
from headrace.io.encode import physical_to_jsonl
from headrace.io.generator import facts
from headrace.time import INFINITY, ticks

SCHEMA = "symbol STRING, vwap DOUBLE, n LONG"


@pytest.fixture
def answers(tmp_path: Path) -> AnswerFiles:
    return AnswerFiles(DemoFolder(tmp_path))


def batch(drawn: str) -> pa.Table:
    return events_table(drawn, SCHEMA)


FIRST = """
    kind   | le | re | re_new | symbol | vwap | n
    insert | 0  | 20 |        | A      | 10.0 | 1
    insert | 0  | 20 |        | B      | 50.0 | 1
"""
SECOND = """
    kind    | le | re | re_new | symbol | vwap | n
    retract | 0  | 20 | 0      | A      | 10.0 | 1
    retract | 0  | 20 | 0      | B      | 50.0 | 1
    insert  | 0  | 20 |        | A      | 12.0 | 2
    insert  | 5  | 25 |        | A      | 12.0 | 2
    cti     | 5  |    |        |        |      |
"""


def test_a_deletion_and_an_insert_of_one_window_are_a_correction(answers: AnswerFiles):
    assert answers.take(batch(FIRST)) == BatchUpdate(((0, 20, "A"), (0, 20, "B")))
    update = answers.take(batch(SECOND))
    assert update == BatchUpdate(((5, 25, "A"),), (Correction((0, 20, "A"), 10.0, 12.0),), ((0, 20, "B"),))
    assert answers.current == {(0, 20, "A"): 12.0, (5, 25, "A"): 12.0}
    assert (answers.given, answers.corrected) == (3, 1)


def test_the_trades_misbehave_as_announced():
    found = facts(trades(5000, seed=3))
    assert found.late > 0
    assert found.revised > 0
    assert found.out_of_order > 0.2 * found.rows
    assert trades(500, 3).equals(trades(500, 3))


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_delivered_files_are_what_the_query_reads(tmp_path: Path):
    place = DemoFolder(tmp_path)
    place.input.mkdir()
    table = trades(300, seed=1)
    place.deliver(0, table.slice(0, 100))
    place.deliver(1, table.slice(100))
    run = vwap(str(place.input)).run()
    (counts,) = run.counts.values()
    assert counts["rows"] == table.num_rows
    assert counts["late"] == facts(table).late
    placed = pc.sum(run.cht()["n"]).as_py()
    assert placed == 4 * (300 - counts["late"])  # each trade is in four windows


def seen(*, terminal: bool, answers: AnswerFiles) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)
    times = iter(range(100))
    with View(console, answers, ViewFacts(files=2), now=lambda: float(next(times))) as view:
        for number, drawn in enumerate((FIRST, SECOND)):
            view.facts.cti = 5 * number
            view.batch(number, answers.take(batch(drawn)))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_plain_lines_show_old_and_new_values(answers: AnswerFiles):
    lines = seen(terminal=False, answers=answers).splitlines()
    assert len(lines) == 2
    assert "2 new answers" in lines[0]
    assert "1 corrected (A to 00:00:00: 10.000 → 12.000)" in lines[1]


def test_the_live_table_shows_old_and_new_values(answers: AnswerFiles):
    text = seen(terminal=True, answers=answers)
    assert "10.000 → 12.000" in text
    assert "3 answers · 1 corrections" in text


def test_times_are_shown_by_the_clock():
    assert clock(ticks("2024-01-02T09:30:05Z")) == "09:30:05"
    assert clock(INFINITY) == "∞"


def test_a_directory_in_use_is_refused(tmp_path: Path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(PlanError, match="new or empty"):
        CliRunner().invoke(app, ["demo", "--keep", str(tmp_path)], catch_exceptions=False)
    assert (tmp_path / "mine").read_text() == "precious"


def test_the_verdict_compares_what_was_written_with_the_batch_answer(answers: AnswerFiles):
    directory = BatchDirectory(str(answers.place.output))
    for number, drawn in enumerate((FIRST, SECOND)):
        staged = directory.stage(number, "part.jsonl", physical_to_jsonl(batch(drawn)))
        directory.commit(number, [staged])
        answers.follow()
    assert (answers.given, answers.corrected) == (3, 1)
    assert answers.follow() == BatchUpdate()
    right = pa.table({"le": [5, 0], "re": [25, 20], "symbol": ["A", "A"], "vwap": [12.0, 12.0], "n": [2, 2]})
    pq.write_table(right, answers.place.batch)
    assert compare(answers, answers.place) == Verdict(2, "")
    pq.write_table(right.slice(1), answers.place.batch)
    verdict = compare(answers, answers.place)
    assert not verdict.equal
    assert "only in live: [5, 25) {'symbol': 'A'" in verdict.difference
