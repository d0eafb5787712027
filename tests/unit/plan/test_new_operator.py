"""An operator that is added as CONTRIBUTING says: declared by its node, and entered in tables, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.history.translate import TRANSLATIONS
from headrace.operators.reference.plan import TWINS
from headrace.operators.span import LINEAR
from headrace.plan.base import Node, Reach
from headrace.plan.span import EachAlone
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, eq=False)
class Stretch(EachAlone):
    """Events last so many times as long."""

    times: int

    reach: ClassVar[Reach] = "event, another time"
    keeps_start: ClassVar[bool] = True
    keeps_events: ClassVar[bool] = True

    def describe(self) -> str:
        return f"Stretch {self.times} times"


def run(node: Stretch, changes: Changes) -> Changes:
    endless = changes.re == INFINITY
    length = np.where(endless, 0, changes.re - changes.le) * node.times
    return changes.with_lifetimes(changes.le, np.where(endless, INFINITY, changes.le + length))


def twin(node: Stretch, below: Sequence[Any]) -> Any:
    rows, now = below[0]
    return [(le, re if re == INFINITY else le + (re - le) * node.times, row) for le, re, row in rows], now


def translate(t: Any, node: Stretch) -> None:
    end = f"CASE WHEN re = {INFINITY} THEN re ELSE le + (re - le) * {node.times} END"
    t.give(node, f"SELECT le, {end} AS re, {', '.join(t.columns(t.of(node)))} FROM {t.of(node).name}")


@pytest.fixture(autouse=True)
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LINEAR, Stretch, run)  # type: ignore[arg-type]
    monkeypatch.setitem(TWINS, Stretch, twin)  # type: ignore[arg-type]
    monkeypatch.setitem(TRANSLATIONS, Stretch, translate)  # type: ignore[arg-type]


EVENTS = hr.events("le | re | k | x \n 1 | 3 | 1 | 2 \n 2 | 4 | 1 | 3 \n 5 | 6 | 2 | 4")


def stretched(stream: hr.Stream) -> hr.Stream:
    return hr.Stream(Stretch(stream.node, 3))


QUERIES = {
    "alone": lambda: stretched(EVENTS),
    "below windows": lambda: stretched(EVENTS).group_by("k").window(hr.tumbling(4)).aggregate(s=hr.sum("x")),
    "above windows": lambda: stretched(EVENTS.group_by("k").window(hr.session(2)).aggregate(s=hr.sum("x"))).final(),
    "in a group": lambda: EVENTS.group_by("k").apply(lambda group: stretched(group).window(hr.snapshot()).top(1, "x")),
    "in a loop": lambda: hr.recurse(EVENTS, lambda f: stretched(f).where(col("x") < 0), distinct=False),
    "joined": lambda: stretched(EVENTS.select("k", y=col("x"))).join(EVENTS, "k"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_differential_it_runs_as_its_twin_and_as_batch_sql(name: str):
    query = QUERIES[name]()
    differential_reference(query.node, buckets=2)
    assert hr.history_diff(query.cht(), query.history(engine="duckdb").cht(), names=("live", "history")) == ""


def test_it_is_explained():
    text = stretched(EVENTS).explain(liveliness=True)
    assert "Stretch 3 times" in text
    assert "runs: columnar; state: none; CTI: as its input" in text


def test_sources_read_what_it_uses(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("t,a,b\n1,2,3\n")
    rows = hr.read_csv(str(tmp_path), "t LONG, a LONG, b LONG", lifetime=hr.point("t"))
    plan: Node = stretched(rows).select("a").node
    assert plan.inputs[0].uses(0, {"a"}) == {"a"}


def test_the_list_of_places_is_true_and_short():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("## Adding an operator")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+)[ ✓]* \| `([^`]+)` \|", section, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) <= 12
    named = set(re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", section))
    assert {path for path in named if not (ROOT / path).exists()} == set()
