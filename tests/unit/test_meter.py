"""Progress bars: on a terminal, after a while, with what is known; and gone at the end."""

from __future__ import annotations

import sys
import threading
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.fixtures.waiting import until

import headrace as hr
from headrace import meter
from headrace.meter import Work, current, working


class Screen(StringIO):
    """A terminal that keeps everything that was drawn."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.getvalue().split("\r") if line.strip()]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen = Screen()
    # Not `sys.stderr` itself, which pytest replaces between this fixture and the test.
    monkeypatch.setattr(meter, "sys", SimpleNamespace(stderr=screen, modules=sys.modules))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("HEADRACE_PROGRESS", raising=False)
    monkeypatch.setattr(meter, "_PATIENCE", 0.0)
    monkeypatch.setattr(meter, "_PAUSE", 0.005)
    return screen


def until_drawn(screen: Screen, words: str) -> None:
    """Wait for a line with these words."""
    until(lambda: words in screen.getvalue(), lambda: f"{words!r} is not in {screen.getvalue()!r}")


def drawers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headrace-progress"]


def test_a_line_shows_what_is_known_and_disappears(screen: Screen):
    with working("copying") as work:
        work.total_bytes = 2_000_000
        work.add(bytes=500_000, rows=1234)
        work.batch = 3
        until_drawn(screen, "0:00 copying · ━━━━━─────────────── 25% of 2 MB · 1,234 rows · ")
        until_drawn(screen, " a second · batch 3")
        work.add(bytes=1_500_000)
        until_drawn(screen, "copying · 2 MB read · 1,234 rows · batch 3")
        assert len(drawers()) == 1
    assert screen.getvalue().rsplit("\r", 2)[1].strip() == ""
    assert drawers() == []


def test_cases_are_counted():
    assert (
        Work("verify", total_cases=200, cases=50, began=0).line(61)
        == "1:01 verify · ━━━━━─────────────── 50 of 200 cases"
    )


def test_nothing_is_drawn_for_short_work(screen: Screen, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(meter, "_PATIENCE", 60.0)
    with working("short"):
        pass
    assert screen.getvalue() == ""
    assert drawers() == []


@pytest.mark.parametrize("why", ["off", "no terminal", "quiet"])
def test_it_is_silent_where_nobody_watches(why: str, screen: Screen, monkeypatch: pytest.MonkeyPatch):
    if why == "off":
        monkeypatch.setenv("HEADRACE_PROGRESS", "off")
    elif why == "no terminal":
        monkeypatch.setattr(screen, "isatty", lambda: False)
    with working("silent", quiet=why == "quiet") as work:
        assert not work.shown
        assert drawers() == []
    assert screen.getvalue() == ""


def test_inner_work_counts_in_the_outer_one(screen: Screen):
    with working("outer") as outer, working("inner") as inner:
        assert inner is outer is current()
        until_drawn(screen, "outer")
    assert "inner" not in screen.getvalue()


def test_a_failure_ends_it(screen: Screen):
    def interrupted() -> None:
        with working("failing"):
            until_drawn(screen, "failing")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert drawers() == []


def test_a_terminal_without_unicode(screen: Screen):
    screen.encoding = "ascii"
    with working("plain") as work:
        work.total_cases, work.cases = 2, 1
        until_drawn(screen, "plain | ##########---------- 1 of 2 cases")


@pytest.fixture
def files(tmp_path: Path) -> str:
    for i in range(3):
        rows = "\n".join(f"{i},{1000 * i + n}" for n in range(500))
        (tmp_path / f"{i}.csv").write_text(f"k,t\n{rows}\n")
    return str(tmp_path / "*.csv")


@pytest.mark.usefixtures("screen")
@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"batch_rows": 100}, {"host": "local", "checkpoint": "state"}])
def test_runs_count_their_rows_and_bytes(
    options: dict[str, object], files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    stream = hr.read_csv(files, schema="k INT, t LONG", lifetime=hr.point("t"))
    with working("counted") as work:
        stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()).run(**options)  # type: ignore[arg-type]
        assert work.refresh is None or work.refresh() is None  # type: ignore[func-returns-value]
        assert work.rows == 1500
        assert work.bytes == sum(file.stat().st_size for file in tmp_path.glob("*.csv"))
        assert work.batch is not None


@pytest.mark.usefixtures("screen")
def test_histories_and_verifications_count(files: str):
    stream = hr.read_csv(files, schema="k INT, t LONG", lifetime=hr.point("t"))
    with working("counted") as work:
        stream.history("duckdb").cht()
        assert work.rows == 1500
        stream.verify(seeds=3)
        assert (work.cases, work.total_cases) == (3, 3)
