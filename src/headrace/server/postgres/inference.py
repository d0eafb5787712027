"""The types of parameters whose client does not say them: those that the statement can be bound with.

Clients such as asyncpg ask for the types before they send values. In `INSERT INTO t VALUES ($1, …)` the type is the
column's; elsewhere values of several types are tried. If whole numbers and fractions both fit, the type is numeric,
for which drivers take both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.schema import RESERVED
from headrace.server.interface import Connection
from headrace.server.postgres.columns import wire_columns
from headrace.server.postgres.lexing import Lexeme, StatementText, with_literals

__all__ = ["parameter_types", "stand_ins", "with_lists"]

_TEXT, _INT8, _FLOAT8, _NUMERIC, _TEXTS = 25, 20, 701, 1700, 1009
#: A value of each type, to bind a statement whose values are not known yet.
_SAMPLES = {
    16: "TRUE", 20: "1", 21: "1", 23: "1", 26: "1", 700: "0.5", 701: "0.5", 1700: "1", 1082: "DATE '2000-01-01'",
    1083: "TIME '00:00:00'", 1114: "TIMESTAMP '2000-01-01'", 1184: "TIMESTAMP '2000-01-01'",
    1186: "CAST('00:00:01' AS INTERVAL)", 1000: "ARRAY[TRUE]", 1005: "ARRAY[1]", 1007: "ARRAY[1]", 1016: "ARRAY[1]",
    1021: "ARRAY[0.5]", 1022: "ARRAY[0.5]", 1231: "ARRAY[1]", 1009: "ARRAY['a']", 1015: "ARRAY['a']",
}  # fmt: skip
_TRIED = (_TEXT, _INT8, _FLOAT8, 1184, 1082, 16, 1083, 1186, 1016, 1009, 1022)
#: Parameters whose types are tried: each costs some bindings.
_MOST = 20


def stand_ins(types: Sequence[int]) -> list[str]:
    """Literals in place of values."""
    return [_SAMPLES.get(oid, "'a'") for oid in types]


def with_lists(statement: StatementText, given: Sequence[int]) -> tuple[int, ...]:
    """The types that a client gives; where it gives none for `x = ANY($1)`, it sends a list of texts."""
    own, types = statement.lexemes, [*given, *([0] * (statement.parameters - len(given)))]
    for word, left, value, right in zip(own, own[1:], own[2:], own[3:], strict=False):
        calls = word.text in ("any", "some", "all") and left.text == "(" and right.text == ")"
        if calls and value.kind == "parameter" and not types[int(value.text) - 1]:
            types[int(value.text) - 1] = _TEXTS
    return tuple(types)


def parameter_types(statement: StatementText, given: Sequence[int], connection: Connection) -> tuple[int, ...]:
    """The types of all parameters of a statement: those given, and for the others those that fit."""
    types = [*given, *([0] * (statement.parameters - len(given)))][: statement.parameters]
    if not all(types):
        for number, oid in _of_columns(statement, connection).items():
            types[number - 1] = types[number - 1] or oid
    unknown = [place for place, oid in enumerate(types) if not oid][:_MOST]
    for place in unknown:
        types[place] = _fitting(statement, types, place, connection)
    return tuple(oid or _TEXT for oid in types)


def _fitting(statement: StatementText, types: Sequence[int], place: int, connection: Connection) -> int:
    def fits(oid: int) -> bool:
        literals = ["NULL" if not known else _SAMPLES.get(known, "'a'") for known in types]
        literals[place] = _SAMPLES.get(oid, "'a'")
        return _binds(lambda: connection.columns(with_literals(statement, literals), guess=True))

    found = next((oid for oid in _TRIED if fits(oid)), _TEXT)
    return _NUMERIC if found == _INT8 and fits(_FLOAT8) else found


def _binds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except HeadraceError:
        return False
    return True


def _of_columns(statement: StatementText, connection: Connection) -> dict[int, int]:
    """The types of parameters that are values of `INSERT INTO name [(columns)] VALUES (…), (…)`."""
    own = statement.lexemes
    if [one.text for one in own[:2]] != ["insert", "into"] or len(own) < 5:
        return {}
    schema = _schema(own[2], connection)
    values = next((place for place, one in enumerate(own) if one.kind == "name" and one.text == "values"), None)
    if schema is None or values is None:
        return {}
    columns = [column for column in wire_columns(schema) if column.name not in RESERVED]
    named = [one.text.lower() for one in own[3:values] if one.kind in ("name", "quoted")]
    oids = {column.name.lower(): column.oid for column in columns}
    order = [oids.get(name, 0) for name in named] if named else [column.oid for column in columns]
    return _placed(own[values + 1 :], order)


def _placed(values: Sequence[Lexeme], order: Sequence[int]) -> dict[int, int]:
    """Parameters that stand alone between the commas of rows, with the types of their columns."""
    found: dict[int, int] = {}
    depth = column = 0
    for before, one, after in zip(values, values[1:], values[2:], strict=False):
        if before.text == "(":
            depth += 1
            column = 0 if depth == 1 else column
        elif before.text == ")":
            depth -= 1
        elif before.text == "," and depth == 1:
            column += 1
        alone = one.kind == "parameter" and before.text in ("(", ",") and after.text in (")", ",")
        if alone and depth == 1 and column < len(order) and order[column]:
            found[int(one.text)] = order[column]
    return found


def _schema(name: Lexeme, connection: Connection) -> pa.Schema | None:
    quoted = '"' + name.text.replace('"', '""') + '"'
    try:
        return connection.columns(f"SELECT * FROM {quoted}", guess=True)
    except HeadraceError:
        return None
