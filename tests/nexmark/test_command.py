"""`python -m examples.nexmark`, as a reader would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "examples.nexmark", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("query", ["q2", "q7"])
def test_a_query_is_asked_and_answered(query: str):
    done = ask(query, "--events", "400", "--rows", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "?" in lines[0]
    assert lines[-1].endswith("rows")
    assert int(lines[-1].split()[0]) > 0
    assert [line.split()[0] for line in lines[-4:-1]] == ["0", "1", "2"]


def test_a_query_is_explained():
    done = ask("q6", "--explain")
    assert done.returncode == 0, done.stderr
    assert "Top 11 by date_time" in done.stdout


def test_an_unknown_query_is_refused_with_those_there_are():
    done = ask("q99")
    assert done.returncode != 0
    assert "q22" in done.stderr
