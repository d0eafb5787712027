"""Functions of PostgreSQL that clients call in queries over its catalog, as macros of DuckDB.

A macro `f` is named `hr_f` there, so that nothing of DuckDB's own is meant by mistake. Every other function must be in
`PLAIN`, or be one that sqlglot knows as a part of SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.server.postgres.settings import SERVER_VERSION

__all__ = ["KNOWN", "MACROS", "NO_PARENTHESES", "PLAIN", "SCHEMA", "macro_statements"]

#: The schema of DuckDB that has the tables.
SCHEMA = "hr"
_TYPE_NAME = (
    "CASE {oid} WHEN 16 THEN 'boolean' WHEN 17 THEN 'bytea' WHEN 18 THEN '\"char\"' WHEN 19 THEN 'name' "
    "WHEN 20 THEN 'bigint' WHEN 21 THEN 'smallint' WHEN 23 THEN 'integer' WHEN 25 THEN 'text' WHEN 26 THEN 'oid' "
    "WHEN 114 THEN 'json' WHEN 700 THEN 'real' WHEN 701 THEN 'double precision' WHEN 1042 THEN 'character' "
    "WHEN 1043 THEN 'character varying' WHEN 1082 THEN 'date' WHEN 1083 THEN 'time without time zone' "
    "WHEN 1114 THEN 'timestamp without time zone' WHEN 1184 THEN 'timestamp with time zone' "
    "WHEN 1186 THEN 'interval' WHEN 1700 THEN 'numeric' WHEN 2205 THEN 'regclass' WHEN 2206 THEN 'regtype' "
    "WHEN 2950 THEN 'uuid' WHEN 3802 THEN 'jsonb' ELSE '-' END"
)
_FORMAT = (
    _TYPE_NAME.format(oid="o") + " || CASE WHEN o = 1700 AND m > 0 THEN '(' || ((m - 4) >> 16) || ',' || "
    "((m - 4) & 65535) || ')' ELSE '' END"
)
_NAME = "regexp_replace(lower(CAST(n AS VARCHAR)), '^(pg_catalog|public|information_schema)\\.|\"', '', 'g')"


def _looked_up(name: str, key: str) -> str:
    """A value of a map that is kept in a variable: a sub-query would take a caller's column for one of its own."""
    return f"getvariable('hr_{name}')[{key}]"


_KEY = _looked_up("keys", "TRY_CAST(o AS BIGINT)")
_INDEX = _looked_up("indexes", "TRY_CAST(o AS BIGINT)")
_VIEW = _looked_up("views", "TRY_CAST(o AS BIGINT)")
_COLUMN = _looked_up("key_columns", "o || '.' || n")
_CLASS = _looked_up("class_oids", _NAME)
_TYPE = _looked_up("type_oids", _NAME)
_SETTING = _looked_up("settings", "lower(n)")


def _constant(value: str, *counts: int) -> list[tuple[str, str]]:
    """A macro that has one value, for so many arguments."""
    return [(", ".join(f"a{number}" for number in range(count)), value) for count in counts]


_SEEN = ("collation", "conversion", "function", "opclass", "operator", "opfamily", "statistics_obj", "table", "type")
_USED = (
    "any_column",
    "column",
    "database",
    "function",
    "language",
    "schema",
    "sequence",
    "table",
    "tablespace",
    "type",
)
#: Names, and for each number of arguments the parameters and the text.
MACROS: Mapping[str, Sequence[tuple[str, str]]] = {
    "array_upper": [("x, n", "len(x)")],
    "array_lower": [("x, n", "1")],
    "col_description": _constant("NULL::VARCHAR", 2),
    "current_database": _constant("getvariable('hr_database')", 0),
    "current_schema": _constant("'public'", 0),
    "current_schemas": [("a", "CASE WHEN a THEN ['pg_catalog', 'public'] ELSE ['public'] END")],
    "current_setting": [("n", _SETTING), ("n, m", _SETTING)],
    "format_type": [("o, m", _FORMAT)],
    "generate_subscripts": [("x, n", "unnest(range(1, len(x) + 1))")],
    "getdatabaseencoding": _constant("'UTF8'", 0),
    "inet_server_addr": _constant("NULL::VARCHAR", 0),
    "inet_server_port": _constant("NULL::BIGINT", 0),
    "obj_description": _constant("NULL::VARCHAR", 1, 2),
    "pg_backend_pid": _constant("getvariable('hr_process')", 0),
    "pg_char_to_encoding": _constant("6", 1),
    "pg_client_encoding": _constant("'UTF8'", 0),
    "pg_database_size": _constant("0", 1),
    "pg_encoding_to_char": _constant("'UTF8'", 1),
    "pg_get_constraintdef": [("o", f"'PRIMARY KEY ' || {_KEY}"), ("o, p", f"'PRIMARY KEY ' || {_KEY}")],
    "pg_get_expr": _constant("NULL::VARCHAR", 2, 3),
    "pg_get_function_arguments": _constant("NULL::VARCHAR", 1),
    "pg_get_function_result": _constant("NULL::VARCHAR", 1),
    "pg_get_indexdef": [("o", _INDEX), ("o, n, p", f"CASE WHEN n = 0 THEN {_INDEX} ELSE {_COLUMN} END")],
    "pg_get_partkeydef": _constant("NULL::VARCHAR", 1),
    "pg_get_ruledef": _constant("NULL::VARCHAR", 1, 2),
    "pg_get_serial_sequence": _constant("NULL::VARCHAR", 2),
    "pg_get_statisticsobjdef_columns": _constant("NULL::VARCHAR", 1),
    "pg_get_triggerdef": _constant("NULL::VARCHAR", 1, 2),
    "pg_get_userbyid": _constant("getvariable('hr_user')", 1),
    "pg_get_viewdef": [("o", _VIEW), ("o, p", _VIEW)],
    "pg_has_role": _constant("TRUE", 2, 3),
    "pg_is_in_recovery": _constant("FALSE", 0),
    "pg_is_other_temp_schema": _constant("FALSE", 1),
    "pg_my_temp_schema": _constant("0", 0),
    "pg_partition_ancestors": _constant("NULL::BIGINT", 1),
    "pg_relation_is_publishable": _constant("FALSE", 1),
    "pg_relation_size": _constant("0", 1, 2),
    "pg_size_pretty": [("n", "n || ' bytes'")],
    "pg_table_size": _constant("0", 1),
    "pg_tablespace_location": _constant("''", 1),
    "pg_total_relation_size": _constant("0", 1),
    "quote_ident": [("n", "CASE WHEN regexp_full_match(n, '[a-z_][a-z_0-9]*') THEN n ELSE '\"' || n || '\"' END")],
    "set_config": [("n, v, l", "v")],
    "shobj_description": _constant("NULL::VARCHAR", 2),
    "to_regclass": [("n", _CLASS)],
    "to_regtype": [("n", _TYPE)],
    "txid_current": _constant("1", 0),
    "version": _constant(f"'PostgreSQL {SERVER_VERSION}'", 0),
    **{f"pg_{what}_is_visible": _constant("TRUE", 1) for what in _SEEN},
    **{f"has_{what}_privilege": _constant("TRUE", 2, 3, 4) for what in _USED},
    # Casts, see `queries.py`.
    "class_name": [("o", _looked_up("class_names", "TRY_CAST(o AS BIGINT)"))],
    "type_name": [("o", _TYPE_NAME.format(oid="o"))],
}
#: Written without parentheses.
NO_PARENTHESES: Mapping[str, str] = {
    "current_user": "getvariable('hr_user')", "session_user": "getvariable('hr_user')",
    "current_role": "getvariable('hr_user')", "current_catalog": "getvariable('hr_database')",
    "current_schema": "'public'",
}  # fmt: skip
#: Functions that sqlglot knows, by its names: none of them makes much out of little.
KNOWN = frozenset({
    "and", "or", "array", "array_agg", "array_size", "array_to_string", "avg", "case", "cast", "coalesce", "concat",
    "count", "current_timestamp", "exists", "explode", "exploding_generate_series", "generate_series", "greatest",
    "group_concat", "if", "least", "left", "length", "logical_and", "logical_or", "lower", "max", "min", "nullif",
    "rank", "regexp_i_like", "regexp_like", "right", "row_number", "str_position", "substring", "sum", "trim",
    "try_cast", "unnest", "upper", "xor",
})  # fmt: skip
#: Functions of DuckDB that mean the same, and read nothing but their arguments.
PLAIN = frozenset({
    "array_length", "array_position", "btrim", "cardinality", "getvariable", "json_object", "list_position", "ltrim",
    "now", "rtrim", "split_part", "starts_with", "strpos",
})  # fmt: skip


def macro_statements() -> list[str]:
    """The statements that create the macros."""
    return [
        f"CREATE MACRO hr_{name}" + ", ".join(f"({parameters}) AS ({text})" for parameters, text in forms)
        for name, forms in MACROS.items()
    ]
