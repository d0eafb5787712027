"""`headrace verify`: what it tells, what it returns, and how a case is repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.verification.faults import fault
from tests.verification.planting import planted
from typer.testing import CliRunner, Result

from headrace.cli import app
from headrace.errors import IntentError

QUERY = """
import headrace as hr
s = hr.events("le | re | k | x\\n1 | 5 | a | 2.5\\n3 | 9 | b | 1.0")
out = s.group_by("k").window(hr.session(4)).aggregate(n=hr.count(), middle=hr.median("x"))
"""


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", "--jobs", "1", *arguments])


@pytest.fixture
def query(tmp_path: Path) -> str:
    path = tmp_path / "sessions.py"
    path.write_text(QUERY)
    return f"{path}:out"


@pytest.mark.slow
def test_a_query_that_is_right(query: str):
    done = headrace(query, "--seeds", "10")
    assert done.exit_code == 0, done.output
    assert "its own data: the live answer is that of the history, 2 rows" in done.output
    assert "10 of 10 cases, 0 failed" in done.output
    assert "Aggregate over session" in done.output
    assert "all passed" in done.output


@pytest.mark.slow
def test_a_query_that_is_wrong_and_the_case_that_shows_it(query: str):
    with planted(fault("session that ends one tick late")):
        done = headrace(query, "--seeds", "50", "--no-own", "--intent", "points & regular_ctis")
        assert done.exit_code == 1
        assert "hr.events(" in done.output
        case = done.output.partition("case ")[2].split()[0]
        again = headrace(query, "--case", case, "--intent", "points & regular_ctis")
        assert again.exit_code == 1
        assert f"case {case} failed" in again.output
    assert headrace(query, "--case", case, "--intent", "points & regular_ctis").exit_code == 0


@pytest.mark.slow
def test_the_engine_itself_as_json():
    done = headrace("--intent", "equi_join over highly_out_of_order & speculative", "--seeds", "6", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["cases"] == 6
    assert report["failures"] == []
    assert set(report["covered"]["disorder"]) == {"highly_out_of_order"}


def test_an_intent_that_says_nothing_is_refused():
    done = headrace("--intent", "equi_joint")
    assert isinstance(done.exception, IntentError)
    assert "equi_join" in str(done.exception)


def test_a_case_needs_its_intent():
    assert isinstance(headrace("--case", "0:17").exception, IntentError)
    assert isinstance(headrace("--case", "seventeen", "--intent", "where").exception, IntentError)
