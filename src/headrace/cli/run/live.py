"""Running what is asked live: to the end of its inputs, or until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.api.history import check_new, write_parquet
from headrace.api.running import Run, run_quietly, start
from headrace.api.stream import Stream
from headrace.changes import Changes
from headrace.cli.loading import LoadedQuery, endless, folder_of
from headrace.cli.run.options import HostName, Options, PrintOptions
from headrace.cli.run.printing import AnswerPrinter, busy, say, show_outcomes, sorted_history
from headrace.errors import PlanError
from headrace.events import to_physical
from headrace.io.console import close, show_batch
from headrace.io.sinks import Console, FunctionSink
from headrace.progress import Progress
from headrace.time import NEG_INFINITY

__all__ = ["run_live"]


def run_live(asked: LoadedQuery, options: Options) -> None:
    """Run everything as one query."""
    show_outcomes(asked.outcomes, quiet=options.shown is PrintOptions.jsonl)
    if not asked.queries and not asked.deliveries:
        raise PlanError(
            "this script asks nothing",
            given=asked.name,
            allowed="a script with a query or an INSERT INTO; or FILE.sql:NAME for a stream of it",
            instead="SELECT …, or INSERT INTO FILE ('out') SELECT …",
        )
    if options.follow or (options.host is HostName.spark and _never_ends(asked)):
        _follow(asked, options)
    else:
        _to_the_end(asked, options)


def _never_ends(asked: LoadedQuery) -> bool:
    return bool(endless([*asked.queries.values(), *(stream for stream, _ in asked.deliveries.values())]))


def _settings(asked: LoadedQuery, options: Options) -> dict[str, Any]:
    assert options.host is not None
    host = options.host.value
    found: dict[str, Any] = asked.session.options(host) if asked.session is not None else {"host": host}
    if options.host is HostName.spark or options.follow or options.checkpoint is not None:
        found.pop("batch_rows", None)
        found["name"] = options.name
        if options.master is not None:
            found["master"] = options.master
        if options.checkpoint is not None:
            found["checkpoint"] = f"{options.checkpoint.rstrip('/')}/{folder_of(str(options.name))}"
    return found


# --- to the end of the inputs ----------------------------------------------------------------------------------------


def _to_the_end(asked: LoadedQuery, options: Options) -> None:
    printer = AnswerPrinter(options, several=len(asked.queries) > 1)
    for name in asked.queries:
        place = printer.place(name)
        if place is not None:
            check_new(place)
    settings = _settings(asked, options)
    if options.checkpoint is not None:  # it goes on from there another time
        settings["finish"] = False
    streams = {name: _wanted(stream, options) for name, stream in asked.queries.items()}
    streams |= {name: stream for name, (stream, _) in asked.deliveries.items()}
    sinks = {name: sink for name, (_, sink) in asked.deliveries.items()}
    with busy(f"{asked.name}: live on {settings['host']}"):
        done = run_quietly(streams, sinks=sinks, **settings)
    for name in asked.queries:
        _print(name, done, printer)
    _tell_losses(done, settings.get("checkpoint"))


def _wanted(stream: Stream, options: Options) -> Stream:
    return stream.final() if options.shown is PrintOptions.final else stream


def _tell_losses(done: Run, checkpoint: str | None) -> None:
    if done.lost:
        say(done.losses())
        if checkpoint is not None:
            say(f"diverted rows are in {checkpoint}/diverted")


def _print(name: str, done: Run, printer: AnswerPrinter) -> None:
    place = printer.place(name)
    if place is not None:
        write_parquet(done.cht(name), place)
        say(f"the history of {name} is in {place}")
    elif printer.output is PrintOptions.cht:
        printer.table(name, sorted_history(done.cht(name)))
    else:
        printer.events(name, done.events(name))


# --- until it is stopped ---------------------------------------------------------------------------------------------


def _follow(asked: LoadedQuery, options: Options) -> None:
    printer = AnswerPrinter(options, several=len(asked.queries) > 1)
    settings = _settings(asked, options)
    screen = Console("final" if options.shown is PrintOptions.final else "events")
    pairs = [(stream, _sink(name, screen, printer)) for name, stream in asked.queries.items()]
    pairs += asked.deliveries.values()
    with busy(f"{asked.name}: starting on {settings['host']}"):
        query = start(pairs, **settings)
    say(f"{asked.name} runs until Ctrl-C")
    try:
        query.await_termination()
    except KeyboardInterrupt:
        kept = f"; its checkpoint is {settings['checkpoint']}" if "checkpoint" in settings else ""
        say(f"{asked.name} was stopped{kept}")
    finally:
        close(screen)


def _sink(name: str, screen: Console, printer: AnswerPrinter) -> FunctionSink:
    """Shows or prints every batch of a query as it comes."""
    take = _printing(name, printer) if printer.output is PrintOptions.jsonl else _showing(name, screen)
    return FunctionSink(screen.encoding, (), take)


def _showing(name: str, screen: Console) -> Callable[[int, Changes, Progress], None]:
    return lambda number, changes, progress: show_batch(screen, name, number, changes, progress)


def _printing(name: str, printer: AnswerPrinter) -> Callable[[int, Changes, Progress], None]:
    reached = NEG_INFINITY

    def take(_: int, changes: Changes, progress: Progress) -> None:
        nonlocal reached
        printer.events(name, to_physical(changes, progress.cti if progress.cti > reached else None))
        reached = max(reached, progress.cti)

    return take
