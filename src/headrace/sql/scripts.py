"""Scripts: all outputs of a text of statements, run as one query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

from headrace.api.options import StreamRunOptions, StreamStartOptions, shows_options
from headrace.api.running import Run, run, start_all
from headrace.api.stream import Stream
from headrace.api.tables import Table
from headrace.display.words import clipped
from headrace.host.driving.query import Query
from headrace.sql.bind.relations import plain
from headrace.sql.session import Answers, Delivery, Outcome, SqlSession

__all__ = ["Script"]


@dataclass(frozen=True)
class Script:
    """A bound text of statements: its session, and the outcomes of its statements."""

    session: SqlSession
    outcomes: tuple[Outcome, ...]

    def __repr__(self) -> str:
        parts = {"queries": list(self.queries), "deliveries": list(self.deliveries), "streams": list(self.streams)}
        found = [f"{what} {clipped(', '.join(names), 60)}" for what, names in parts.items() if names]
        return f"Script: {'; '.join(found) or 'no queries'}"

    @property
    def streams(self) -> dict[str, Stream]:
        """The streams that have a source, by name."""
        entries = self.session.catalog.streams.values()
        return {entry.name: plain(entry.stream) for entry in entries if entry.node is not None}

    @property
    def queries(self) -> dict[str, Stream]:
        """The queries that are not inserted anywhere, by their names or as `query_1`, in order."""
        return {outcome.name: outcome.stream for outcome in self.outcomes if isinstance(outcome, Answers)}

    @property
    def deliveries(self) -> dict[str, tuple[Stream, Any]]:
        """The streams that go to sinks, with their sinks."""
        return {
            outcome.name: (outcome.stream, outcome.sink) for outcome in self.outcomes if isinstance(outcome, Delivery)
        }

    def table(self, name: str) -> Table:
        """A table of the script, to change its rows and to look at them."""
        return self.session.table(name)

    def execute(self, text: str) -> tuple[Outcome, ...]:
        """Execute more statements, such as `INSERT INTO t VALUES (1)`; queries that follow the table see the change."""
        return tuple(self.session.execute(text))

    @shows_options(StreamRunOptions)
    def run(self, **options: Unpack[StreamRunOptions]) -> Run:
        """Run all outputs to the end of their inputs, as one query; options as for `headrace.run`.

        INSERT INTO writes to files or the console; the run holds the answers of the other queries.
        """
        outputs = self.queries | {name: stream for name, (stream, _) in self.deliveries.items()}
        sinks = {name: sink for name, (_, sink) in self.deliveries.items()}
        self.session.latest = run(outputs, sinks=sinks, **{**self.session.options(options.get("host")), **options})
        return self.session.latest

    @shows_options(StreamStartOptions)
    def start(self, sink: Any = None, **options: Unpack[StreamStartOptions]) -> Query:
        """Run until stopped, as `headrace.start_all` does: every INSERT INTO, and the other queries into `sink`."""
        pairs = [*self.deliveries.values(), *((stream, sink) for stream in self.queries.values() if sink is not None)]
        settings = self.session.options(options.get("host", "spark"))
        settings.pop("batch_rows", None)
        if "checkpoint" not in options and self.session.catalog.settings["checkpoint"] is not None:
            settings["checkpoint"] = self.session.catalog.place(self.session.catalog.settings["checkpoint"])
        settings |= self.session.waits
        return start_all(pairs, **{**settings, **options})
