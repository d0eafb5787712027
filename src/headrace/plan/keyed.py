"""What operators that look at groups share: the keys that tell groups apart, and where their rows have to be."""

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
    """An operator that looks at each group by itself."""

    linear: ClassVar[bool] = False
    keys: tuple[tuple[str, Expr], ...]

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, expr.type(self.input.schema)) for name, expr in self.keys)

    @property
    def key_names(self) -> tuple[str, ...]:
        """What the keys are called in the output."""
        return tuple(name for name, _ in self.keys)

    @cached_property
    def with_keys(self) -> Schema:
        """The keys that are not columns already, then all columns: of operators that pass events on."""
        mine = self.input.schema
        for name, expr in self.keys:
            if name in mine and str(expr) != str(col(name)):
                raise PlanError(
                    f"the key {name!r} hides a column of the same name",
                    given=str(expr),
                    allowed="keys that are columns, or have names of their own",
                    instead=f"group_by({name}_key={expr})",
                )
        return Schema((*(f for f in self.key_fields if f.name not in mine), *mine.fields))

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The input's columns that are keys; all rows in one place if some key is not a column yet."""
        columns = tuple(expr.name for _, expr in self.keys if isinstance(expr, Column))
        return columns if len(columns) == len(self.keys) else ()

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        own = tuple((name, col(name)) for name in keys)
        return keys_first(replace(self, input=inputs[0], keys=(*own, *self.keys)), keys)

    @property
    @abstractmethod
    def passes_on(self) -> bool:
        """Whether whole events are passed on, so that the keys are among its columns, in front."""

    @property
    def splits(self) -> bool:
        """Whether partial results can be combined wherever the rows are."""
        return False

    @cached_property
    def key_columns(self) -> set[str]:
        """The columns of the input that keys are computed from."""
        return set().union(*(expr.columns() for _, expr in self.keys))

    def by_group(self, *, settled: bool, insert_only: bool = False) -> Properties:
        """The properties of what is given group by group."""
        # Rows that are together already stay where they are, so they are together by what brought them there.
        below = renamed(self.input.properties.keys, self.keys)
        brought = self.key_names if self.needs or not self.keys else ()
        return Properties(insert_only, settled, keys=brought if below is None else below)

    @property
    def per(self) -> str:
        """The keys, for `describe`; nothing without any."""
        keys = ", ".join(name if str(expr) == str(col(name)) else f"{name} = {expr}" for name, expr in self.keys)
        return f" per {keys}" if keys else ""
