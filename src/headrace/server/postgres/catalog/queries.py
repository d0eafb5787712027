"""Queries over PostgreSQL's catalog, answered by a DuckDB in memory that has these tables and nothing else.

DuckDB never sees a client's text: sqlglot parses it as PostgreSQL's, every table and function in it must be one that
this way in knows, and the tree is printed again. DuckDB itself may open no file, load nothing, and change no setting.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import HeadraceError
from headrace.server.interface import Connection, RowsReply
from headrace.server.postgres.catalog.functions import KNOWN, MACROS, NO_PARENTHESES, PLAIN, SCHEMA, macro_statements
from headrace.server.postgres.catalog.tables import TABLES, CatalogRelation, catalog_maps, catalog_rows, columns_of
from headrace.server.postgres.columns import wire_columns
from headrace.server.postgres.lexing import Lexeme, StatementText
from headrace.server.postgres.settings import ClientSettings
from headrace.server.postgres.states import StatementRefused

__all__ = ["CatalogQueries"]

_SCHEMAS = ("pg_catalog", "information_schema")
#: What is listed, and the kind of each for PostgreSQL; streams are tables there.
_LISTED = (("SHOW TABLES", "r"), ("SHOW STREAMS", "r"), ("SHOW VIEWS", "v"), ("SHOW QUERIES", "m"))
_OPERATOR = re.compile(r"OPERATOR\s*\(\s*(?:pg_catalog\s*\.\s*)?([^)\s]+)\s*\)", re.IGNORECASE)
_COLLATE = re.compile(r'COLLATE\s+(?:pg_catalog\s*\.\s*)?"?default"?', re.IGNORECASE)
_MEMORY, _SECONDS = "256MB", 10.0
#: Maps that functions look into, see `catalog_maps`.
_MAPS = {
    "class_names": "MAP(BIGINT, VARCHAR)", "class_oids": "MAP(VARCHAR, BIGINT)", "type_oids": "MAP(VARCHAR, BIGINT)",
    "keys": "MAP(BIGINT, VARCHAR)", "indexes": "MAP(BIGINT, VARCHAR)", "key_columns": "MAP(VARCHAR, VARCHAR)",
    "views": "MAP(BIGINT, VARCHAR)", "settings": "MAP(VARCHAR, VARCHAR)",
}  # fmt: skip


class CatalogQueries:
    """The queries of one connection over the catalog."""

    def __init__(
        self, connection: Connection, settings: ClientSettings, database: str, cursors: Callable[[], Sequence[str]]
    ) -> None:
        self._connection, self._settings, self._database, self._cursors = connection, settings, database, cursors
        self._known: tuple[tuple[Any, ...], tuple[CatalogRelation, ...]] = ((), ())
        self._fresh_until = 0.0
        self._opened = self._running = False
        #: What the tables hold.
        self._filled: dict[str, pa.Table] = {}
        self._variables: dict[str, dict[Any, Any]] = {}

    def answers(self, statement: StatementText) -> bool:
        """Whether a statement is a query over the catalog, or of functions about the connection."""
        if not statement.words or statement.words[0] not in ("select", "with", "values", "table", "("):
            return False
        own = statement.lexemes
        rest = (*own[1:], Lexeme("sign", "", 0, 0))
        from_less = not any(one.kind == "name" and one.text == "from" for one in own)
        return any(_asks(one, after, from_less) for one, after in zip(own, rest, strict=True))

    def rows(self, statement: StatementText) -> pa.Table:
        """The answer."""
        text = _rewritten(statement)
        relations = self._relations()
        user = self._settings.values["session_authorization"]
        for name, table in catalog_rows(
            relations, self._database, user, self._settings.values, self._cursors()
        ).items():
            if table.num_rows or name in self._filled:
                self._fill(name, table)
        for name, values in catalog_maps(relations, self._settings.values).items():
            self._set(name, values)
        timer = threading.Timer(_SECONDS, self.interrupt)
        timer.daemon = True
        timer.start()
        self._running = True
        try:
            return self._duckdb.sql(text).to_arrow_table()
        except (duckdb.Error, RuntimeError) as error:
            raise _not_answered(str(error).partition("\n")[0]) from error
        finally:
            self._running = False
            timer.cancel()

    def _fill(self, name: str, table: pa.Table) -> None:
        if name in self._filled and self._filled[name].equals(table):
            return
        self._duckdb.register("_given", table)
        self._duckdb.execute(f"DELETE FROM {SCHEMA}.{name}")
        self._duckdb.execute(f"INSERT INTO {SCHEMA}.{name} SELECT * FROM _given")
        self._duckdb.unregister("_given")
        self._filled[name] = table

    def _set(self, name: str, values: dict[Any, Any]) -> None:
        if self._variables.get(name) != values:
            statement = f"SET VARIABLE hr_{name} = CAST(map(?, ?) AS {_MAPS[name]})"
            self._duckdb.execute(statement, [list(values), list(values.values())])
            self._variables[name] = values

    def interrupt(self) -> None:
        """Interrupt a query that runs, from another thread."""
        if self._running:
            self._duckdb.interrupt()

    def close(self) -> None:
        if self._opened:
            self._duckdb.close()

    @cached_property
    def _duckdb(self) -> duckdb.DuckDBPyConnection:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": "1", "memory_limit": _MEMORY, "enable_external_access": "false", "temp_directory": "",
            "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
        }  # fmt: skip
        found = duckdb.connect(":memory:", config=settings)
        found.execute(f"CREATE SCHEMA {SCHEMA}")
        for name, value in (
            ("hr_user", self._settings.values["session_authorization"]), ("hr_database", self._database),
            ("hr_process", 1),
        ):  # fmt: skip
            found.execute(f"SET VARIABLE {name} = ?", [value])
        for name in TABLES:
            columns = ", ".join(f'"{column}" {kind}' for column, kind in columns_of(name))
            found.execute(f"CREATE TABLE {SCHEMA}.{name} ({columns})")
        for name, kind in _MAPS.items():
            found.execute(f"SET VARIABLE hr_{name} = CAST(map_from_entries([]) AS {kind})")
        for statement in macro_statements():
            found.execute(statement)
        found.execute("SET lock_configuration = true")
        self._opened = True
        return found

    # --- what there is -----------------------------------------------------------------------------------------------

    def _relations(self) -> tuple[CatalogRelation, ...]:
        """What exists on the server.

        Clients ask several queries at once, so it is looked up once for all that come within a second, unless this
        connection has changed something; columns only if the lists have changed.
        """
        if self._known[0] and time.monotonic() < self._fresh_until:
            return self._known[1]
        listed = {text: self._shown(text) for text, _ in _LISTED}
        state = tuple((text, row) for text, rows in listed.items() for row in rows)
        if state != self._known[0]:
            found: dict[str, CatalogRelation] = {}
            for text, kind in _LISTED:
                for row in listed[text]:
                    relation = self._relation(
                        str(row[0]), "m" if any("materialized" in str(part) for part in row[1:2]) else kind
                    )
                    if relation is not None:
                        found.setdefault(relation.name, relation)
            self._known = (state, tuple(found.values()))
        self._fresh_until = time.monotonic() + 1
        return self._known[1]

    def forget(self) -> None:
        """Look again: the connection may have changed something."""
        self._fresh_until = 0.0

    def _shown(self, text: str) -> list[tuple[Any, ...]]:
        try:
            for reply in self._connection.look_up(text):
                if isinstance(reply, RowsReply):
                    return [tuple(row.values()) for row in reply.table.to_pylist()]
        except HeadraceError:
            pass  # a client that may not see them, sees none
        return []

    def _relation(self, name: str, kind: str) -> CatalogRelation | None:
        quoted = '"' + name.replace('"', '""') + '"'
        try:
            schema = self._connection.columns(f"SELECT * FROM {quoted}", guess=True)
        except HeadraceError:
            return None  # a query that is stopped, a stream without a source: nothing can be selected from it
        if schema is None:
            return None
        rules = {str(row[0]): str(row[2]) for row in self._shown(f"DESCRIBE {quoted}") if len(row) > 2}
        key = tuple(column for column, rule in rules.items() if "PRIMARY KEY" in rule)
        required = frozenset(column for column, rule in rules.items() if "PRIMARY KEY" in rule or "NOT NULL" in rule)
        made = [str(row[0]) for row in self._shown(f"SHOW CREATE {quoted}")] if kind in "mv" else []
        text = "\n".join(made).partition(" AS\n")[2]
        return CatalogRelation(name, kind, tuple(wire_columns(schema)), key, required, text)


def _asks(one: Lexeme, after: Lexeme, from_less: bool) -> bool:
    if one.kind not in ("name", "quoted"):
        return False
    if after.text == "." and one.text in _SCHEMAS:
        return True
    if after.text == "(":
        return one.text in MACROS
    if one.text.startswith("pg_") and one.text in TABLES:
        return True
    return from_less and one.text in NO_PARENTHESES and one.kind == "name"


def _not_answered(why: str) -> StatementRefused:
    return StatementRefused(
        f"this query over PostgreSQL's catalog cannot be answered: {why}", "0A000",
        allowed="SELECT over tables of pg_catalog and information_schema",
        instead="SHOW TABLES, SHOW STREAMS, DESCRIBE x",
    )  # fmt: skip


# --- rewriting -------------------------------------------------------------------------------------------------------


def _rewritten(statement: StatementText) -> str:
    """A query of a client as one of DuckDB."""
    text = _COLLATE.sub("", _OPERATOR.sub(r" \1 ", _without_schema(statement)))
    try:
        tree = sqlglot.parse_one(text, read="postgres")
    except (SqlglotError, RecursionError) as error:
        raise _not_answered("it cannot be parsed") from error
    if not isinstance(tree, (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)):
        raise _not_answered("it is no SELECT")
    names = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    _name_columns(tree)
    tree = tree.transform(_changed)
    for node in tree.walk():
        _check(node, names)
    return tree.sql(dialect="duckdb")


def _without_schema(statement: StatementText) -> str:
    """The text without `pg_catalog.`: its tables, types and functions are known by their own names."""
    parts, place, own = [], 0, statement.lexemes
    for one, dot in pairwise(own):
        if one.kind in ("name", "quoted") and one.text == "pg_catalog" and dot.text == ".":
            parts.append(statement.text[place : one.start])
            place = dot.end
    return "".join([*parts, statement.text[place:]])


def _name_columns(tree: exp.Expr) -> None:
    """Give columns the names that PostgreSQL gives them: a function's is its own, whatever it becomes here."""
    first = tree
    while isinstance(first, (exp.SetOperation, exp.Subquery)):
        first = first.this
    if isinstance(first, exp.Select):
        first.set("expressions", [_named_column(column) for column in first.expressions])


def _named_column(column: exp.Expr) -> exp.Expr:
    inner = column
    while isinstance(inner, (exp.Cast, exp.Paren)):
        inner = inner.this
    if isinstance(inner, (exp.Alias, exp.Column, exp.Star)) and inner is column:
        return column
    if isinstance(inner, exp.Func) and not isinstance(inner, exp.Case):
        name = _function_name(inner)
    else:
        plain = "" if isinstance(inner, exp.Literal) else inner.output_name
        name = "case" if isinstance(inner, exp.Case) else plain or "?column?"
    return exp.alias_(column, name, quoted=True)


def _changed(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Cast):
        return _cast(node)
    if isinstance(node, exp.Column) and not node.table and node.name.lower() in NO_PARENTHESES:
        return _parsed(NO_PARENTHESES[node.name.lower()])
    if isinstance(node, exp.Func):
        return _called(node)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return _table(node)
    return node


def _called(node: exp.Func) -> exp.Expr:
    """A function of PostgreSQL, as the macro that does what it does."""
    name = _function_name(node)
    if name in NO_PARENTHESES and name not in MACROS:
        return _parsed(NO_PARENTHESES[name])
    if name == "json_build_object":
        return exp.Anonymous(this="json_object", expressions=[part.transform(_changed) for part in node.expressions])
    if name not in MACROS:
        return node
    arguments = node.expressions if isinstance(node, exp.Anonymous) else list(node.iter_expressions())
    return exp.Anonymous(this=f"hr_{name}", expressions=[argument.transform(_changed) for argument in arguments])


def _function_name(node: exp.Func) -> str:
    name = node.name if isinstance(node, exp.Anonymous) else type(node).sql_names()[0]
    return {"current_version": "version"}.get(name.lower(), name.lower())


def _parsed(text: str) -> exp.Expr:
    return sqlglot.parse_one(text, read="duckdb")


def _cast(node: exp.Cast) -> exp.Expr:
    """Casts to types of PostgreSQL that name things: of a text, the number; of a number, the name."""
    inner = node.this.transform(_changed)
    kind = node.to.sql(dialect="postgres").lower().replace('"', "")
    if kind in ("regclass", "regtype"):
        bare = inner.unnest()
        is_text = isinstance(bare, exp.Literal) and bare.is_string
        is_text = is_text or (isinstance(bare, exp.Cast) and bare.to.is_type("varchar", "text"))
        name = f"to_{kind}" if is_text else f"{kind.removeprefix('reg')}_name"
        return exp.Anonymous(this=f"hr_{name}", expressions=[inner])
    if kind in ("regproc", "regnamespace", "regrole"):
        found: exp.Expr = inner
        return found
    if kind in ("name", "char", "name[]"):
        return exp.Cast(this=inner, to=exp.DataType.build("text[]" if kind.endswith("[]") else "text"))
    if kind in ("oid", "xid"):
        return exp.Cast(this=inner, to=exp.DataType.build("bigint"))
    return exp.Cast(this=inner, to=node.to)


def _table(node: exp.Table) -> exp.Table:
    schema = node.args.get("db")
    if schema is not None and schema.name.lower() in (*_SCHEMAS, SCHEMA):
        changed = node.copy()
        changed.set("db", exp.to_identifier(SCHEMA))
        changed.set("catalog", None)
        if not changed.alias:
            changed.set("alias", exp.TableAlias(this=exp.to_identifier(node.name)))
        return changed
    if schema is None and node.name.lower().startswith("pg_") and node.name.lower() in TABLES:
        changed = node.copy()
        changed.set("db", exp.to_identifier(SCHEMA))
        return changed
    return node


def _check(node: exp.Expr, names: set[str]) -> None:
    """Refuse what is not of the catalog."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        known = node.db == SCHEMA and node.name.lower() in TABLES
        if not known and not (not node.db and node.name.lower() in names):
            shown = ".".join(part.name for part in node.parts).removeprefix(f"{SCHEMA}.")
            raise StatementRefused(
                f"there is no relation {shown!r} in PostgreSQL's catalog here", "42P01",
                allowed="pg_class, pg_attribute, pg_type, information_schema.tables, …",
                instead="a query over your own streams alone, without tables and functions of PostgreSQL",
            )  # fmt: skip
    elif isinstance(node, exp.Anonymous):
        name = node.name.lower()
        if name.removeprefix("hr_") not in MACROS and name not in PLAIN:
            raise StatementRefused(
                f"there is no function {name!r}", "42883", allowed="functions of queries over the catalog"
            )
    elif isinstance(node, (exp.Command, exp.DDL, exp.DML, exp.Into, exp.ReadCSV, exp.Parameter, exp.Placeholder)):
        raise _not_answered(f"{type(node).__name__} cannot stand here")
    elif isinstance(node, exp.Func) and _function_name(node) not in KNOWN:
        raise _not_answered(f"{_function_name(node)} is no function of such queries")
