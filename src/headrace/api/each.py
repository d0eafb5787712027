"""Every event with aggregates of its window: a plan of other operators (rule 5.5).

The windows' answers are joined to the first instants of events, group by group, and events get their ends back. So an
event keeps its lifetime, even if it outlasts its window, and everything that is known about windows, joins and
lifetimes holds: corrections, promises, groups within groups, batch SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.expr import col
from headrace.expr.times import end
from headrace.plan.windows import Grid, Session, WindowKind

if TYPE_CHECKING:
    from headrace.api.stream import Stream

__all__ = ["check_one_window", "with_answers"]


def check_one_window(window: WindowKind) -> None:
    """Refuse windows of which an event may be in several."""
    if isinstance(window, Session) or (isinstance(window, Grid) and window.overlap == 1):
        return
    raise PlanError(
        "an event may be in several of these windows, or in none that it starts in",
        given=str(window),
        allowed="windows that do not overlap: session(...), tumbling(...)",
        instead="window(hr.session('30 min')).with_columns(n=hr.count()), or contents(), which copies events",
    )


def with_answers(events: Stream, answers: Stream, names: Sequence[str]) -> Stream:
    """Each event with the columns `names` of the answers for the window that it starts in."""
    own = [name for name in events.schema.names if name not in names]
    until = _new_name("until", [*events.schema.names, *names])
    starts = events.select(*own, **{until: end()}).point_at_start()
    return starts.join(answers).alter_lifetime(end=col(until)).select(*own, *names)


def _new_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name
