"""Print the statements for a server; see `printer` for the rest."""

from __future__ import annotations

from headrace.sql import syntax as s
from headrace.sql.printer.expressions import listed, quoted, text, words, writes

__all__: list[str] = []


@writes(s.StartQuery)
def _(part: s.StartQuery) -> str:
    return f"{'STOP' if part.stop else 'START'} QUERY {text(part.name)}"


@writes(s.AlterQuery)
def _(part: s.AlterQuery) -> str:
    return f"ALTER {part.kind.upper()} {text(part.name)} SET {text(part.setting)} = {text(part.value)}"


@writes(s.Subscribe)
def _(part: s.Subscribe) -> str:
    start = f"AS OF {quoted(part.cursor)}" if part.cursor is not None else ""
    form = "" if part.form == "events" else f"WITH {part.form.upper()}"
    return words("SUBSCRIBE", text(part.name), start, form, f"({listed(part.key)})" if part.key else "")


@writes(s.CreateSecret)
def _(part: s.CreateSecret) -> str:
    return f"CREATE SECRET {text(part.name)} {'FROM ENV' if part.from_environment else 'AS'} {quoted(part.value)}"
