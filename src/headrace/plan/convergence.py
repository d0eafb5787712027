"""Whether the body of a loop proves that the loop terminates (rule 9.3).

There are finitely many distinct payloads if every value in the loop comes from the seed or from a stream beside it. A
monotone body then runs out of new payloads. No other loop is proved to end: computed values may always be new, moved
lifetimes have ever later times, a body that retracts may change for ever, and where every derivation counts, a cycle in
the data suffices. Such loops may still end on their data, and are stopped if they do not.
"""

from __future__ import annotations

from headrace.expr.nodes import Column
from headrace.plan.base import walk
from headrace.plan.recurse import Recurse
from headrace.plan.span import Select, Shift

__all__ = ["why_it_may_not_end"]


def why_it_may_not_end(loop: Recurse) -> str | None:
    """Why a loop may not terminate; None if it always does."""
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
