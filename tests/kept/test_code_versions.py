"""A module or an SQL aggregate with another body is another query; the error names versions of packages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import CheckpointError

DRAWN = """
    le | k | v
    1  | a | 3
    2  | a | 9
"""
TOTAL = """
CREATE AGGREGATE total(next LONG): LONG {{
    TABLE state(sum LONG);
    INITIALIZE: {{ INSERT INTO state VALUES (next); }}
    ITERATE: {{ UPDATE state SET sum = sum + next; }}
    TERMINATE: {{ INSERT INTO RETURN SELECT {body} FROM state; }}
}};
"""
MODULE = """
import headrace as hr

class Scaled(hr.Aggregate):
    input = "v LONG"
    output = "LONG"

    def compute(self, values):
        return {factor} * sum(values)
"""


def _start(aggregate: object) -> None:
    windows = hr.events(DRAWN, "k STRING, v LONG").group_by("k").window(hr.tumbling(10))
    query = windows.aggregate(answer=aggregate).start(hr.memory(), host="local", checkpoint="state")  # type: ignore[arg-type]
    query.process_all_available()
    query.stop()


def _console_module(factor: int) -> hr.Aggregate:
    """A module without a source text, as one that was typed into a console."""
    names: dict[str, type[hr.Aggregate]] = {}
    exec(MODULE.format(factor=factor), names)  # noqa: S102 - a text of this test
    return names["Scaled"]()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_module_with_another_constant_is_another_query():
    _start(_console_module(2).of("v"))
    _start(_console_module(2).of("v"))
    with pytest.raises(CheckpointError, match="belongs to another query") as caught:
        _start(_console_module(3).of("v"))
    assert str(caught.value).count("module Scaled(), code ") == 2


def test_an_sql_aggregate_with_another_body_is_another_query():
    _start(hr.sql_aggregate(TOTAL.format(body="sum")).of("v"))
    _start(hr.sql_aggregate(TOTAL.format(body="sum")).of("v"))
    with pytest.raises(CheckpointError, match="belongs to another query"):
        _start(hr.sql_aggregate(TOTAL.format(body="sum + 1")).of("v"))


def test_the_difference_shows_the_version_of_a_modules_package():
    vwap = hr.module("finance.vwap")
    windows = hr.events("le | price | quantity\n1 | 2.0 | 3.0", "price DOUBLE, quantity DOUBLE").window(hr.tumbling(10))
    answers = windows.aggregate(vwap=vwap)  # type: ignore[arg-type]
    answers.start(hr.memory(), host="local", checkpoint="state").stop()
    file = Path("state/headrace.json")
    about = json.loads(file.read_text())
    (line,) = about["modules"]
    assert ", of headrace-finance " in line
    before = line.rpartition(" ")[0] + " 0.0.1"
    file.write_text(json.dumps(about | {"fingerprint": "0", "modules": [before]}))
    with pytest.raises(CheckpointError) as caught:
        answers.start(hr.memory(), host="local", checkpoint="state")
    assert f"- {before}" in str(caught.value)
    assert f"+ {line}" in str(caught.value)
