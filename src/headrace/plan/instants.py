"""Streams of instants, as far as a plan tells: which joins can find nothing to meet."""

from __future__ import annotations

from headrace.plan.base import Node
from headrace.plan.output import Final
from headrace.plan.pattern import Match
from headrace.plan.policies import Point
from headrace.plan.source import Diverted, Orphans, Source
from headrace.plan.span import PointAtEnd, PointAtStart, Select, Shift, Union, Where

__all__ = ["BOTH_INSTANTS", "has_points"]

#: What is wrong with a join of two streams of instants.
BOTH_INSTANTS = "a join needs to know how long each tuple can be met, and both sides are instants"


def has_points(node: Node) -> bool:
    """Whether a stream is of instants."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (Where, Select, Shift, Union, Final)):
            waiting += node.inputs
        elif isinstance(node, Source):
            if not isinstance(node.lifetime, Point):
                return False
        elif not isinstance(node, (Diverted, Match, Orphans, PointAtStart, PointAtEnd)):
            return False
    return True
