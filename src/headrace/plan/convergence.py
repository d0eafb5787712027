"""Whether a loop is shown to come to rest, by looking at its body alone (rule 9.3).

Of distinct payloads there are finitely many as long as every value that goes round is one that came in, from the seed
or a stream beside it. A body that gives more for more then runs out of new ones. No other loop is shown to end: where
values are computed there may always be another, where lifetimes move there is always a later time, where more may take
back what less gave the rounds may swing for ever, and where every derivation counts a cycle in the data is enough. They
may well end on the data they meet, and are stopped when they do not.
"""

from __future__ import annotations

from headrace.expr.nodes import Column
from headrace.plan.base import walk
from headrace.plan.recurse import Recurse
from headrace.plan.span import Select, Shift

__all__ = ["why_it_may_not_end"]


def why_it_may_not_end(loop: Recurse) -> str | None:
    """What keeps one from saying that a loop always comes to rest; None if it does."""
    if not loop.distinct:
        return "every derivation counts: it ends where nothing is derived from itself"
    if not loop.circulates:
        return "its body may take back what it gave"
    for node in walk(loop.body):
        if isinstance(node, Shift) and node.by > 0:
            return f"{node.describe()} gives ever later times"
        if isinstance(node, Select) and not all(isinstance(e, Column) or not e.columns() for _, e in node.outputs):
            return f"{node.describe()} computes values, of which there may always be a new one"
    return None
