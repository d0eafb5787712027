"""`headrace explain`: which stream is meant, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.explain import find_stream
from headrace.errors import PlanError, SourceError

QUERY = '''
import headrace as hr
from headrace import col

ticks = hr.events("""
    kind   | le | re | symbol | price
    insert | 1  | 2  | A      | 10.0
""")
cheap = ticks.where(col("price") < 100)
averages = cheap.group_by("symbol").window(hr.tumbling(10)).aggregate(price=hr.avg("price"))
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "query.py"
    path.write_text(QUERY)
    return path


def explain(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["explain", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_stream_that_no_other_reads_is_explained(file: Path):
    text = explain(str(file))
    assert text.startswith("averages")
    assert "intake: where the rows are read" in text
    assert "stage 1: rows brought together by symbol" in text
    assert "on Spark a batch is one job with one shuffle: " in text
    assert "shuffled: #1 by symbol" in text
    assert "state: groups × windows the CTI has not closed" in text
    assert "corrects itself" in text


def test_a_named_stream_is_explained(file: Path):
    text = explain(f"{file}:cheap")
    assert text.startswith("cheap")
    assert "Where price < 100" in text
    assert "Aggregate" not in text


def test_json_has_the_same_steps(file: Path):
    found = json.loads(explain(str(file), "--json"))
    assert found["stream"] == "averages"
    assert [stage["stage"] for stage in found["stages"]] == [0, 1]
    assert found["job"].startswith("on Spark a batch is one job")
    assert [len(stage["shuffled"]) for stage in found["stages"]] == [0, 1]
    steps = [step for stage in found["stages"] for step in stage["steps"]]
    assert {"operator", "runs", "state", "cti", "insert_only", "reads"} <= steps[0].keys()
    assert steps[0]["operator"].startswith("Source")
    assert steps[-1]["operator"] == "Output out"
    known = {step["number"] for step in steps}
    assert all(number in known for step in steps for number in step["reads"])


def test_what_cannot_be_explained_is_refused_with_advice(file: Path, tmp_path: Path):
    with pytest.raises(PlanError, match=r"instead: .*query\.py:averages"):
        find_stream(f"{file}:avrages")
    with pytest.raises(PlanError, match="neither a Python file nor a SQL script"):
        find_stream("query.txt")
    with pytest.raises(SourceError, match="there is no file"):
        find_stream(str(tmp_path / "none.py"))
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(PlanError, match="no stream at the top level"):
        find_stream(str(tmp_path / "empty.py"))
    file.write_text(QUERY + "\nothers = ticks.where(col('price') > 100)\n")
    with pytest.raises(PlanError, match="several streams") as caught:
        find_stream(str(file))
    assert caught.value.given == "averages, others"


def test_aggregates_that_no_query_uses_have_code_as_well(tmp_path: Path):
    file = tmp_path / "aggregates.sql"
    body = "INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (next); }"
    file.write_text(f"CREATE AGGREGATE newest(next DOUBLE): DOUBLE {{ {body} }};")
    text = explain(str(file), "--code")
    assert "under OVER, ITERATE for each tuple that comes: native code" in text
    assert "def newest(begin, settle, end, " in text
    assert "over whole windows: Python" in text
    assert "class Newest:" in text
    with pytest.raises(PlanError, match="no stream at the top level"):
        explain(str(file))
