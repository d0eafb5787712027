"""Run queries live, to the end of their inputs or until they are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.api.history import check_new, write_parquet
from headrace.api.running import Run, run_quietly, start_all
from headrace.api.stream import Stream
from headrace.border import shown
from headrace.changes import Changes
from headrace.cli.loading import LoadedQuery, endless, folder_of
from headrace.cli.run.options import HostName, Options, PrintOptions
from headrace.cli.run.printing import AnswerPrinter, log_shown, print_note, show_outcomes, sorted_history
from headrace.errors import PlanError
from headrace.events import to_physical
from headrace.io.console import close, show_batch
from headrace.io.sinks import Console, Encoding, FunctionSink
from headrace.meter import working
from headrace.progress import Progress
from headrace.time import NEG_INFINITY

if TYPE_CHECKING:
    from headrace.sql.outcomes import Answers

__all__ = ["run_live"]


def run_live(loaded: LoadedQuery, options: Options) -> None:
    """Run all outputs as one query."""
    show_outcomes(loaded.outcomes, quiet=options.shown is PrintOptions.jsonl)
    if not loaded.queries and not loaded.deliveries:
        raise PlanError(
            "this script has no query",
            given=loaded.name,
            allowed="a script with a query or an INSERT INTO; or FILE.sql:NAME for a stream of it",
            instead="SELECT …, or INSERT INTO FILE ('out') SELECT …",
        )
    follows = options.follow or (options.host is HostName.spark and _never_ends(loaded))
    with log_shown(losses=follows):  # at the end of a run they are printed with all that were lost
        (_follow if follows else _to_the_end)(loaded, options)


def _never_ends(loaded: LoadedQuery) -> bool:
    return bool(endless([*loaded.queries.values(), *(stream for stream, _ in loaded.deliveries.values())]))


def _settings(loaded: LoadedQuery, options: Options) -> dict[str, Any]:
    assert options.host is not None
    host = options.host.value
    settings: dict[str, Any] = loaded.session.options(host) if loaded.session is not None else {"host": host}
    if options.host is HostName.spark or options.follow or options.checkpoint is not None:
        settings.pop("batch_rows", None)
        settings["name"] = options.name
        if options.metrics_port is not None:
            settings["metrics_port"] = options.metrics_port
        if options.master is not None:
            settings["master"] = options.master
        if options.checkpoint is not None:
            settings["record"] = options.record
            settings["upgrade"] = None if options.upgrade is None else options.upgrade.value.replace("-", " ")
            settings["checkpoint"] = f"{options.checkpoint.rstrip('/')}/{folder_of(str(options.name))}"
    return settings


# --- to the end of the inputs ----------------------------------------------------------------------------------------


def _to_the_end(loaded: LoadedQuery, options: Options) -> None:
    printer = AnswerPrinter(options, several=len(loaded.queries) > 1, sql=loaded.session is not None)
    for name in loaded.queries:
        place = printer.place(name)
        if place is not None:
            check_new(place)
    settings = _settings(loaded, options)
    if options.checkpoint is not None:  # the next run continues from the checkpoint
        settings["finish"] = False
    peeks = _peeks(loaded, options)
    streams = {name: _as_printed(stream, options) for name, stream in loaded.queries.items()}
    streams |= {name: query.shown for name, query in peeks.items()}
    streams |= {name: stream for name, (stream, _) in loaded.deliveries.items()}
    sinks = {name: sink for name, (_, sink) in loaded.deliveries.items()}
    with working(f"{loaded.name}: live on {settings['host']}"):
        run = run_quietly(streams, sinks=sinks, **settings)
    for name in loaded.queries:
        if name in peeks:
            printer.table(name, peeks[name].rows(run.results[name]))
        else:
            _print(name, run, printer)
    _print_losses(run, settings.get("checkpoint"))


def _peeks(loaded: LoadedQuery, options: Options) -> dict[str, Answers]:
    """The queries over tables alone, of which the rows that hold now are printed, as in the shell."""
    if loaded.session is None or options.shown is not PrintOptions.cht or options.to or options.checkpoint:
        return {}
    from headrace.sql.outcomes import Answers  # start-up: only scripts need it

    return {one.name: one for one in loaded.outcomes if isinstance(one, Answers) and one.relation}


def _as_printed(stream: Stream, options: Options) -> Stream:
    return stream.final() if options.shown is PrintOptions.final else stream


def _print_losses(run: Run, checkpoint: str | None) -> None:
    if run.lost:
        print_note(run.losses())
        if checkpoint is not None:
            print_note(f"diverted rows are in {checkpoint}/diverted")


def _print(name: str, run: Run, printer: AnswerPrinter) -> None:
    place = printer.place(name)
    if place is not None:
        write_parquet(run.cht(name), place)
        print_note(f"the history of {name} is in {place}")
    elif printer.output is PrintOptions.cht:
        printer.table(name, sorted_history(run.cht(name)))
    else:
        printer.events(name, run.events(name))


# --- until it is stopped ---------------------------------------------------------------------------------------------


def _follow(loaded: LoadedQuery, options: Options) -> None:
    printer = AnswerPrinter(options, several=len(loaded.queries) > 1, sql=loaded.session is not None)
    settings = _settings(loaded, options) | (loaded.session.waits if loaded.session is not None else {})
    encoding: Encoding = "final" if options.shown is PrintOptions.final else "events"
    sql = loaded.session is not None
    screens = {
        name: Console(encoding, sql=sql).showing(dates=stream.node.dates) for name, stream in loaded.queries.items()
    }
    pairs: list[Any] = [(stream, _sink(name, screens[name], printer)) for name, stream in loaded.queries.items()]
    pairs += loaded.deliveries.values()
    with working(f"{loaded.name}: starting on {settings['host']}"):
        query = start_all(pairs, **settings)
    shown = f"; its metrics are at {query.metrics_url}" if query.metrics_url is not None else ""
    print_note(f"{loaded.name} runs until Ctrl-C{shown}")
    try:
        query.await_termination()
        timeout = settings.get("timeout")
        print_note(f"{loaded.name} has ended" + (f": there were no new rows for {timeout}" if timeout else ""))
        query.stop()
    except KeyboardInterrupt:
        kept = f"; its checkpoint is {settings['checkpoint']}" if "checkpoint" in settings else ""
        print_note(f"{loaded.name} was stopped{kept}")
    finally:
        for screen in screens.values():
            close(screen)


def _sink(name: str, screen: Console, printer: AnswerPrinter) -> FunctionSink:
    """A sink that shows or prints every batch of a query as it arrives."""
    in_lines = printer.output is PrintOptions.jsonl
    take = _event_printer(name, printer, dates=screen.dates) if in_lines else _batch_display(name, screen)
    return FunctionSink(screen.encoding, (), take)


def _batch_display(name: str, screen: Console) -> Callable[[int, Changes, Progress], None]:
    return lambda number, changes, progress: show_batch(screen, name, number, changes, progress)


def _event_printer(name: str, printer: AnswerPrinter, *, dates: bool) -> Callable[[int, Changes, Progress], None]:
    last_cti = NEG_INFINITY

    def print_events(_: int, changes: Changes, progress: Progress) -> None:
        nonlocal last_cti
        events = to_physical(changes, progress.cti if progress.cti > last_cti else None)
        printer.events(name, shown(events, dates=dates))
        last_cti = max(last_cti, progress.cti)

    return print_events
