"""What `repr` and notebooks show: a line or two, and tables that are short; nothing runs for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.host.local import run as local_run

DRAWN = "le | re | k | v\n 1 | 5 | a | 1\n 2 | 9 | <b> | 2"


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a query ran")

    monkeypatch.setattr(local_run, "_run_to_the_end", fail)


def per_key() -> hr.Stream:
    return hr.events(DRAWN).group_by("k").window(hr.tumbling(5)).aggregate(total=hr.sum("v"))


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: hr.events(DRAWN), r"Stream of k STRING, v LONG\n  Source 2 events #\w+ as physical events.*"),
        (per_key, r"Stream of k STRING, total LONG\n  Aggregate total = sum\(v\) over .* per k ← 2 events #\w+"),
        (lambda: hr.events(DRAWN).group_by("k"), r"groups by k of Stream of k STRING, v LONG\n  Source.*"),
        (lambda: hr.events(DRAWN).window(hr.tumbling(5)), r"Windows tumbling.*, one group of Stream of .*\n.*"),
        (lambda: hr.events(DRAWN).over(rows=3), r"Frames .*, one group of Stream of .*\n.*"),
        (lambda: per_key().history("duckdb"), r"History on duckdb of k STRING, total LONG\n  Aggregate .*"),
        (
            lambda: hr.script("CREATE STREAM s AS SELECT v FROM e; SELECT v FROM s", e=hr.events(DRAWN)),
            r"Script: queries query_1; streams e, s",
        ),
    ],
)
def test_what_is_not_run_yet_is_shown_in_two_lines(make: Callable[[], Any], shown: str):
    text = repr(make())
    assert re.fullmatch(shown, text)
    assert len(text) < 300


@pytest.mark.usefixtures("nothing_runs")
def test_wide_and_deep_streams_stay_short(tmp_path: Path):
    wide = hr.events([{"le": 1, **{f"column_{i}": "x" * 1000 for i in range(500)}}])
    assert len(repr(wide)) < 300
    assert len(wide._repr_html_()) < 5000
    deep = hr.events(DRAWN)
    for i in range(200):
        deep = deep.where(col("v") != i)
    assert len(repr(deep)) < 300
    shown = deep._repr_html_()
    assert shown.count("<tr>") == 31
    assert "operators between them are not shown" in shown
    hr.read_csv(str(tmp_path), schema="a INT, ts DATETIME", lifetime=hr.point("ts"))._repr_html_()  # no files yet


@pytest.mark.usefixtures("nothing_runs")
def test_a_stream_in_a_notebook_shows_its_plan():
    shown = per_key().where(col("k") != "<i>")._repr_html_()
    assert "<code>k STRING, total LONG</code>" in shown
    assert "tumbling" in shown
    assert "&lt;i&gt;" in shown
    assert "<i>" not in shown


def test_results_and_runs_show_counts_and_the_first_rows():
    run = per_key().run()
    result = run.results["out"]
    assert repr(run) == "Run of out: every row was used"
    assert repr(result) == "Result of k STRING, total LONG\n  3 changes in 2 batches, CTI ∞"
    shown = run._repr_html_()
    assert shown.count("<tr>") == 4
    assert "<td>&lt;b&gt;</td>" in shown
    many = hr.events([{"le": i, "x": i} for i in range(200_000)]).run().results["out"]
    assert "some of its events" in many._repr_html_()
    assert "and 90 more rows" in many._repr_html_()
    assert hr.events(DRAWN).where(col("v") > 9).run()._repr_html_().count("<tr>") == 1


def test_a_running_query_says_where_it_is(tmp_path: Path):
    query = per_key().start(hr.memory(), host="local", name="totals", checkpoint=str(tmp_path / "state"))
    query.process_all_available()
    assert repr(query) == f"Query 'totals' runs, batch 0, CTI -∞, checkpoint {str(tmp_path / 'state')!r}"
    query.stop()
    assert repr(query).startswith("Query 'totals' has ended")


def test_a_failed_query_says_why():
    @hr.udf(returns="LONG")
    def fails(v: int) -> int:
        raise ValueError(f"no {v}" * 500)

    query = hr.events(DRAWN).select(v=fails(col("v"))).start(hr.memory(), host="local")
    with pytest.raises(hr.HeadraceError):
        query.process_all_available()
    assert "failed" in repr(query)
    assert len(repr(query)) < 400
    query.stop()
