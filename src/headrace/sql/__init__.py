"""Headrace SQL, the stream dialect: text to syntax (`parse`), syntax to plans (`bind`), scripts and sessions.

Its modules are loaded with the first text: most Python programs have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import SqlError

if TYPE_CHECKING:
    from headrace.api.stream import Stream
    from headrace.sql.aggregates import SqlAggregate, SqlRows
    from headrace.sql.scripts import Script

__all__ = ["script", "sql", "sql_aggregate"]


def script(
    text: str,
    /,
    *,
    functions: Mapping[str, Any] | None = None,
    base: str | Path = "",
    roots: Sequence[str | Path] | None = None,
    **streams: Any,
) -> Script:
    """Bind a text of statements of the stream dialect; its outputs can then be run, as one query.

    The text can use `streams` by their names; Arrow tables and pandas frames among them are stored tables. A stream
    that the text declares without a source reads the one of its name. `functions` are functions (`hr.udf`) and module
    classes by their names in the text. Relative paths start at `base`; with `roots`, files anywhere else are refused.
    """
    from headrace.sql.scripts import Script  # loaded on first use
    from headrace.sql.session import Answers, Delivery, SqlSession  # same

    if not isinstance(text, str):
        raise SqlError.of("this is not text", "", (0, 0), given=text, allowed="a str of statements")
    session = SqlSession(streams, functions=functions, base=base, roots=roots)
    outcomes = tuple(session.execute(text))
    names: set[str] = set()
    for outcome in outcomes:
        if isinstance(outcome, (Answers, Delivery)):
            if outcome.name in names:
                at = outcome.statement.at
                raise SqlError.of(f"two queries have the name {outcome.name!r}", text, at, instead="QUERY other AS …")
            names.add(outcome.name)
    return Script(session, outcomes)


def sql(
    text: str,
    /,
    *,
    functions: Mapping[str, Any] | None = None,
    base: str | Path = "",
    roots: Sequence[str | Path] | None = None,
    **streams: Any,
) -> Stream:
    """The stream of the last query of a text of the stream dialect; see `script` for the rest.

    `hr.sql("SELECT symbol, avg(price) AS p FROM ticks [TUMBLING 10 s] GROUP BY symbol", ticks=ticks)`
    """
    queries = script(text, functions=functions, base=base, roots=roots, **streams).queries
    if not queries:
        raise SqlError.of(
            "this text has no query",
            text,
            (0, len(text)),
            allowed="a text whose last statement is a query",
            instead="SELECT … at the end, or hr.script(…) for its streams",
        )
    return list(queries.values())[-1]


def sql_aggregate(text: str, /, **tables: Any) -> SqlAggregate | SqlRows:
    """An aggregate written in SQL, as a module: `hr.sql_aggregate("CREATE AGGREGATE f(x DOUBLE): DOUBLE { … }")`.

    Use it like other aggregates: `group_by(…).window(…).aggregate(a=f.of("x"))`; one that returns rows, with `operate`.
    If the text has several, the result is the last, which may call those before it. `source` is its Python code.
    `tables` are the tables that it reads, by name: Arrow tables, pandas frames, or paths to files. Their current rows
    become part of the aggregate.
    """
    from headrace.io.tables import table_of  # loaded on first use
    from headrace.sql.aggregates import modules_of  # as above

    return list(modules_of(text, {name: table_of(table) for name, table in tables.items()}).values())[-1]
