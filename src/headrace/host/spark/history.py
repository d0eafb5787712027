"""Histories in Spark SQL: backfill over stored data, as large as the cluster takes (rule 10.1).

Workers decode files, with the readers of the live query, and every statement is a temporary view, so that Spark plans
all of it as one query. The driver collects only the requested result.

A history runs in a new session beside the given one: views, functions and options of the given session stay as they
are, and its options hold here too.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, timestamp_micros, when
from pyspark.sql.pandas.functions import arrow_udf

from headrace.border import LIFETIME, TimeColumns, refuse_taken
from headrace.history.dialect import Dialect, SparkDialect
from headrace.history.inputs import FILE, ROW, Late
from headrace.history.passed import for_spark, passed_rows, passing
from headrace.history.recurse import run_statement
from headrace.history.script import HistoryFunction, HistoryRelation, HistoryScript
from headrace.history.stored import file_rows, range_rows, stored_ranges, stored_rows
from headrace.history.translate import translate
from headrace.host.spark.failures import explaining, failure
from headrace.host.spark.packing import named_modules
from headrace.host.spark.session import beside
from headrace.host.spark.shipping import may_be_elsewhere, ship_code
from headrace.host.spark.workers import prepare_workers
from headrace.io.adapter import ReadRange
from headrace.io.files import ListedFile
from headrace.io.origins import AdapterRead, Events, Files, FrameRead, SparkRead
from headrace.io.reading import read_columns
from headrace.plan.nodes import Node, Source
from headrace.store.environment import Environment
from headrace.time import INFINITY

__all__ = ["SparkHistory"]

# option, value, reason
_OPTIONS: tuple[tuple[str, str, str], ...] = (
    ("spark.sql.session.timeZone", "UTC", "the translation speaks of UTC"),
    ("spark.sql.ansi.enabled", "true", "arithmetic that overflows must fail, not wrap"),
    ("spark.sql.decimalOperations.allowPrecisionLoss", "false", "a product of decimals keeps all its decimals"),
    ("spark.sql.adaptive.enabled", "true", "a batch query may choose its joins and partitions as it goes"),
    ("spark.sql.execution.arrow.useLargeVarTypes", "false", "as the readers give them"),
)
# A text such as ${env:SECRET} is a text, not the variable that it names, with any options.
_SUBSTITUTE = {"spark.sql.variable.substitute": "false"}
_LOCAL = re.compile(r"local(?:\[(\d+|\*).*)?")
_SHUFFLE = "spark.sql.shuffle.partitions"
#: Partitions of a shuffle for each core of one machine: few, because each costs milliseconds, even if it is empty.
_PER_CORE = 2


class SparkHistory:
    """Runs translated plans in a new session beside a given one; `options` of Spark SQL take precedence."""

    def __init__(self, session: SparkSession, options: Mapping[str, str] | None = None) -> None:
        self.session = beside(session, _options(session, options or {}))
        prepare_workers(self.session)  # with Connect, code belongs to a session

    def cht(self, node: Node, *, late: Late = "decide") -> pa.Table:
        """The history of a plan's output, `le`, `re` and the payload, with times in ticks."""
        schema = pa.schema([("le", pa.int64()), ("re", pa.int64()), *node.schema.arrow])
        with _explained():
            table = self._rows_of(node, late).toArrow()
        return table.rename_columns(schema.names).cast(schema)

    def write(
        self, node: Node, place: str, mode: str, *, late: Late = "decide", time_columns: TimeColumns = LIFETIME
    ) -> None:
        """Write the history as Parquet files."""
        with _explained():
            self.dataframe(node, late=late, time_columns=time_columns).write.mode(mode).parquet(place)

    def dataframe(self, node: Node, *, late: Late = "decide", time_columns: TimeColumns = LIFETIME) -> DataFrame:
        """The history as a data frame, with times as users see them.

        Spark computes it when its rows are used; checks and loops run at once.
        """
        refuse_taken(time_columns, node.schema.names)
        rows = self._rows_of(node, late)
        for name, new in zip(LIFETIME, time_columns, strict=True):
            ticks = rows[name]
            times = when(ticks < INFINITY, timestamp_micros(ticks)) if node.dates else ticks
            rows = rows.withColumn(name, times).withColumnRenamed(name, new)
        return rows

    def _rows_of(self, node: Node, late: Late) -> DataFrame:
        """The history with times in ticks."""
        if may_be_elsewhere(self.session):
            ship_code(self.session, named_modules(node))
        script = self._begun(node, late, orphans=False)
        if self._finds_orphans(script):
            script = self._begun(node, late, orphans=True)
        for statement in script:
            run_statement(statement, _Views(self.session))
        assert script.result is not None
        return self.session.table(script.result.name)

    def _begun(self, node: Node, late: Late, *, orphans: bool) -> HistoryScript:
        """A script whose functions, sources and tables are registered in Spark."""
        dialect = SparkDialect()
        prefix = f"headrace_{secrets.token_hex(4)}_"
        script = translate(node, dialect, late=late, prefix=prefix, orphans=orphans)
        for function in script.functions:
            self._register(function, dialect)
        for name, source in script.sources.items():
            self._rows(source, dialect).createOrReplaceTempView(name)
        for name, table in script.tables.items():
            self.session.createDataFrame(passed_rows(table, for_spark)).createOrReplaceTempView(name)
        return script

    def _register(self, function: HistoryFunction, dialect: Dialect) -> None:
        call = passing(function.call, function.takes, for_spark)
        udf: Any = arrow_udf(_bare(call), dialect.type(function.gives))  # type: ignore[call-overload]
        self.session.udf.register(function.name, udf)

    def _finds_orphans(self, script: HistoryScript) -> bool:
        """Run all checks in one query; a check that finds something runs again, for a row."""
        query = script.failing()
        found = sorted(self.session.sql(query).toArrow().column(0).to_pylist()) if query is not None else []
        for check in (script.checks[number] for number in found):
            if check.error is not None:
                raise check.error(self.session.sql(f"{check.query} LIMIT 1").toArrow().to_pylist()[0])
        return bool(found)

    # --- stored rows -------------------------------------------------------------------------------------------------

    def _rows(self, source: Source, dialect: Dialect) -> DataFrame:
        """The stored rows of a source, with their file and number."""
        origin = source.origin
        if isinstance(origin, (Events, FrameRead)):
            rows = self.session.createDataFrame(passed_rows(stored_rows(source), for_spark))
        elif isinstance(origin, Files):
            # Workers may have another working directory, so relative paths are resolved here.
            found = [(n, f.modified, _absolute(f.path), f.size) for n, f in enumerate(origin.files())]
            listed = "number BIGINT, modified BIGINT, path STRING, size BIGINT"
            files = self.session.createDataFrame(found, listed).repartition(len(found))
            rows = files.mapInArrow(_reader(source, Environment([origin.path])), _stored_columns(source, dialect))
        elif isinstance(origin, AdapterRead):
            parts = [(n, part.partition, part.start, part.end) for n, part in enumerate(stored_ranges(source))]
            listed = "number BIGINT, part STRING, start BIGINT, stop BIGINT"
            ranges = self.session.createDataFrame(parts, listed).repartition(max(1, len(parts)))
            reader = _range_reader(source, Environment(origin.adapter.places))
            rows = ranges.mapInArrow(reader, _stored_columns(source, dialect))
        else:
            assert isinstance(origin, SparkRead)
            rows = self._read(origin, source)
        names = HistoryRelation("", source.columns.payload).columns
        return rows.toDF(*(names.get(name, name) for name in rows.columns))

    def _read(self, origin: SparkRead, source: Source) -> DataFrame:
        reader = self.session.read.format(origin.format).options(**dict(origin.options))
        rows = reader.load(origin.path) if origin.path else reader.load()
        # The order of the rows is unknown; lateness is not decided for such a source.
        named = [rows[origin.stored(name)].alias(name) for name in source.columns.names]
        return rows.select(*named).withColumn(FILE, lit(0)).withColumn(ROW, lit(0))


def _explained() -> AbstractContextManager[None]:
    return explaining(lambda error: failure(error, "the history"))


class _Views:
    """Statements as temporary views; the rounds of a loop are materialized, so that plans do not grow."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def create(self, name: str, query: str, *, keep: bool = False) -> None:
        rows = self.session.sql(query)
        (rows.localCheckpoint() if keep else rows).createOrReplaceTempView(name)

    def finds(self, query: str) -> bool:
        return bool(self.session.sql(f"{query} LIMIT 1").toArrow().num_rows)


def _options(session: SparkSession, options: Mapping[str, str]) -> dict[str, str]:
    """The options of batch queries, and `options`, which take precedence."""
    defaults = {name: value for name, value, _ in _OPTIONS}
    machine = _LOCAL.fullmatch(session.conf.getAll.get("spark.master", ""))
    if machine is not None:
        cores = machine[1] or "1"
        defaults[_SHUFFLE] = str(_PER_CORE * (os.cpu_count() or 1 if cores == "*" else int(cores)))
    return defaults | dict(options) | _SUBSTITUTE


def _bare(call: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """The function without annotations, from which Spark would infer the kind of function."""

    def function(*columns: pa.Array) -> pa.Array:
        return call(*columns)

    function.__annotations__ = {}
    return function


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


def _stored_columns(source: Source, dialect: Dialect) -> str:
    columns = [f"{dialect.quote(name)} {source.columns[name].type.spark}" for name in read_columns(source)]
    return ", ".join([*columns, f"{FILE} BIGINT", f"{ROW} BIGINT"])


def _range_reader(
    source: Source, environment: Environment
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ = environment  # it is part of the function, and is set
        for batch in batches:
            for number, *part in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for rows in range_rows(source, number, ReadRange(*part)):
                    yield from passed_rows(rows, for_spark).to_batches()

    return read


def _reader(source: Source, environment: Environment) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ = environment  # it is part of the function, and is set
        for batch in batches:
            for number, *file in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                for rows in file_rows(source, number, ListedFile(*file)):
                    yield from passed_rows(rows, for_spark).to_batches()

    return read
