"""Streams, queries and results as widgets: what their pages get."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.notebook.widgets import _FOLLOWED, QueryFollower, widget_of

DRAWN = """
    kind    | le | re | re_new | v
    insert  | 1  | 5  |        | 1
    insert  | 2  | 7  |        | <b>2</b>
    retract | 1  | 5  | 3      | 1
    cti     | 9  |    |        |
"""


@pytest.fixture
def events() -> hr.Stream:
    return hr.events(DRAWN, batches=[1, 1, 2])


def test_a_stream_is_a_graph(events: hr.Stream) -> None:
    counts = events.where(col("v") != "0").window(hr.tumbling(5)).aggregate(n=hr.count())
    widget = widget_of(counts)
    assert widget is not None
    assert widget.kind == "graph"
    assert [node["title"] for node in widget.data["nodes"]][-1] == "Output"
    assert json.loads(json.dumps(widget.data)) == widget.data


def test_a_result_is_a_timeline(events: hr.Stream) -> None:
    widget = widget_of(events.run().results["out"])
    assert widget is not None
    assert widget.kind == "timeline"
    assert widget.data["rows"] == [{"le": 1, "re": 3, "v": "1"}, {"le": 2, "re": 7, "v": "<b>2</b>"}]


def test_what_is_no_stream_has_no_widget(events: hr.Stream) -> None:
    assert widget_of(1) is None
    assert events._repr_mimebundle_() is None, "there is no kernel here"


def test_a_query_is_live(events: hr.Stream) -> None:
    query = events.start(hr.memory(), host="local", name="q")
    query.process_all_available()
    follower = QueryFollower(query)
    sent: list[dict[str, Any]] = []
    follower.widget.send = sent.append  # type: ignore[method-assign]
    try:
        follower._asked(None, {"type": "ready"}, None)
        assert sent[0]["snapshot"]
        found = {(row["kind"], row["le"], row["re"]) for row in sent[0]["rows"]}
        assert found == {("insert", 1, 3), ("insert", 2, 7)}
        assert follower.widget.data["report"]["counts"]
        follower._sent = 0
        follower._send_new()
        assert not sent[1]["snapshot"]
        assert [row["kind"] for row in sent[1]["rows"]] == ["insert", "insert", "cti"]
        assert sent[1]["cti"] == 9
        assert widget_of(query) is follower.widget, "all cells share it"
    finally:
        query.stop()
        follower.thread.join(60)
    assert not follower.thread.is_alive()
    assert not _FOLLOWED
    assert follower.widget.data["state"] == "ended"
