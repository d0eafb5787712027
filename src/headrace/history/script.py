"""The translation of a plan: SQL statements, the Python functions they call, and the tables they start from."""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.plan.nodes import Source
from headrace.schema import RESERVED, Schema

__all__ = ["HistoryFunction", "HistoryRelation", "HistoryScript", "HistoryStatement", "PolicyCheck"]


@dataclass(frozen=True)
class HistoryRelation:
    """A named result: the columns `le`, `re`, and a payload under names that are distinct in SQL."""

    name: str
    schema: Schema

    @property
    def columns(self) -> dict[str, str]:
        """The names of the payload's columns in SQL, where `A` and `a` are the same name.

        No column of a payload begins with `__`, so the translation's own names may.
        """
        taken = {name.lower() for name in RESERVED}
        found = {}
        for name in self.schema.names:
            new = name
            while new.lower() in taken:
                new += "_"
            taken.add(new.lower())
            found[name] = new
        return found


@dataclass(frozen=True)
class HistoryStatement:
    """A step: a relation and the query for its rows.

    With `again` it is a loop: the relation starts with the query's rows; then these statements, which read it, run, and
    the last one's rows replace it, until nothing changes, at most `limit` times.
    """

    relation: HistoryRelation
    query: str
    #: The operator it stands for, in words.
    says: str
    again: tuple[HistoryStatement, ...] = ()
    limit: int = 0

    def text(self) -> str:
        """The statement as readable text."""
        lines = [f"-- {self.says}\nCREATE TEMPORARY VIEW {self.relation.name} AS\n{self.query};"]
        if self.again:
            lines.append(f"-- again and again, until {self.relation.name} stays the same:")
            lines += [inner.text() for inner in self.again]
            lines.append(f"-- {self.relation.name} is now {self.again[-1].relation.name}")
        return "\n\n".join(lines)


@dataclass(frozen=True)
class PolicyCheck:
    """A query that should return no rows: a row breaks the policy of a source.

    Without an error, it finds retractions of missing events: then `translate` again, with `orphans`.
    """

    query: str
    error: Callable[[dict[str, Any]], Exception] | None


@dataclass(frozen=True)
class HistoryFunction:
    """A Python function that SQL calls: Arrow columns to an Arrow column of as many values."""

    name: str
    takes: tuple[pa.DataType, ...]
    gives: pa.DataType
    call: Callable[..., pa.Array]


@dataclass
class HistoryScript:
    """A complete translation; `result` is the output of the plan."""

    statements: list[HistoryStatement] = field(default_factory=list)
    functions: list[HistoryFunction] = field(default_factory=list)
    checks: list[PolicyCheck] = field(default_factory=list)
    #: The relations that must exist at the start: stored rows of sources, and tables.
    sources: dict[str, Source] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    result: HistoryRelation | None = None

    def __iter__(self) -> Iterator[HistoryStatement]:
        return iter(self.statements)

    def failing(self) -> str | None:
        """One query for all checks, which returns the numbers of those that fail; None without checks."""
        each = [
            f"SELECT {number} AS number FROM (\n{check.query}\nLIMIT 1\n) check_{number}"
            for number, check in enumerate(self.checks)
        ]
        return "\nUNION ALL\n".join(each) or None

    def text(self) -> str:
        """The statements as a readable script."""
        begins = [f"-- {name}: the rows of {source.origin}" for name, source in self.sources.items()]
        begins += [f"-- {name}: a table of {table.num_rows} rows" for name, table in self.tables.items()]
        begins += [f"-- {function.name}(...): a Python function" for function in self.functions]
        steps = [statement.text() for statement in self.statements]
        last = f"SELECT * FROM {self.result.name};" if self.result is not None else ""
        return "\n".join(begins) + "\n\n" + "\n\n".join([*steps, last]) + "\n"
