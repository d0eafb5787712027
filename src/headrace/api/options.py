"""The options that several functions share, each in one place: signatures say `**options: Unpack[RunOptions]`.

Editors and type checkers complete and check such options; `showing` does the same for `help` and notebooks. What a host
accepts is still decided there (`headrace.api.checks.checked_options`), so an unknown option is refused by an error that
names the nearest one. A new option is one line here, and an argument of the hosts that take it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from headrace.host.local.run import Clock
from headrace.optimizer import Rule
from headrace.plan.windows import Clipping, Timestamping
from headrace.time import DurationLike, TimeLike

__all__ = [
    "Consistency", "GeneratorOptions", "Host", "OverOptions", "RunOptions", "StartOptions", "StreamRunOptions",
    "StreamStartOptions", "WindowOptions", "showing",
]  # fmt: skip

Host = Literal["local", "spark"]
Consistency = Literal["speculative", "final"]
F = TypeVar("F", bound=Callable[..., Any])


class StartOptions(TypedDict, total=False):
    """How a query runs that is started, on either host; `master`, `spark`, `spark_checkpoint`, `options`: on Spark."""

    checkpoint: str | None
    """Where the query keeps its state, a directory or a URL; starting again with it continues."""
    buckets: int | None
    """How many parts state is divided into. Default: one in process, one for each core on Spark."""
    files_per_batch: int | None
    """How many files a batch reads at most. Default: `start` has no bound; a `run` with a checkpoint reads one."""
    trigger: str | None
    """How often a batch starts, such as `"10 seconds"`. Default: as soon as there is input."""
    max_trips: int | None
    """How often a loop across buckets goes round in one batch at most. Default: as often as fits in a second."""
    name: str
    """The name of the query, in logs and in Spark's own pages."""
    master: str | None
    """A Spark master or Connect URL. Default: the variable `HEADRACE_MASTER`, else all cores of this machine."""
    spark: Any
    """A `SparkSession` to run beside; its options stay as they are."""
    spark_checkpoint: str | None
    """A directory for Spark's own log, where the checkpoint is on an object store and only Spark can read a source."""
    options: dict[str, str] | None
    """Options of the Spark session that is started."""


class RunOptions(StartOptions, total=False):
    """How a query runs to the end of its inputs; `batch_rows`, `clock` and `rules`: in process, without checkpoint."""

    finish: bool
    """`False` answers what is there and leaves the streams open. Default: `True`."""
    batch_rows: int | None
    """How many rows a batch has at most. Default: each file, or batch of events, is a batch."""
    clock: Clock | None
    """A function that gives the time in ticks, for `heartbeat`."""
    rules: Sequence[Rule]
    """The rules of the optimizer that are applied, in their order. Default: all."""


class StreamStartOptions(StartOptions, total=False):
    """How a stream or a script is started."""

    host: Host
    """`"spark"`, or `"local"` for this process. Default: `"spark"`."""
    consistency: Consistency
    """`"final"` lets only out what nothing can change any more. Default: `"speculative"`."""


class StreamRunOptions(RunOptions, total=False):
    """How a stream or a script is run."""

    host: Host
    """`"local"`, this process, or `"spark"`. Default: `"local"`, or what a script sets."""
    consistency: Consistency
    """`"final"` lets only out what nothing can change any more. Default: `"speculative"`."""


class OverOptions(TypedDict, total=False):
    """How modules are called; `Grouped.over` and `Grouped.window` explain them."""

    on_error: Literal["fail", "skip"]
    """What happens when a module fails. Default: `"fail"`; `"skip"` leaves out that window, and diverts it."""
    verify: bool
    """Call a module twice, to see whether it is deterministic."""
    time_limit: float | None
    """Seconds for each call of a module."""


class WindowOptions(OverOptions, total=False):
    """How modules see windows, and are called."""

    clipping: Clipping
    """What of an event's lifetime a time-sensitive module sees. Default: `"none"`, all of it."""
    timestamping: Timestamping | None
    """Which lifetimes the outputs of a module get."""


class GeneratorOptions(TypedDict, total=False):
    """What generated rows are like; `symbols` to `volatility`: of trades; the rest: of an auction house."""

    start: TimeLike
    """The time of the first row."""
    rate_per_second: float
    """How many rows a second of application time has."""
    disorder: float
    """The share of the rows that arrive out of order."""
    max_delay: DurationLike
    """How late a row comes at most."""
    symbols: int
    """How many symbols are traded."""
    late: float
    """The share of the trades that come later than `max_delay`."""
    lulls: float
    """The share of the time in which nothing is traded."""
    volatility: float
    """How far prices move from trade to trade."""
    hot: float
    """The share of the bids that goes to the few auctions that everybody watches."""
    open_for: DurationLike
    """How long an auction is open."""
    categories: int
    """How many categories auctions have."""


class _Default:
    def __repr__(self) -> str:
        return "..."


def showing(options: type) -> Callable[[F], F]:
    """Make `help` and notebooks show the options of a function by name; `...` stands for their defaults.

    >>> from headrace import run
    >>> list(inspect.signature(run).parameters)[:5]
    ['streams', 'host', 'consistency', 'sinks', 'checkpoint']
    """

    def mark(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        kind, default = inspect.Parameter.KEYWORD_ONLY, _Default()
        shared = [
            inspect.Parameter(name, kind, default=default, annotation=_text(annotation))
            for name, annotation in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        return function

    return mark


def _text(annotation: Any) -> Any:
    """An annotation as it was written."""
    return getattr(annotation, "__forward_arg__", annotation)
