"""Run queries as batch SQL over stored rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import typer

from headrace.api.history import History
from headrace.border import LIFETIME, lifetimes, shown
from headrace.changes import Changes
from headrace.cli.loading import LoadedQuery
from headrace.cli.run.options import Options, PrintOptions
from headrace.cli.run.printing import AnswerPrinter, print_note, show_outcomes, sorted_history
from headrace.errors import PlanError
from headrace.events import to_physical
from headrace.io.adapter import SinkAdapter
from headrace.meter import working
from headrace.plan.nodes import Node
from headrace.progress import Progress
from headrace.stages.egress import check_places, deliver, prepared
from headrace.time import INFINITY

__all__ = ["run_history"]


def run_history(loaded: LoadedQuery, options: Options) -> None:
    """Run every query separately, or only print the SQL."""
    queries = {name: _history(stream.node, options) for name, stream in loaded.queries.items()}
    sinks = {name: sink for name, (_, sink) in loaded.deliveries.items()}
    nodes = {name: prepared(stream.node, sinks[name]) for name, (stream, _) in loaded.deliveries.items()}
    deliveries = {name: _history(node, options) for name, node in nodes.items()}
    if options.only_sql:
        _print_sql({**queries, **deliveries})
        return
    show_outcomes(loaded.outcomes, quiet=options.shown is PrintOptions.jsonl)
    check_places(sinks.values(), new=True)
    _refuse_services(sinks)
    sinks = {name: sink.showing(dates=nodes[name].dates) for name, sink in sinks.items()}
    for name, query in deliveries.items():
        with working(f"{name}: history on {query.engine}"):
            changes = _inserts(query.cht())
        deliver(sinks[name], name, nodes[name].schema, [(changes, Progress(INFINITY))])
    printer = AnswerPrinter(options, several=len(queries) > 1, sql=loaded.session is not None)
    for name, query in queries.items():
        _run_one(name, query, printer)


def _refuse_services(sinks: Mapping[str, Any]) -> None:
    """Refuse adapters: they recognise a batch of a live query by its number, and a history has none."""
    for name, sink in sinks.items():
        if isinstance(sink, SinkAdapter):
            raise PlanError(
                f"a history writes files, and {name} goes to {sink}",
                given="--history",
                allowed="INTO FILE (…), or a live run",
            )


def _history(node: Node, options: Options) -> History:
    settings: dict[str, Any] = {} if options.engine is None else {"engine": options.engine.value}
    if options.late is not None:
        settings["late"] = options.late.value
    return History(node, master=options.master, **settings)


def _print_sql(queries: dict[str, History]) -> None:
    for name, query in queries.items():
        typer.echo(f"-- {name}\n{query.sql()}" if len(queries) > 1 else query.sql(), nl=False)


def _run_one(name: str, query: History, printer: AnswerPrinter) -> None:
    place = printer.place(name)
    with working(f"{name}: history on {query.engine}"):
        if place is not None:
            query.write(place)
        else:
            rows = sorted_history(query.cht())  # an engine gives rows in any order
    if place is not None:
        print_note(f"the history of {name} is in {place}")
    elif printer.output is PrintOptions.cht:
        printer.table(name, rows)
    else:
        printer.events(name, shown(to_physical(_inserts(rows), INFINITY), dates=query.node.dates))


def _inserts(history: pa.Table) -> Changes:
    """A history as changes: one insert per event."""
    return Changes.inserts(*lifetimes(history), history.drop_columns(list(LIFETIME)))
