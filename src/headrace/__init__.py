"""Headrace: a temporal stream system for PySpark. Answers come early and are corrected."""

from headrace.api.inputs import (
    advance,
    edge,
    events,
    explicit,
    heartbeat,
    interval,
    ordered,
    point,
    read_csv,
    read_events,
    read_json,
    read_parquet,
    read_spark,
)
from headrace.api.outputs import console, files, memory
from headrace.api.running import Run, run, start
from headrace.api.stream import Stream
from headrace.api.windows import hopping, tumbling
from headrace.errors import HeadraceError
from headrace.events import history_diff, same_history
from headrace.expr import avg, case, coalesce, col, count, first, last, lit, max, min, stddev, sum, var
from headrace.schema import Schema, Type
from headrace.time import INFINITY, NEG_INFINITY

__version__ = "0.1.0"

__all__ = [
    "INFINITY",
    "NEG_INFINITY",
    "HeadraceError",
    "Run",
    "Schema",
    "Stream",
    "Type",
    "advance",
    "avg",
    "case",
    "coalesce",
    "col",
    "console",
    "count",
    "edge",
    "events",
    "explicit",
    "files",
    "first",
    "heartbeat",
    "history_diff",
    "hopping",
    "interval",
    "last",
    "lit",
    "max",
    "memory",
    "min",
    "ordered",
    "point",
    "read_csv",
    "read_events",
    "read_json",
    "read_parquet",
    "read_spark",
    "run",
    "same_history",
    "start",
    "stddev",
    "sum",
    "tumbling",
    "var",
]
