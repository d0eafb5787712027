"""What operators per group and window share: aggregates, user's operators, and the top of a ranking.

Rules 6.3 and 6.4 decide how far such an operator's output CTI lags behind its input's. Four facts about it matter:
whether a module sees lifetimes (`sensitive`), whether ends after the window's are hidden from it, what lifetimes its
outputs get, and whether its windows can only be shortened (`prompt`: the output CTI is the input's).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.expr.nodes import Column
from headrace.modules.base import Module
from headrace.plan.base import Node, OneInput, Properties, renamed
from headrace.plan.ordered import Ordered
from headrace.plan.source import DIVERTED
from headrace.plan.span import keys_first
from headrace.plan.windows import PLAIN_POLICY, Grid, Snapshot, Timestamping, Window, WindowPolicy
from headrace.schema import Field, Schema

__all__ = ["Failures", "PerWindow"]


@dataclass(frozen=True, eq=False)
class PerWindow(OneInput):
    """An operator that looks at each window of each group by itself."""

    linear: ClassVar[bool] = False
    keys: tuple[tuple[str, Expr], ...]
    window: Window
    policy: WindowPolicy = field(default=PLAIN_POLICY, kw_only=True)

    @property
    def modules(self) -> tuple[Module, ...]:
        """The user's modules that it runs."""
        return ()

    @cached_property
    def sensitive(self) -> bool:
        """Whether a module sees lifetimes."""
        return any(module.time_sensitive for module in self.modules)

    @cached_property
    def timestamping(self) -> Timestamping:
        """The lifetimes that outputs get."""
        return self.policy.timestamping or "align"

    @cached_property
    def clips_right(self) -> bool:
        """Whether modules are shown no end after the window's: the query says so, or they look at none themselves."""
        if isinstance(self.window, Ordered):  # which looks at starts alone
            return True
        return self.policy.clips_right or all(m.within_window for m in self.modules if m.time_sensitive)

    @cached_property
    def holds_ends(self) -> bool:
        """Whether an end after the window's may still change an answer (6.4, second row)."""
        return self.sensitive and not self.clips_right

    @cached_property
    def prompt(self) -> bool:
        """Whether the output CTI is the input's (6.4, last two rows)."""
        if self.timestamping == "time_bound":
            return True
        return isinstance(self.window, Snapshot) and not self.sensitive

    @cached_property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(Field(name, expr.type(self.input.schema)) for name, expr in self.keys)

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

    @cached_property
    def properties(self) -> Properties:
        # Rows that are together already stay where they are, so they are together by what brought them there.
        below = renamed(self.input.properties.keys, self.keys)
        brought = self.key_names if self.needs or not self.keys else ()
        return Properties(insert_only=False, settled=not self.prompt, keys=brought if below is None else below)

    @property
    def key_names(self) -> tuple[str, ...]:
        """What the keys are called in the output."""
        return tuple(name for name, _ in self.keys)

    @property
    def needs(self) -> tuple[str, ...] | None:
        """The input's columns that are keys; all rows in one place if some key is not a column yet."""
        columns = tuple(expr.name for _, expr in self.keys if isinstance(expr, Column))
        return columns if len(columns) == len(self.keys) else ()

    @property
    def waits(self) -> bool:
        """Whether the output CTI depends on what is remembered, not on the input's alone."""
        return not self.prompt and (self.holds_ends or not isinstance(self.window, Grid))

    @property
    def marks(self) -> str:
        return ", ".join(f"{module.name} {module.mark}" for module in self.modules)

    def lifted(self, inputs: tuple[Node, ...], keys: tuple[str, ...], derived: tuple[bool, ...]) -> Node:  # noqa: ARG002
        own = tuple((name, col(name)) for name in keys)
        return keys_first(replace(self, input=inputs[0], keys=(*own, *self.keys)), keys)

    def side(self) -> Node | None:
        return Failures(self) if self.modules and self.policy.on_error == "skip" else None

    def over(self) -> str:
        """The window, its policies and the keys, for `describe`."""
        keys = ", ".join(name if str(expr) == str(col(name)) else f"{name} = {expr}" for name, expr in self.keys)
        policy = f" ({self.policy})" if str(self.policy) else ""
        return f"over {self.window}{policy}" + (f" per {keys}" if keys else "")

    def check_policy(self) -> None:
        """Refuse policies that mean nothing here."""
        if isinstance(self.window, Ordered):
            self._check_ordered(self.window)
        if self.policy.clipping != "none" and not self.sensitive:
            raise PlanError(
                "clipping is for time-sensitive modules; others see no lifetimes",
                given=f"clipping={self.policy.clipping!r}",
                allowed="clipping='none'",
                instead="leave it out, or write time_sensitive = True in the module",
            )
        if self.policy.timestamping not in (None, "align") and not self._stamps:
            raise PlanError(
                "only a time-sensitive operator gives lifetimes of its own",
                given=f"timestamping={self.policy.timestamping!r}",
                allowed="timestamping='align'",
                instead="leave it out: answers last as long as their window",
            )

    def _check_ordered(self, window: Ordered) -> None:
        window.check(self.input.schema)
        if self.policy.timestamping == "time_bound":
            raise PlanError(
                "windows of tuples are not bound to time: one that is complete may reach back before what completed it",
                given="timestamping='time_bound'",
                allowed="align, unchanged, clip",
                instead="timestamping='unchanged'",
            )

    @property
    def _stamps(self) -> bool:
        """Whether outputs may have lifetimes of their own."""
        return False


@dataclass(frozen=True, eq=False)
class Failures(OneInput):
    """The windows whose module failed under `on_error="skip"`: an operator's second output."""

    @cached_property
    def schema(self) -> Schema:
        return DIVERTED

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(insert_only=False, settled=below.settled)
