"""The dashboard for Grafana shows metrics that exist: names, types and labels are those of queries that run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.scraping import Scraped, scraped_queries

BOARD: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "grafana" / "headrace.json").read_text())
PANELS: list[dict[str, Any]] = BOARD["panels"]
#: Labels that Prometheus adds.
_ADDED = {"instance", "job"}
#: A metric with its selector, and what is directly around it.
_USE = re.compile(r"(?P<call>\w+\()?(?P<name>headrace_\w+)(?:\{(?P<selector>[^}]*)\})?(?P<range>\[[^]]+\])?")
_MATCHER = re.compile(r'(\w+)=~?"([^"]*)"')

Metrics = dict[str, tuple[str, frozenset[str]]]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> list[Scraped]:
    return scraped_queries(tmp_path_factory.mktemp("queries"))


@pytest.fixture(scope="module")
def metrics(scraped: list[Scraped]) -> Metrics:
    return {name: (kind, labels) for one in scraped for name, kind, labels in one.types()}


def expressions() -> Iterator[tuple[str, str]]:
    """The title of each panel, and an expression of it."""
    for panel in PANELS:
        assert panel["targets"], panel["title"]
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from (("annotation", one["expr"]) for one in BOARD["annotations"]["list"])


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_an_expression_uses_metrics_as_they_are(title: str, expression: str, metrics: Metrics):
    uses = list(_USE.finditer(expression))
    assert uses, title
    known: set[str] = set(_ADDED)
    for use in uses:
        name = use["name"].removesuffix("_bucket")
        assert name in metrics, f"{title}: there is no {name}"
        kind, labels = metrics[name]
        assert (name != use["name"]) == (kind == "histogram"), f"{title}: {use['name']} is a {kind}"
        grows = use["call"] in ("rate(", "increase(")
        assert grows == (kind != "gauge") == (use["range"] is not None), f"{title}: {name} is a {kind}"
        selected = {label for label, _ in _MATCHER.findall(use["selector"] or "")}
        assert selected <= labels, f"{title}: {name} has no {selected - labels}"
        known |= labels | ({"le"} if kind == "histogram" else set())
    for grouping in re.findall(r"(?:by|on|group_left|group_right) \(([^)]*)\)", expression):
        assert set(grouping.split(", ")) <= known, title


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_legend_names_labels_that_its_expression_leaves(panel: dict[str, Any], metrics: Metrics):
    for target in panel["targets"]:
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - _ADDED
        summed = re.match(r"(?:sum|max|count) by \(([^)]*)\)", target["expr"])
        if summed is not None:
            left = set(summed[1].split(", "))
        else:
            names = [use["name"] for use in _USE.finditer(target["expr"])]
            left = {label for name in names for label in metrics[name][1]}
        assert shown <= left, panel["title"]


def test_values_of_labels_exist(scraped: list[Scraped]):
    fates = {dict(labels)["fate"] for labels in scraped[0].values("headrace_rows_total")}
    for title, expression in expressions():
        for label, value in _MATCHER.findall(expression):
            if label == "fate":
                assert set(value.split("|")) <= fates, title
            elif label == "state":
                assert value == "failed"
            else:
                assert (label, value) == ("query", "$query"), title


def test_every_metric_of_a_query_is_on_the_dashboard(metrics: Metrics):
    """All but those that others are made of, or that have a panel of their kind."""
    used = {use["name"].removesuffix("_bucket") for _, text in expressions() for use in _USE.finditer(text)}
    assert set(metrics) - used == {
        "headrace_batch", "headrace_build_info", "headrace_process_cpu_seconds_total", "headrace_cti",
        "headrace_cti_lag_seconds", "headrace_cti_lag_ticks", "headrace_source_cti", "headrace_output_cti",
    }  # fmt: skip


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        assert panel["description"], panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) > 10


def test_the_list_of_queries_is_that_of_a_metric(metrics: Metrics):
    (variable,) = [one for one in BOARD["templating"]["list"] if one["name"] == "query"]
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"])
    assert found is not None
    assert found[2] in metrics[found[1]][1]
