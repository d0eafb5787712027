"""The cell magic, in an IPython of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PlanError, SqlError
from headrace.notebook import Answer, Cells

EVENTS = "kind|le|re|x\ninsert|1|5|3\ninsert|2|4|1\n"


@pytest.fixture
def ipython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    # Here, and not above: the rest of these tests needs no IPython.
    shells = pytest.importorskip("IPython.core.interactiveshell")
    # IPython puts a main module of its own in place; processes that tests start later need the real one.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shell = shells.InteractiveShell()
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "headrace")
    shell.user_ns["ev"] = hr.events(EVENTS)
    yield shell
    shell.history_manager.end_session()
    shell.reset(new_session=False)


@pytest.mark.slow
def test_a_cell_shows_and_keeps_the_answer_of_its_last_query(ipython: Any):
    done = ipython.run_cell("%%headrace big\nSELECT x FROM ev;\nSELECT x AS y FROM ev WHERE x > 2;")
    assert isinstance(done.result, Answer)
    assert "<th>y</th>" in done.result._repr_html_()
    assert ipython.user_ns["big"].table().to_pylist() == [{"le": 1, "re": 5, "y": 3}]
    assert list(ipython.user_ns["big"].to_pandas()["y"]) == [3]
    assert repr(done.result) == "query_2 (y LONG): 1 rows"


def test_mistakes_are_shown_at_their_place(ipython: Any, capsys: pytest.CaptureFixture[str]):
    done = ipython.run_cell("%%headrace\nSELECT y FROM ev")
    assert isinstance(done.error_in_exec, SqlError)
    out = capsys.readouterr().out
    assert "1 | SELECT y FROM ev\n" in out
    assert "Traceback" not in out


def test_cells_share_a_session_and_python_s_streams():
    names: dict[str, Any] = {"ev": hr.events(EVENTS)}
    cells = Cells(names)
    assert cells.execute("", "CREATE STREAM big AS SELECT * FROM ev WHERE x > 2").text == "stream big (x LONG)"
    assert cells.execute("", "SELECT x FROM big").table().num_rows == 1
    names["ev"] = hr.events("kind|le|re|z\ninsert|1|5|3\n")
    assert cells.execute("", "SELECT z FROM ev").table().column_names == ["le", "re", "z"]
    names["big"] = names["ev"]  # a name that statements have taken stays theirs
    assert cells.execute("", "SELECT x FROM big").table().num_rows == 1


def test_several_statements_are_shown_below_one_another():
    cells = Cells({"ev": hr.events("kind|le|re|t\ninsert|1|5|<b>\n", "t STRING")})
    shown = cells.execute("", "SHOW STREAMS; SET view = changes; SELECT t FROM ev")._repr_html_()
    assert shown.index("<th>stream</th>") < shown.index("view = changes") < shown.index("<td>+</td>")
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "and 1 more" in Cells({"ev": hr.events(EVENTS)}).execute("", "SET rows = 1; SELECT x FROM ev")._repr_html_()


def test_names_that_cannot_be_kept():
    cells = Cells({"ev": hr.events(EVENTS)})
    with pytest.raises(PlanError, match="not a name for an answer"):
        cells.execute("two words", "SELECT x FROM ev")
    with pytest.raises(PlanError, match="has no answer to name"):
        cells.execute("name", "SHOW STREAMS")
    assert cells.execute("", "") is None


def test_answers_go_to_files(tmp_path: Path):
    Cells({"ev": hr.events(EVENTS)}).execute("", f"INSERT INTO FILE ('{tmp_path}/out') SELECT x FROM ev")
    assert list((tmp_path / "out").glob("batch-*/part-*.jsonl"))
