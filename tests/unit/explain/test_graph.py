"""A plan as a graph: the numbers, texts and stages of `explain`."""

from __future__ import annotations

import json

import headrace as hr
from headrace.explain.graph import plan_graph
from headrace.explain.steps import explain_line
from headrace.plan.nodes import Output
from headrace.stages.cut import line_of


def test_a_graph_has_the_operators_of_explain() -> None:
    ticks = hr.read_csv("rows.csv", "k STRING, v LONG, t LONG", lifetime=hr.point("t"))
    counts = ticks.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    line = line_of([Output(counts.node, "counts")])
    graph = json.loads(json.dumps(plan_graph(line)))
    text = explain_line(line)
    for node in graph["nodes"]:
        assert f"#{node['id']} {node['title']} {node['text']}".rstrip() in text
    numbers = {node["id"] for node in graph["nodes"]}
    assert all(set(node["inputs"]) <= numbers for node in graph["nodes"])
    assert {stage["level"] for stage in graph["stages"]} == {node["level"] for node in graph["nodes"]}
