"""Headrace: a temporal stream system for PySpark. Answers come early and are corrected.

"Rule 3.5" in a docstring is a rule of `docs/semantics.md`; `docs/glossary.md` explains the words.
"""

import logging as _logging
from importlib import import_module as _import_module
from typing import Any as _Any

from headrace.api.alarm import alarm
from headrace.api.checkpoint import checkpoint
from headrace.api.frames import from_arrow, from_pandas, from_polars, read_spark
from headrace.api.hosts import read_host
from headrace.api.inputs import (
    advance,
    by_arrival,
    edge,
    events,
    explicit,
    generated,
    heartbeat,
    interval,
    ordered,
    physical,
    point,
    read_csv,
    read_events,
    read_json,
    read_parquet,
    read_source,
)
from headrace.api.keyed_changes import read_changes
from headrace.api.lake import delta_lake, delta_table, read_delta
from headrace.api.materialized import MaterializedView, materialized
from headrace.api.outputs import console, files, foreach_batch, memory, sink
from headrace.api.recurse import recurse
from headrace.api.running import Run, run, start_all
from headrace.api.services import kafka, kafka_topics, postgres, postgres_table, read_kafka, read_postgres
from headrace.api.stream import Stream
from headrace.api.tables import Table, table
from headrace.api.tracing import trace_checkpoint
from headrace.api.windows import (
    arrival,
    by,
    count_by_end,
    count_by_start,
    delta,
    fixed,
    hopping,
    landmark,
    session,
    sliding,
    snapshot,
    tumbling,
)
from headrace.elsewhere import PACKAGE as _PACKAGE
from headrace.errors import HeadraceError, RowsNotUsed
from headrace.errors import UnknownMethod as _UnknownMethod
from headrace.events import history_diff, same_history
from headrace.expr import (
    approx_distinct,
    array,
    avg,
    coalesce,
    col,
    collect,
    count,
    distinct_count,
    first,
    geometric_mean,
    greatest,
    last,
    least,
    lit,
    max,
    median,
    min,
    percentile_disc,
    quantile,
    stddev,
    struct,
    sum,
    top_frequent,
    udf,
    var,
    when,
)
from headrace.expr.in_order import concat
from headrace.expr.ordered_calls import (
    dense_rank,
    first_value,
    lag,
    last_value,
    lead,
    nth_value,
    rank,
    row_number,
)
from headrace.expr.times import end, start, window_end, window_start
from headrace.io.values import ValueFormat
from headrace.modules import Aggregate, IncrementalAggregate, IncrementalOperator, Operator
from headrace.modules.builtin import time_weighted_avg
from headrace.modules.registry import module, modules
from headrace.patterns import classifier, final, match_number, next, offset, pattern, prev, state
from headrace.schema import Schema, Type
from headrace.server.client import connect
from headrace.sql import script, sql, sql_aggregate
from headrace.time import INFINITY, NEG_INFINITY
from headrace.version import VERSION as _VERSION

__version__ = _VERSION


def __getattr__(name: str) -> _Any:
    # Loaded when they are asked for: most programs never do.
    if name == "testing":
        return _import_module("headrace.testing")
    if name == "load_ipython_extension":  # `%load_ext headrace`
        return _import_module("headrace.notebook").load_ipython_extension
    if name.startswith("_"):
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    raise _UnknownMethod.of(name, "hr", __all__, _PACKAGE)


# What a query logs is shown to those who ask for it, as is usual for a library.
_logging.getLogger(__name__).addHandler(_logging.NullHandler())

__all__ = [
    "INFINITY",
    "NEG_INFINITY",
    "Aggregate",
    "HeadraceError",
    "IncrementalAggregate",
    "IncrementalOperator",
    "MaterializedView",
    "Operator",
    "RowsNotUsed",
    "Run",
    "Schema",
    "Stream",
    "Table",
    "Type",
    "ValueFormat",
    "advance",
    "alarm",
    "approx_distinct",
    "array",
    "arrival",
    "avg",
    "by",
    "by_arrival",
    "checkpoint",
    "classifier",
    "coalesce",
    "col",
    "collect",
    "concat",
    "connect",
    "console",
    "count",
    "count_by_end",
    "count_by_start",
    "delta",
    "delta_lake",
    "delta_table",
    "dense_rank",
    "distinct_count",
    "edge",
    "end",
    "events",
    "explicit",
    "files",
    "final",
    "first",
    "first_value",
    "fixed",
    "foreach_batch",
    "from_arrow",
    "from_pandas",
    "from_polars",
    "generated",
    "geometric_mean",
    "greatest",
    "heartbeat",
    "history_diff",
    "hopping",
    "interval",
    "kafka",
    "kafka_topics",
    "lag",
    "landmark",
    "last",
    "last_value",
    "lead",
    "least",
    "lit",
    "match_number",
    "materialized",
    "max",
    "median",
    "memory",
    "min",
    "module",
    "modules",
    "next",
    "nth_value",
    "offset",
    "ordered",
    "pattern",
    "percentile_disc",
    "physical",
    "point",
    "postgres",
    "postgres_table",
    "prev",
    "quantile",
    "rank",
    "read_changes",
    "read_csv",
    "read_delta",
    "read_events",
    "read_host",
    "read_json",
    "read_kafka",
    "read_parquet",
    "read_postgres",
    "read_source",
    "read_spark",
    "recurse",
    "row_number",
    "run",
    "same_history",
    "script",
    "session",
    "sink",
    "sliding",
    "snapshot",
    "sql",
    "sql_aggregate",
    "start",
    "start_all",
    "state",
    "stddev",
    "struct",
    "sum",
    "table",
    "time_weighted_avg",
    "top_frequent",
    "trace_checkpoint",
    "tumbling",
    "udf",
    "var",
    "when",
    "window_end",
    "window_start",
]
