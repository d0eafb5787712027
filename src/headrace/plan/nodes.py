"""Every node class of the plan, in one place to import from."""

from headrace.plan.aggregate import Aggregate, Combine, Merge
from headrace.plan.base import Node, Properties, walk
from headrace.plan.edge import EdgeLifetimes
from headrace.plan.join import Join
from headrace.plan.output import Final, Output
from headrace.plan.source import DIVERTED, Admit, Diverted, Orphans, Source, set_aside
from headrace.plan.span import Extend, PointAtStart, Select, SetDuration, Shift, Union, Where

__all__ = [
    "DIVERTED", "Admit", "Aggregate", "Combine", "Diverted", "EdgeLifetimes", "Extend", "Final", "Join", "Merge",
    "Node", "Orphans", "Output", "PointAtStart", "Properties", "Select", "SetDuration", "Shift", "Source", "Union",
    "Where", "set_aside", "walk",
]  # fmt: skip
