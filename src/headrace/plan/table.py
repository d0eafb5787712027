"""Stream–table joins: payloads extended from a table that is read once, when the query starts (rule 4).

A table has no lifetimes: its rows hold at every instant of a query. So the operator has no state, runs where its input
is, and has its input's CTI. This requires that the table does not change: a retraction must find the rows that its
insert has found. So a table is read once, when the query starts, and sent to the workers. Its content is part of the
query: a checkpoint with another content belongs to another query, and is refused. A table that changes is a stream,
whose rows hold from one time to another, and is joined as a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from headrace.errors import PlanError
from headrace.plan.base import Node, OneInput, Reach, refuse_reserved
from headrace.plan.join import Keys, check_keys, names_beside
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.schema import Field, Schema

__all__ = ["HOW", "TableJoin", "TableJoinKind"]

TableJoinKind = Literal["inner", "left"]
HOW: tuple[TableJoinKind, ...] = ("inner", "left")


@dataclass(frozen=True, eq=False)
class TableJoin(OneInput):
    """Every event with each row of a table that has equal keys (nulls equal nothing), with the event's lifetime.

    The payload has the columns of a `Join`. With `how="left"` an event without a matching row stays, with nulls.
    """

    reach: ClassVar[Reach] = "event"
    instants: ClassVar[None] = None
    ends: ClassVar[None] = None
    #: The rows, or the files to read when the query starts; its text identifies it.
    table: object
    columns: Schema
    on: Keys
    how: TableJoinKind = "inner"
    #: The names of the table's columns, if a rule has narrowed the input: the columns keep their names.
    names: tuple[tuple[str, str], ...] | None = None

    def __post_init__(self) -> None:
        if not self.on:
            raise PlanError(
                "a join with a table needs a key",
                given="none",
                allowed="names of columns that must be equal",
                instead=f"join_table(table, on={next(iter(self.columns.names), 'key')!r})",
            )
        if self.how not in HOW:
            raise PlanError("unknown kind of join with a table", given=self.how, allowed=", ".join(HOW))
        check_keys(self.input.schema, self.columns, self.on)
        refuse_reserved(self.schema, self.input.schema)

    @cached_property
    def table_columns(self) -> dict[str, str]:
        """The columns taken from the table, and their names in the output."""
        if self.names is None:
            return names_beside(self.input.schema, self.columns, self.on)
        return dict(self.names)

    @cached_property
    def schema(self) -> Schema:
        added = (Field(new, self.columns[name].type) for name, new in self.table_columns.items())
        return Schema((*self.input.schema.fields, *added))

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has one input
        return needed | {name for name, _ in self.on}

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        return self.with_inputs(*inputs)

    def describe(self) -> str:
        keys = " and ".join(f"{a} = {b}" for a, b in self.on)
        return f"TableJoin {self.how} with {self.table} on {keys}"

    def with_inputs(self, *inputs: Node) -> Node:
        names = tuple(self.table_columns.items())
        return TableJoin(inputs[0], self.table, self.columns, self.on, self.how, names)
