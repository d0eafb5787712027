"""The table of metrics is what queries show: every name, its type and its labels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fixtures.scraping import Scraped, scraped_queries

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `(headrace_\w+)` \| (\w+) \|([\w, ]*)\| \S.* \|$", re.MULTILINE)

Shown = dict[str, tuple[str, frozenset[str]]]


def documented() -> Shown:
    table = PAGE.read_text(encoding="utf-8").split("<!-- metrics")[1]
    return {
        name: (kind, frozenset(labels.replace(" ", "").split(",")) - {""}) for name, kind, labels in _ROW.findall(table)
    }


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> list[Scraped]:
    return scraped_queries(tmp_path_factory.mktemp("queries"))


def test_every_metric_is_documented_with_its_type_and_labels(scraped: list[Scraped]):
    shown: Shown = {}
    for one in scraped:
        for name, kind, labels in one.types():
            assert shown.setdefault(name, (kind, labels)) == (kind, labels)
    assert shown == documented()


def test_the_table_has_each_metric_once():
    names = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(names) == len(documented()) > 20
