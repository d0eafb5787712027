"""What operators per group and window share: aggregates, user's operators, and the top of a ranking.

Rules 6.3 and 6.4 decide how far such an operator's output CTI lags behind its input's. Four facts about it matter:
whether a module sees lifetimes (`sensitive`), whether ends after the window's are hidden from it, what lifetimes its
outputs get, and whether its windows can only be shortened (`prompt`: the output CTI is the input's).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from headrace.errors import PlanError
from headrace.modules.base import Module
from headrace.plan.base import Node, OneInput, Properties
from headrace.plan.keyed import Keyed
from headrace.plan.ordered import Ordered
from headrace.plan.source import DIVERTED
from headrace.plan.windows import PLAIN_POLICY, Grid, Snapshot, Timestamping, Window, WindowPolicy
from headrace.schema import Schema

__all__ = ["Failures", "PerWindow"]


@dataclass(frozen=True, eq=False)
class PerWindow(Keyed):
    """An operator that looks at each window of each group by itself."""

    window: Window
    policy: WindowPolicy = field(default=PLAIN_POLICY, kw_only=True)
    #: Whether the answers of a window are given once, when it is closed (rule 3.5), and not early and corrected.
    final: bool = field(default=False, kw_only=True)

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
        """Whether an end after the window's may still change an answer (rule 6.4, second row)."""
        return self.sensitive and not self.clips_right

    @cached_property
    def prompt(self) -> bool:
        """Whether the output CTI is the input's (rule 6.4, last two rows)."""
        if self.timestamping == "time_bound":
            return True
        return isinstance(self.window, Snapshot) and not self.sensitive

    @cached_property
    def properties(self) -> Properties:
        return self.by_group(settled=not self.prompt, insert_only=self.final)

    @property
    def waits(self) -> bool:
        """Whether the output CTI depends on what is remembered, not on the input's alone."""
        return not self.prompt and (self.holds_ends or not isinstance(self.window, Grid))

    @property
    def marks(self) -> str:
        return ", ".join(f"{module.name} {module.mark}" for module in self.modules)

    def side(self) -> Node | None:
        return Failures(self) if self.modules and self.policy.on_error == "skip" else None

    def over(self) -> str:
        """The window, its policies and the keys, for `describe`."""
        policy = f" ({self.policy})" if str(self.policy) else ""
        return f"over {self.window}{policy}{self.per}{', final answers only' if self.final else ''}"

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
        if self.policy.timestamping not in (None, "align", *self._own_times):
            raise PlanError(
                "only a time-sensitive operator gives lifetimes of its own",
                given=f"timestamping={self.policy.timestamping!r}",
                allowed=f"timestamping={' or '.join(map(repr, ('align', *self._own_times)))}",
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
    def _own_times(self) -> tuple[Timestamping, ...]:
        """What may be said of the outputs' lifetimes, besides that they are the window's.

        Over snapshots every answer that depends on payloads alone is bound in time: a window that is split keeps it.
        """
        return ("time_bound",) if isinstance(self.window, Snapshot) else ()


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
