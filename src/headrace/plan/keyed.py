"""The common part of operators on groups: the keys, and the columns by which rows are brought together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.expr.nodes import Column
from headrace.plan.base import Node, OneInput, Properties, renamed
from headrace.plan.span import keys_first
from headrace.schema import Field, Schema

__all__ = ["Keyed"]


@dataclass(frozen=True, eq=False)
class Keyed(OneInput):
    """An operator that processes each group by itself."""

    linear: ClassVar[bool] = False
    keys: tuple[tuple[str, Expr], ...]

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, expr.type(self.input.schema)) for name, expr in self.keys)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the keys in the output."""
        return tuple(name for name, _ in self.keys)

    @cached_property
    def with_keys(self) -> Schema:
        """The keys that are not columns, then all columns: the schema of operators that pass events on."""
        columns = self.input.schema
        for name, expr in self.keys:
            if name in columns and str(expr) != str(col(name)):
                raise PlanError(
                    f"the key {name!r} hides a column of the same name",
                    given=str(expr),
                    allowed="keys that are columns, or keys with new names",
                    instead=f"group_by({name}_key={expr})",
                )
        return Schema((*(f for f in self.key_fields if f.name not in columns), *columns.fields))

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The input's columns that are keys; (), all rows in one bucket, if a key is not a column."""
        columns = tuple(expr.name for _, expr in self.keys if isinstance(expr, Column))
        return columns if len(columns) == len(self.keys) else ()

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        own = tuple((name, col(name)) for name in keys)
        return keys_first(replace(self, input=inputs[0], keys=(*own, *self.keys)), keys)

    @property
    @abstractmethod
    def passes_on(self) -> bool:
        """Whether it passes on events with all columns, with the keys in front."""

    @property
    def splits(self) -> bool:
        """Whether partial results can be computed where the rows are."""
        return False

    @cached_property
    def key_columns(self) -> set[str]:
        """The columns of the input that keys are computed from."""
        return set().union(*(expr.columns() for _, expr in self.keys))

    def by_group(self, *, settled: bool, insert_only: bool = False) -> Properties:
        """The properties of an output by group."""
        # Rows that are already together stay where they are, together by the columns that brought them there.
        below = renamed(self.input.properties.keys, self.keys)
        brought = self.key_names if self.needs or not self.keys else ()
        return Properties(insert_only, settled, keys=brought if below is None else below)

    @property
    def per(self) -> str:
        """The keys, for `describe`; empty without keys."""
        keys = ", ".join(name if str(expr) == str(col(name)) else f"{name} = {expr}" for name, expr in self.keys)
        return f" per {keys}" if keys else ""
