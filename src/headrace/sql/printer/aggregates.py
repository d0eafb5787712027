"""Print aggregates written in SQL; see `printer` for the rest."""

from __future__ import annotations

from headrace.sql import syntax as s
from headrace.sql.printer.expressions import clause, clauses, indented, lines, listed, text, words, writes, written_name

__all__: list[str] = []

_AS_LOCAL = frozenset({"KEY"})


@writes(s.CreateAggregate)
def _(part: s.CreateAggregate) -> str:
    kind = "WINDOW AGGREGATE" if part.window else "AGGREGATE"
    returns = text(part.returns) if part.returns is not None else f"({listed(part.columns)})"
    head = f"CREATE {kind} {text(part.name)}({listed(part.parameters)}): {returns}"
    body = [f"{indented(text(table))};" for table in part.tables] + [indented(text(stage)) for stage in part.stages]
    return lines(words(head, "ALGEBRAIC" if part.algebraic else "", "{"), *body, "}")


@writes(s.LocalTable)
def _(part: s.LocalTable) -> str:
    # A column named key is a plain column only in the first place.
    columns = [f"{written_name(column.name, _AS_LOCAL)} {text(column.type)}" for column in part.columns]
    key = [f"KEY ({listed(part.key)})"] if part.key else []
    rows = clauses("AS VALUES", part.rows) if part.stored is None else f"AS STORED {text(s.Text(part.stored))}"
    limit = f"LIMIT {part.limit}" if part.limit is not None else ""
    return words(f"TABLE {text(part.name)}({', '.join(columns + key)})", limit, rows)


@writes(s.LocalJoin)
def _(part: s.LocalJoin) -> str:
    kind = "CROSS JOIN" if part.on is None else "JOIN"
    return words(f"{kind} {text(part.table)}", clause("AS", part.alias), clause("ON", part.on))


@writes(s.ValuesRow)
def _(part: s.ValuesRow) -> str:
    return f"({listed(part.values)})"


@writes(s.Stage)
def _(part: s.Stage) -> str:
    events = " ".join(f"{event.upper()}:" for event in part.events)
    if not part.statements:
        return f"{events} {{}}"
    return lines(f"{events} {{", *(f"{indented(text(statement))};" for statement in part.statements), "}")


@writes(s.InsertRows)
def _(part: s.InsertRows) -> str:
    return f"INSERT INTO {text(part.target)} VALUES {listed(part.rows)}"


@writes(s.InsertSelected)
def _(part: s.InsertSelected) -> str:
    return f"INSERT INTO {text(part.target)} {text(part.select)}"


@writes(s.Assignment)
def _(part: s.Assignment) -> str:
    return f"{text(part.column)} = {text(part.value)}"


@writes(s.UpdateRows)
def _(part: s.UpdateRows) -> str:
    return words(f"UPDATE {text(part.table)} SET {listed(part.assignments)}", clause("WHERE", part.where))


@writes(s.DeleteRows)
def _(part: s.DeleteRows) -> str:
    return words(f"DELETE FROM {text(part.table)}", clause("WHERE", part.where))


@writes(s.LocalSelect)
def _(part: s.LocalSelect) -> str:
    return words(
        f"SELECT {'DISTINCT ' if part.distinct else ''}{listed(part.entries)}",
        clause("FROM", part.table),
        clause("AS", part.alias),
        *map(text, part.joins),
        clause("WHERE", part.where),
        clauses("GROUP BY", part.group),
        clause("HAVING", part.having),
        clauses("ORDER BY", part.order),
        f"LIMIT {part.limit}" if part.limit is not None else "",
    )


@writes(s.ScalarSelect)
def _(part: s.ScalarSelect) -> str:
    return f"({text(part.select)})"


@writes(s.Member)
def _(part: s.Member) -> str:
    return f"{text(part.call)}.{text(part.name)}"
