"""Compute histories in DuckDB: in process, for tests and for data that fits in memory."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Any

import pyarrow as pa

from headrace.history.dialect import DuckDBDialect
from headrace.history.inputs import Late
from headrace.history.passed import for_duckdb, passed_rows, passing
from headrace.history.recurse import run_statement
from headrace.history.script import HistoryFunction, HistoryRelation, HistoryScript
from headrace.history.stored import stored_rows
from headrace.history.translate import translate
from headrace.plan.nodes import Node

__all__ = ["DuckDBHistory"]


class DuckDBHistory:
    """A connection that runs any number of translated plans."""

    def __init__(self) -> None:
        import duckdb  # loaded when a history is needed: most programs need none

        self._types = duckdb
        self._connection: Any = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        """Close the connection and free its memory."""
        self._connection.close()

    def cht(self, node: Node, *, late: Late = "decide") -> pa.Table:
        """The history of a plan's output: `le`, `re` and the payload."""
        return self._run(node, late, orphans=False)

    def _run(self, node: Node, late: Late, *, orphans: bool) -> pa.Table:
        dialect = DuckDBDialect()
        script = translate(node, dialect, late=late, orphans=orphans)
        cursor = self._connection.cursor()  # temporary tables end with it
        registered: list[str] = []
        failures: list[Exception] = []
        try:
            for function in script.functions:
                self._register(cursor, function, dialect, failures)
                registered.append(function.name)
            _load(cursor, script)
            for check in script.checks:
                for row in _records(cursor, f"{check.query} LIMIT 1"):
                    if check.error is None:
                        return self._run(node, late, orphans=True)
                    raise check.error(row)
            for statement in script:
                run_statement(statement, _Tables(cursor))
            assert script.result is not None
            return _table(cursor, script.result)
        except self._types.Error as error:
            raise next(iter(failures), error) from error
        finally:
            for name in registered:
                cursor.remove_function(name)
            cursor.close()

    def _register(
        self, cursor: Any, function: HistoryFunction, dialect: DuckDBDialect, failures: list[Exception]
    ) -> None:
        kinds = [self._types.type(dialect.type(kind)) for kind in function.takes]
        gives = self._types.type(dialect.type(function.gives))
        compute = passing(function.call, function.takes, for_duckdb)

        def call(*columns: Any) -> pa.Array:
            try:
                return compute(*columns)
            except Exception as error:
                failures.append(error)  # DuckDB would turn it into text
                raise

        # DuckDB inspects the function for its number of arguments.
        places = [Parameter(f"a{i}", Parameter.POSITIONAL_ONLY) for i in range(len(function.takes))]
        call.__signature__ = Signature(places)  # type: ignore[attr-defined]
        cursor.create_function(function.name, call, kinds, gives, type="arrow", null_handling="special")


class _Tables:
    """Statements as temporary tables."""

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor

    def create(self, name: str, query: str, *, keep: bool = False) -> None:  # noqa: ARG002 - a table is kept
        self.cursor.execute(f"CREATE OR REPLACE TEMPORARY TABLE {name} AS {query}")

    def finds(self, query: str) -> bool:
        return bool(self.cursor.execute(f"{query} LIMIT 1").fetchall())


def _load(cursor: Any, script: HistoryScript) -> None:
    for name, source in script.sources.items():
        columns = HistoryRelation(name, source.columns.payload).columns
        rows = stored_rows(source)
        named = rows.rename_columns([columns.get(column, column) for column in rows.column_names])
        cursor.register(name, passed_rows(named, for_duckdb))
    for name, table in script.tables.items():
        cursor.register(name, passed_rows(table, for_duckdb))


def _records(cursor: Any, query: str) -> Iterator[dict[str, Any]]:
    result = cursor.execute(query)
    names = [column[0] for column in result.description]
    yield from (dict(zip(names, row, strict=True)) for row in result.fetchall())


def _table(cursor: Any, relation: HistoryRelation) -> pa.Table:
    found = cursor.table(relation.name).to_arrow_table()
    schema = pa.schema([("le", pa.int64()), ("re", pa.int64()), *relation.schema.arrow])
    return found.rename_columns(schema.names).cast(schema)
