"""The page of the papers' examples: it is what the script writes, and every text of the thesis runs as it says."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import SqlError

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("make_papers", DOCS / "make_papers.py")
assert spec is not None
assert spec.loader is not None
make_papers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_papers)

SCHEMA = """
CREATE SCHEMA StockTickSchema (symbol String, sourceTimestamp Long, price Double, quantity Int, exchange String);
"""
STREAM = "CREATE STREAM StockTick StockTickSchema SOURCE FILE ('ticks.csv', ',');\n"
TICKS = """\
IBM,10,81.5,100,NYSE
MSFT,20,120.0,30000,NASDAQ
IBM,30,101.5,200000,NYSE
ORCL,40,40.0,20000,NYSE
IBM,50,99.0,0,AMEX
MSFT,65,130.0,150,NASDAQ
"""
#: The streams of the figures: values at their times.
DRAWN = {
    "S": [(1, 1), (2, 2), (2, 3), (3, 4), (3, 5), (4, 6), (5, 7), (5, 8)],
    "D": [(1, 10), (2, 15), (3, 18), (4, 22)],
    "E": [(1, 1), (2, 10), (2, 20), (3, 100)],
    "one": [(10 + i, 10 + 10 * i) for i in range(7)],
    "two": [(30, 10), (31, 20), (36, 30)],
    "three": [(10, 10), (10, 20), (11, 30), (12, 40), (12, 50), (12, 60), (12, 70), (13, 80)],
}
EXAMPLES = make_papers.examples()


def _inputs() -> dict[str, hr.Stream]:
    return {
        name: hr.events([{"kind": "insert", "le": t, "re": t + 1, "time": t, "hour": t, "value": v} for t, v in rows])
        for name, rows in DRAWN.items()
    }


def _script(example: dict[str, Any], folder: Path, text: str) -> hr.Script:
    (folder / "ticks.csv").write_text(TICKS)
    os.utime(folder / "ticks.csv", (1_000_000, 1_000_000))
    context = "" if text.strip().startswith("CREATE SCHEMA StockTickSchema ") else SCHEMA
    context += "" if example.get("alone") else STREAM
    return hr.script(context + example.get("before", "") + text, base=folder, **_inputs())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e['place']} {e['what']}")
def test_an_example_runs_as_the_page_says(example: dict[str, Any], tmp_path: Path):
    text = example.get("run") or example["printed"]
    if "refused" in example:
        with pytest.raises(SqlError, match=example["refused"]):
            _script(example, tmp_path, text)
        return
    script = _script(example, tmp_path, text)
    if "answer" in example:
        stream = script.streams[example["of"]] if "of" in example else list(script.queries.values())[-1]
        rows = stream.cht().drop_columns(["le", "re"]).to_pylist()
        assert Counter(tuple(row.values()) for row in rows) == Counter(map(tuple, example["answer"]))


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if "printed" in e and "why" in e], ids=lambda e: f"{e['place']} {e['what']}"
)
def test_what_differs_does_not_run_as_printed(example: dict[str, Any], tmp_path: Path):
    with pytest.raises(SqlError):
        _script(example, tmp_path, example["printed"])


def test_the_page_is_what_the_script_writes():
    assert make_papers.PAGE.read_text(encoding="utf-8") == make_papers.page(), "run: python docs/make_papers.py"
