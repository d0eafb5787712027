"""The law of sharing: whichever queries join and leave a run, after whatever rows, each gives the answer it gives alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import aggregates, meets, sources, spans

from headrace.api.stream import Stream
from headrace.events import cti_row, history, to_changes
from headrace.io.live_table import LiveTableRead, log_columns
from headrace.io.origins import AdapterRead
from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.nodes import Node, Output
from headrace.server.catalog import StoredCatalog, StoredObject
from headrace.server.log import EventLog
from headrace.server.published import LogSink, PublishedStream
from headrace.server.queries import ServedQuery
from headrace.server.runs import QueryRuns
from headrace.testing.same import assert_same_history
from headrace.testing.strategies import SCHEMA, batch_sizes, physical_streams, tables
from headrace.time import INFINITY

EXAMPLES = max(3, settings().max_examples // 12)
NAMES = ("a", "b", "c")


class Server:
    """The runs of a server, over one stream, without its threads."""

    def __init__(self, root: Path, plans: dict[str, Stream]) -> None:
        self.root, self.plans = root, plans
        self.input = EventLog(root / "input", log_columns(SCHEMA), durable=False)
        self.logs = {name: EventLog(root / name, log_columns(p.schema), durable=False) for name, p in plans.items()}
        self.source = PublishedStream("input", SCHEMA, self.input, dates=False)
        self.open()

    def open(self) -> None:
        self.runs = QueryRuns(self.root / "checkpoints", StoredCatalog(self.root / "catalog.db"), {"host": "local"})
        self.queries = {
            name: ServedQuery(
                StoredObject(number, "query", name, "", "", 0.0, "there"), self._live(plan.node),
                LogSink("events", name=name, log=self.logs[name]), self.runs,
            )
            for number, (name, plan) in enumerate(self.plans.items())
        }  # fmt: skip

    def _live(self, node: Node) -> Node:
        read = AdapterRead(LiveTableRead(self.source, promises=False))
        (output,) = rewrite_sources((Output(node, "out"),), lambda source: replace(source, origin=read))
        return output.input

    def catch_up(self) -> None:
        for query in self.queries.values():
            query.process_all_available()

    def again(self) -> None:
        """End, and start again what ran."""
        ran = [query.name for query in self.queries.values() if query.running is not None]
        self.runs.end()
        self.runs.stored.close()
        self.open()
        self.runs.start_together([self.queries[name] for name in ran])

    def step(self, action: str) -> None:
        name = action[-1]
        if action.startswith("start"):
            self.queries[name].start()
        elif action.startswith("stop"):
            self.queries[name].stop()
        elif action == "look":
            self.runs.look()
        elif action == "again":
            self.again()
        else:
            self.catch_up()

    def close(self) -> None:
        self.runs.end()
        self.runs.stored.close()
        for log in (self.input, *self.logs.values()):
            log.close()


@contextmanager
def server(plans: dict[str, Stream]) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as root:
        found = Server(Path(root), plans)
        try:
            yield found
        finally:
            found.close()


DONE = ["look", "look", "look", "again", "catch up", *(f"{do} {name}" for do in ("start", "stop") for name in NAMES)]
ACTIONS = st.lists(st.sampled_from(DONE), max_size=4)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_whoever_joins_and_leaves(data: st.DataObject):
    events = data.draw(physical_streams(max_events=14, min_events=3))
    below = sources(events, (len(events),))
    common = data.draw(aggregates(below))
    others = st.one_of(aggregates(below), spans(below), meets(common, below), aggregates(common))
    plans = {"a": common, "b": data.draw(spans(common)), "c": data.draw(others)}
    rows = tables(events, SCHEMA)
    pieces, start = [], 0
    for size in data.draw(batch_sizes(len(events))):
        pieces.append(rows.slice(start, size))
        start += size
    with server(plans) as live:
        live.queries["a"].start()
        for piece in pieces:
            if piece.num_rows:
                live.input.append(piece.cast(live.input.schema.arrow))
            for action in data.draw(ACTIONS):
                live.step(action)
        live.input.append(cti_row(INFINITY, SCHEMA))
        for query in live.queries.values():
            query.start()
        live.catch_up()
        live.runs.look()
        live.catch_up()
        for name, plan in plans.items():
            assert live.queries[name].error is None
            log = live.logs[name]
            found = history(to_changes(log.rows(0, log.end)[1], plan.schema))
            assert_same_history(found, plan.cht())
