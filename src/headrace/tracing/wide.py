"""Tables with events of several operators: no two columns have one name, whatever the operators call theirs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

__all__ = ["beside", "wide"]


def beside(own: Collection[str], names: Sequence[str]) -> list[str]:
    """Names of columns beside `own` columns of a trace: a column `batch` becomes `batch_value`."""
    taken = {*own, *names}
    found = []
    for name in names:
        other = name
        while other in own or (other != name and other in taken):
            other += "_value"
        taken.add(other)
        found.append(other)
    return found


def wide(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables below one another; columns that only some have are null in the others.

    If columns of one name have several types, those of the later tables have their type in their name.
    """
    known: dict[str, pa.DataType] = {}
    renamed = []
    for table in tables:
        names = []
        for column in table.schema:
            kept = known.setdefault(column.name, column.type)
            names.append(column.name if kept == column.type else f"{column.name} {column.type}")
        renamed.append(table.rename_columns(names))
    return pa.concat_tables(renamed, promote_options="default")
