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
        names: list[str] = []
        for column in table.schema:
            name, others = column.name, {*table.column_names} - {column.name}
            while known.get(name, column.type) != column.type or name in others or name in names:
                name += f" {column.type}"
            known[name] = column.type
            names.append(name)
        renamed.append(table.rename_columns(names))
    return pa.concat_tables(renamed, promote_options="default")
