"""Options that several functions share, each defined once: signatures say `**options: Unpack[RunOptions]`.

Editors and type checkers complete and check such options; `shows_options` shows them in `help` and notebooks. Each host
checks the options that it takes (`headrace.api.checks.checked_options`); the error for an unknown option names the
nearest one. A new option is one line here, and an argument of the hosts that take it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from headrace.host.driving.changed import Upgrade
from headrace.host.driving.keeping import RetentionLike
from headrace.host.local.run import Clock
from headrace.metrics.alarms import AlarmRule
from headrace.optimizer import Rule
from headrace.plan.windows import Clipping, Timestamping
from headrace.time import DurationLike, TimeLike

__all__ = [
    "Consistency", "GeneratorOptions", "Host", "OverOptions", "PlotOptions", "RunOptions", "StartOptions",
    "StreamPlotOptions", "StreamRunOptions", "StreamStartOptions", "WindowOptions", "shows_options",
]  # fmt: skip

Host = Literal["local", "spark"]
Consistency = Literal["speculative", "final"]
F = TypeVar("F", bound=Callable[..., Any])


class StartOptions(TypedDict, total=False):
    """Options of a query that is started; `master`, `spark`, `spark_checkpoint`, `options` and `py_files` are for Spark
    only.
    """

    checkpoint: str | None
    """The directory or URL of the query's state; another start with it continues the query."""
    buckets: int | None
    """The number of buckets. Default: one for each core of the cluster on Spark; in process one, or one for each core
    if a run joins or matches rows of large files."""
    rows_per_batch: int | None
    """The most rows that a batch reads from sources with partitions. Default: it adapts, so that a batch takes about
    a second."""
    files_per_batch: int | None
    """The most files that a batch reads. Default: no limit for `start`; one for a `run` with a checkpoint."""
    trigger: str | None
    """How often a batch starts, such as `"10 seconds"`. Default: as soon as there is input."""
    timeout: DurationLike | None
    """How long a started query waits for new rows: after this time without any, its input has ended, every CTI is
    infinite, and it ends with its last answers. Default: for ever."""
    record: DurationLike | None
    """How long batches are kept after they ran, such as `"1 h"`, so that traces can run them again; in the checkpoint.
    Default: the last ones only."""
    metrics_port: int | str | None
    """The port of this machine at which Prometheus reads the metrics of the query, or `"host:port"`; 0 chooses a free
    one, which `query.metrics_url` shows. Default: none."""
    upgrade: Upgrade | None
    """How a changed query continues the checkpoint of an earlier one: `"keep"` continues with the state of operators
    that both have, `"backfill"` computes the new query over the input so far, `"side by side"` does so while the
    old one runs. Default: it is refused."""
    retention: RetentionLike | None
    """What is kept of diverted rows and of received input, such as `{"diverted": "90 days, 1 GB", "spool": "1 h"}`;
    None keeps all of it. Default: diverted rows for 30 days; received lines in the checkpoint until they are read."""
    alarms: Sequence[AlarmRule] | None
    """The rules of the query's alarms, such as `[hr.alarm.lag("5 min", then="fail")]`; an empty list: none. Default:
    `hr.alarm.defaults()`, which log."""
    max_trips: int | None
    """The most trips of a loop across buckets in one batch. Default: as many as fit in a second."""
    name: str
    """The name of the query in logs and in Spark's user interface."""
    master: str | None
    """A Spark master or Connect URL. Default: the variable `HEADRACE_MASTER`, else all cores of this machine."""
    spark: Any
    """A `SparkSession` to run in; its options stay as they are."""
    spark_checkpoint: str | None
    """A directory for Spark's own log: needed if the checkpoint is on an object store and only Spark reads a source."""
    options: dict[str, str] | None
    """Options for the Spark session, where one is started."""
    py_files: Sequence[str]
    """Code that Spark's workers import and do not have: Python files, archives, or directories of packages."""


class RunOptions(StartOptions, total=False):
    """Options of a run to the end of the inputs; `batch_rows`, `clock`, `threads` and `rules`: in process, without
    checkpoint.
    """

    finish: bool
    """`False` processes the rows that are there and leaves the streams open. Default: `True`."""
    batch_rows: int | None
    """The most rows of a batch. Default: each file, or batch of events, is a batch."""
    clock: Clock | None
    """A function that returns the time in ticks, for `heartbeat`."""
    threads: int | None
    """The number of threads, for a run in process without a checkpoint. Default: one for each core."""
    rules: Sequence[Rule]
    """The optimizer's rules to apply, in order. Default: all."""


class StreamStartOptions(StartOptions, total=False):
    """Options of the start of a stream or a script."""

    host: Host
    """`"spark"`, or `"local"` for this process. Default: `"spark"`."""
    consistency: Consistency
    """`"final"` lets only out what nothing can change any more. Default: `"speculative"`."""


class StreamRunOptions(RunOptions, total=False):
    """Options of the run of a stream or a script."""

    host: Host
    """`"spark"`, or `"local"` for this process. Default: the script's `SET host`, else `"local"`."""
    consistency: Consistency
    """`"final"` lets only out what nothing can change any more. Default: `"speculative"`."""


class PlotOptions(TypedDict, total=False):
    """How a timeline looks."""

    start: TimeLike | None
    """The first time to draw. Default: the first start of an event."""
    end: TimeLike | None
    """Where the picture ends. Default: after the last end of an event."""
    rows: int
    """The most rows of events. Default: 40."""
    width: int
    """The width in pixels. Default: 900."""
    title: str
    """The title."""


class StreamPlotOptions(PlotOptions, StreamRunOptions, total=False):
    """Options of the timeline of a stream: how it looks, and how the stream runs."""


class OverOptions(TypedDict, total=False):
    """Options for calls of modules; `Grouped.over` and `Grouped.window` explain them."""

    on_error: Literal["fail", "skip"]
    """What a failure of a module does: `"fail"`, the default, or `"skip"`, which diverts the window."""
    verify: bool
    """Call modules twice, to check that they are deterministic."""
    time_limit: float | None
    """The most seconds that a call of a module may take."""


class WindowOptions(OverOptions, total=False):
    """Options for modules in windows."""

    clipping: Clipping
    """How lifetimes are clipped to the window before a time-sensitive module sees them. Default: `"none"`."""
    timestamping: Timestamping | None
    """The lifetimes of a module's outputs."""


class GeneratorOptions(TypedDict, total=False):
    """Properties of generated rows; `symbols` to `volatility` are for trades, the later ones for the auction house."""

    start: TimeLike
    """The time of the first row."""
    rate_per_second: float
    """The rows per second of application time."""
    disorder: float
    """The share of the rows that arrive out of order."""
    max_delay: DurationLike
    """The largest delay of a row."""
    symbols: int
    """The number of symbols."""
    late: float
    """The share of the trades that arrive later than `max_delay`."""
    lulls: float
    """The share of the time without trades."""
    volatility: float
    """The size of price moves from trade to trade."""
    hot: float
    """The share of the bids that go to a few popular auctions."""
    open_for: DurationLike
    """How long an auction is open."""
    categories: int
    """The number of categories of auctions."""


class _Default:
    def __repr__(self) -> str:
        return "..."


def shows_options(options: type) -> Callable[[F], F]:
    """Make `help` and notebooks show the options of a function by name; `...` stands for their defaults.

    >>> from headrace import run
    >>> list(inspect.signature(run).parameters)[:5]
    ['streams', 'host', 'consistency', 'sinks', 'checkpoint']
    """

    def mark(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        kind, default = inspect.Parameter.KEYWORD_ONLY, _Default()
        shared = [
            inspect.Parameter(name, kind, default=default, annotation=_text(annotation))
            for name, annotation in options.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        return function

    return mark


def _text(annotation: Any) -> Any:
    """The source text of an annotation."""
    return getattr(annotation, "__forward_arg__", annotation)
