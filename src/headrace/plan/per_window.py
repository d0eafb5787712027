"""The common part of operators per group and window: aggregates, users' operators, and the top of a ranking.

Rules 6.3 and 6.4 decide how far the output CTI of such an operator lags behind its input's. Four facts matter: whether
a module sees lifetimes (`sensitive`), whether it sees ends after the window's, which lifetimes its outputs get, and
whether its windows can only be shortened (`prompt`: the output CTI is the input's).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.modules.base import Module
from headrace.plan.base import Node, OneInput, Properties, Reach
from headrace.plan.calendar import Calendar
from headrace.plan.keyed import Keyed
from headrace.plan.liveliness import AS_INPUT, Liveliness
from headrace.plan.ordered import Frame, Ordered
from headrace.plan.source import DIVERTED
from headrace.plan.windows import PLAIN_POLICY, Count, Grid, Session, Snapshot, Timestamping, WindowKind, WindowPolicy
from headrace.schema import Schema

__all__ = ["Failures", "PerWindow"]

_CLOSED = "groups × windows the CTI has not closed"
_ENDED = "groups × windows the CTI has not closed or that hold an event it has not ended"
_MEANWHILE = "final() gives the answers of closed windows all the same"
_BOUND = "timestamping='time_bound': output CTI is the input's, if no output depends on what comes after its start"


@dataclass(frozen=True, eq=False)
class PerWindow(Keyed):
    """An operator that processes each window of each group by itself."""

    window: WindowKind
    policy: WindowPolicy = field(default=PLAIN_POLICY, kw_only=True)
    #: Whether the answers of a window are given once, when it is closed (rule 3.5), or else early, with corrections.
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
        """The lifetimes of outputs."""
        return self.policy.timestamping or "align"

    @cached_property
    def clips_right(self) -> bool:
        """Whether modules see no end after the window's: because of the query, or because they use none."""
        if isinstance(self.window, Ordered):  # it depends on starts alone
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
        """Whether the output CTI depends on the state, and not only on the input's CTI."""
        return not self.prompt and (self.holds_ends or not isinstance(self.window, Grid))

    @property
    def instants(self) -> bool | None:
        return None if isinstance(self.window, (Snapshot, Frame)) and self.timestamping == "align" else False

    @property
    def ends(self) -> bool:
        return self.timestamping == "align" and isinstance(self.window, (Count, Grid, Session))

    @property
    def at_instants(self) -> Reach:
        """The reach of an operator on all events of a window: over snapshots, all events alive at an instant.

        A module that sees lifetimes sees other instants; windows that it diverts would be lost in a loop.
        """
        plain = not self.sensitive and self.policy.on_error == "fail"
        return "instant" if isinstance(self.window, Snapshot) and plain else "streams"

    @property
    def liveliness(self) -> Liveliness:
        texts = self._over_tuples(self.window) if isinstance(self.window, Ordered) else self._over_time()
        return texts.by_answer() if self.final else texts

    def _over_tuples(self, window: Ordered) -> Liveliness:
        advice = (*window.advice, *self._quiet_advice())
        return Liveliness(window.cti, window.delay, self.remembers(window), advice)

    def remembers(self, window: Ordered) -> str:
        """The state of windows of tuples, as text for users."""
        return window.state

    def _over_time(self) -> Liveliness:
        state = _ENDED if self.holds_ends else _CLOSED
        if self.prompt:
            return AS_INPUT.remembering(state).advising(*self._clip_advice(delayed=False))
        cti, delay = "start of the first open window", self.window.delay
        if self.holds_ends:
            cti, delay = f"{cti}, or of the first that holds an open event", f"{delay}, and as long as events last"
        advice = self._clip_advice(delayed=True) + self._bound_advice() + self._quiet_advice()
        return Liveliness(cti, delay, state, advice)

    def _clip_advice(self, *, delayed: bool) -> tuple[str, ...]:
        if not self.holds_ends:
            return ()
        gain = "output CTI no longer waits for open events; " if delayed else ""
        side = "full" if self.policy.clipping == "left" else "right"
        return (f"clipping={side!r}: {gain}state bound falls from {_ENDED} to {_CLOSED}",)

    def _bound_advice(self) -> tuple[str, ...]:
        """The advice to bind outputs in time; none if a window is known only when its last time has come."""
        own_times = self.timestamping in ("unchanged", "clip") and not isinstance(self.window, Count)
        return (_BOUND,) if self.sensitive and (own_times or isinstance(self.window, Snapshot)) else ()

    def _quiet_advice(self) -> tuple[str, ...]:
        """Advice about a group that holds back the output CTI of all."""
        if not self.keys or self.window.quiet is None:
            return ()
        does, remedy = self.window.quiet
        return (f"a group that {does} holds the output CTI of all groups; {_MEANWHILE}; {remedy}",)

    def uses(self, side: int, needed: set[str]) -> set[str]:
        # All columns decide the order of tuples, and so windows of tuples.
        return self.all_of(side) if isinstance(self.window, Ordered) else self.key_columns | self.takes(needed)

    @abstractmethod
    def takes(self, needed: set[str]) -> set[str]:
        """The columns of its input, besides the keys, that it uses in windows that divide time."""

    @property
    def filtered_before(self) -> dict[str, Expr]:
        """The output columns that a filter may use before the operator, and their expressions there: the keys."""
        return dict(self.keys)

    def by_answer(self) -> Node | None:
        # The CTI of frames waits only for the open slot, which is the same for all groups.
        return replace(self, final=True) if self.waits and not isinstance(self.window, Frame) else None

    @property
    def marks(self) -> str:
        zone = [self.window.mark] if isinstance(self.window, Calendar) else []
        return ", ".join([*zone, *(f"{module.name} {module.mark}" for module in self.modules)])

    def side(self) -> Node | None:
        return Failures(self) if self.modules and self.policy.on_error == "skip" else None

    def window_text(self) -> str:
        """The window, its policies and the keys, for `describe`."""
        policy = f" ({self.policy})" if str(self.policy) else ""
        return f"over {self.window}{policy}{self.per}{', final answers only' if self.final else ''}"

    def check_policy(self) -> None:
        """Refuse policies that do not apply."""
        if isinstance(self.window, Ordered):
            self._check_ordered(self.window)
        if isinstance(self.window, Calendar) and not self.input.dates:
            raise PlanError(
                "calendar windows are for streams whose times are dates",
                given=f"{self.window}, over times that are plain numbers",
                allowed="times from a DATETIME column, a clock, or dates in a drawn table",
                instead="a column of type DATETIME as the time, or a window in ticks: tumbling(100)",
            )
        if self.policy.clipping != "none" and not self.sensitive:
            raise PlanError(
                "clipping is for time-sensitive modules; others see no lifetimes",
                given=f"clipping={self.policy.clipping!r}",
                allowed="clipping='none'",
                instead="leave it out, or write time_sensitive = True in the module",
            )
        if self.policy.timestamping not in (None, "align", *self._own_times):
            raise PlanError(
                "only a time-sensitive operator may choose lifetimes",
                given=f"timestamping={self.policy.timestamping!r}",
                allowed=f"timestamping={' or '.join(map(repr, ('align', *self._own_times)))}",
                instead="leave it out: answers last as long as their window",
            )

    def _check_ordered(self, window: Ordered) -> None:
        window.check(self.input.schema)
        if self.policy.timestamping == "time_bound":
            raise PlanError(
                "windows of tuples are not bound to time: a window may start before the tuple that completes it",
                given="timestamping='time_bound'",
                allowed="align, unchanged, clip",
                instead="timestamping='unchanged'",
            )

    @property
    def _own_times(self) -> tuple[Timestamping, ...]:
        """The timestamping policies that are allowed besides `align`.

        Over snapshots every answer that depends on payloads alone is bound in time: parts of a split window keep it.
        """
        return ("time_bound",) if isinstance(self.window, Snapshot) else ()


@dataclass(frozen=True, eq=False)
class Failures(OneInput):
    """The windows whose module failed, with `on_error="skip"`: an operator's second output."""

    reach: ClassVar[Reach] = "streams"

    @cached_property
    def schema(self) -> Schema:
        return DIVERTED

    @cached_property
    def properties(self) -> Properties:
        below = self.input.properties
        return Properties(insert_only=False, settled=below.settled)

    @property
    def liveliness(self) -> Liveliness:
        return AS_INPUT

    def uses(self, side: int, needed: set[str]) -> set[str]:  # noqa: ARG002 - it has columns of its own
        return set()
