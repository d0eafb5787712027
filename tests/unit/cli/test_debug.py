"""`headrace debug`: commands from a script, as a person types them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.debug.texts import HELP
from headrace.cli.debug.words import edit_of, split_at, split_when, values_of
from headrace.cli.loading import find_stream
from headrace.errors import HeadraceError, PlanError

QUERY = """\
import headrace as hr
from headrace import col

rows = hr.events("le | re | k | x\\n1 | 2 | a | 1\\n15 | 16 | a | 2\\n3 | 4 | a | 3\\n5 | 6 | b | 4")


@hr.udf
def double(x: int) -> int:
    return 2 * x


doubled = rows.select("k", x=double("x"))
counts = doubled.where(col("x") > 1).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("x"))
large = doubled.where(col("x") > 7).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("x"))
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("counts.py").write_text(QUERY)
    Path("counts.sql").write_text("CREATE STREAM s (t LONG, x LONG) ORDER BY t SOURCE FILE ('s.csv', ',');\n"
                                  "QUERY big AS SELECT x FROM s WHERE x > 1;\n")  # fmt: skip
    Path("s.csv").write_text("t,x\n1,1\n2,2\n3,3\n")


def debug(*commands: str, target: str = "counts.py:counts", status: int = 0) -> list[str]:
    """The lines that a script of commands prints."""
    done = CliRunner().invoke(app, ["debug", target, "--batch-rows", "1"], input="\n".join(commands) + "\n")
    assert done.exit_code == status, done.output
    return done.stdout.splitlines()


def cells(lines: Sequence[str]) -> list[list[str]]:
    """The cells of lines of a table."""
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_steps():
    lines = debug("operator", "o", "batch", "e", "run", "batch")
    assert lines[0].startswith("batch 0, after #1 Source")
    assert lines[1].startswith("batch 0, after #2 Admit")
    assert lines[2:] == ["after batch 0", "after batch 1", "at the end of the input", "at the end of the input"]


def test_breakpoints_and_what_fits():
    lines = debug("break 4 when x > 5", "run", "breakpoints", "delete 1", "breakpoints", "run")
    assert lines[0] == "1: output of #4 when x > 5 (0 hits)"
    assert lines[1].startswith("batch 2, after #4 Where")
    assert lines[2] == "  breakpoint 1, output of #4 when x > 5: 1 change"
    assert lines[4].split() == ["2", "|", "4", "|", "3", "|", "4", "|", "1", "|", "a", "|", "6"]
    assert lines[5:] == ["1: output of #4 when x > 5 (1 hit)", "no breakpoints", "at the end of the input"]


def test_kinds_of_breakpoints():
    lines = debug("break in 5 when x > 5", "break retraction 5", "break late", "break late 1", "break cti 5 20",
                  "break call double")  # fmt: skip
    assert [line.partition(": ")[2].rpartition(" (")[0] for line in lines] == [
        "input of #5 when x > 5", "retraction by #5", "late or diverted row", "late or diverted row of #1",
        "CTI of #5 at 20", "call of double",
    ]  # fmt: skip


def test_looking_around():
    lines = debug("break retraction 5", "run", "where", "in 5", "out 5", "history 5", "history 5 1", "state 5")
    assert lines[2] == "  breakpoint 1, retraction by #5: 1 change"
    assert lines[11].startswith("→ #5 Aggregate")
    assert lines[11].endswith("← #4: 2 changes")
    assert cells(lines[15:16]) == [["2", "4", "3", "4", "1", "a", "6"]]
    assert sorted(cells(lines[17:19])) == [
        ["2", "5", "0", "10", "-1", "a", "1", "2"],
        ["2", "5", "0", "10", "1", "a", "2", "8"],
    ]
    assert cells(lines[20:21] + lines[22:23]) == [["0", "10", "a", "2", "8"], ["0", "10", "a", "1", "2"]]
    assert len(lines) > 24


def test_questions():
    why = debug("run", "why n = 2", "why 4 x = 6")
    assert why[1] == "#5 [0, 10): k = a, n = 2, s = 8, batch 2"
    assert why[-3] == "#4 at 3: k = a, x = 6, batch 2"
    forward = debug("run", "forward x = 4")
    assert [row[0] for row in cells(forward[2:])] == ["1", "2", "3", "4", "5"]
    assert debug("whynot k = 'z'")[0].startswith("not there: #5")
    back = debug("run", "retracted n = 1 AND s = 2", "cti", "cti 1 0")
    assert back[1] == "#5 [0, 10): k = a, n = 1, s = 2, batch 2"
    assert [line for line in back if line.startswith("after batch")] == ["after batch 3:", "after batch 0:"]


def test_calls_with_python_debugger():
    lines = debug("break call double", "run", "into", "p 'x is', x", "continue", "run")
    assert lines[1].startswith("batch 0, in #3 Select")
    assert lines[2].endswith("double(x=1)")
    assert any("('x is', 1)" in line for line in lines)
    assert lines[-1].endswith("double(x=2)")


def test_changes_of_the_input():
    lines = debug("run", "edit 1 replace x = 3 with x=30, k='b'", "run", "compare", "edit 1 remove k = 'b'", "run",
                  "history")  # fmt: skip
    assert lines[1:3] == ["after batch 1", "at the end of the input"]
    assert ["right", "1", "0", "10", "b", "2", "68"] in cells(lines)
    assert sorted(cells(lines[-2:])) == [["0", "10", "a", "1", "2"], ["10", "20", "a", "1", "4"]]
    added = debug("edit 1 add le=3, re=4, k='c', x=9 from batch 2", "run", "history")
    assert ["0", "10", "c", "1", "18"] in cells(added)


def test_another_query():
    lines = debug("batch", "query counts.py:large", "run", "history", "compare")
    assert lines[:3] == ["after batch 0", "after batch 0", "at the end of the input"]
    assert cells(lines[4:5]) == [["0", "10", "b", "1", "8"]]
    assert "answers: 2 only left, 0 only right, 1 in both" in lines


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os\n1 // 0", r"ZeroDivisionError: .* by zero \(line 2 of broken.py\)"),
        ("def", r"SyntaxError: .* \(broken.py, line 1\)"),
        ("raise SystemExit('no')", r"SystemExit: no \(line 1 of broken.py\)"),
        ("import json\njson.loads('')", r"\(line 2 of broken.py, line \d+ of decoder.py\)"),
        ("import counts\ncounts.rows.where(1)", r"\[EXPRESSION\] where needs an expression"),
    ],
)
def test_a_file_that_cannot_be_run_is_an_error_of_the_command_only(text: str, reason: str):
    Path("broken.py").write_text(text)
    lines = debug("query broken.py", "run", status=1)
    assert re.search(reason, lines[0])
    assert lines[-1] == "at the end of the input"
    with pytest.raises(HeadraceError, match=reason):
        find_stream("broken.py")


def test_scripts_of_sql_and_comments():
    lines = debug("# a comment", "", "run", "history", "quit", "run", target="counts.sql:big")
    assert lines[0] == "at the end of the input"
    assert len(lines) == 4


def test_commands_of_a_file():
    Path("commands.txt").write_text("run\n")
    done = CliRunner().invoke(app, ["debug", "counts.sql:big", "--script", "commands.txt"], input="where\n")
    assert (done.exit_code, done.stdout) == (0, "at the end of the input\n")


def test_errors_are_shown_and_the_status_says_so():
    lines = debug("runn", "break 9", "break", "break 4 when nothing > 1", "edit 1 remove", "delete 7", "into", "why x",
                  "help runn", status=1)  # fmt: skip
    text = "\n".join(lines)
    for part in ("no such command", "instead: run", "no such operator", "number of an operator", "not a change",
                 "no such breakpoint", "not at a call"):  # fmt: skip
        assert part in text


def test_help_names_every_command():
    lines = debug("help")
    assert len(lines) == sum(map(len, HELP.values()))
    assert debug("help break") == [line for line in lines if line.split()[0] == "break"]


def test_words():
    assert values_of("x=1, k='a', y=None") == {"x": 1, "k": "a", "y": None}
    assert edit_of("2 add x=1 from batch 3") == (2, {"add": [{"x": 1}], "batch": 3})
    assert edit_of("1 REPLACE x > 1 WITH x=2") == (1, {"replace": ("x > 1", {"x": 2})})
    for wrong in ("1 replace x > 1", "1 remove x with x=1", "x"):
        with pytest.raises(PlanError, match="not a change"):
            edit_of(wrong)
    for wrong in ("x", "1", "x=y", "x=1)"):
        with pytest.raises(PlanError, match="values of columns"):
            values_of(wrong)


def test_words_of_commands_within_texts_belong_to_the_texts():
    assert split_at("k = 'look at me'") == ("k = 'look at me'", None)
    assert split_at("k = 'a at b' at 15") == ("k = 'a at b'", "15")
    assert split_at("\"k at 1\" = 'it''s at 2'") == ("\"k at 1\" = 'it''s at 2'", None)
    assert split_when("3 WHEN k = 'when x'") == ("3", "k = 'when x'")
    assert edit_of("1 remove k = 'x with y'") == (1, {"remove": "k = 'x with y'"})
    assert edit_of("1 remove k = 'from batch 3'") == (1, {"remove": "k = 'from batch 3'"})
    replaced = {"replace": ("k = 'x with y'", {"k": "z with w"}), "batch": 2}
    assert edit_of("1 replace k = 'x with y' with k='z with w' from batch 2") == (1, replaced)
    assert edit_of("1 add k='a from batch 3', x=1") == (1, {"add": [{"k": "a from batch 3", "x": 1}]})
    assert "not there: #4 Where x > 1: k = b at b" in debug("run", "whynot 4 k = 'b at b'")[1]


def test_a_question_about_a_time():
    assert debug("run", "why k = 'a' at 15")[1].startswith("#5 [10, 20): k = a, n = 1")
    assert "lasts at 15" in debug("run", "whynot k = 'b' at 15")[1]


@pytest.mark.parametrize(
    "line",
    [
        "state 3 x",
        "break cti 3 - 5",
        "break cti 3 ²",
        "edit 1 add x={[1]: 2}",
        pytest.param(f"break {'9' * 5000}", id="many digits"),
        pytest.param(f"edit {'9' * 5000} remove x = 1", id="many digits of an input"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_the_command_only(line: str):
    lines = debug(line, "run", status=1)
    assert lines[0].startswith("[")
    assert lines[-1] == "at the end of the input"
