"""Every node class of the plan, in one place to import from."""

from headrace.plan.aggregate import Aggregate, Combine, Merge
from headrace.plan.base import Node, Properties, walk
from headrace.plan.clip import Clip
from headrace.plan.coalesce import Coalesce
from headrace.plan.contents import Contents
from headrace.plan.edge import EdgeLifetimes
from headrace.plan.explode import Explode
from headrace.plan.fold import Fold
from headrace.plan.group_apply import GroupApply, GroupInput
from headrace.plan.join import Join
from headrace.plan.lifetimes import AlterLifetime, Chop
from headrace.plan.operate import Operate, Top
from headrace.plan.output import Final, Output
from headrace.plan.over import Over
from headrace.plan.panes import Panes
from headrace.plan.pattern import Match
from headrace.plan.per_window import Failures, PerWindow
from headrace.plan.recurse import LoopInput, Recurse
from headrace.plan.source import DIVERTED, Admit, Diverted, Orphans, Source, diverted_streams, sources_of
from headrace.plan.span import (
    CapDuration,
    Extend,
    PointAtEnd,
    PointAtStart,
    Select,
    SetDuration,
    Shift,
    Union,
    Where,
)
from headrace.plan.spread import LoopEnd, LoopStart
from headrace.plan.table import TableJoin
from headrace.plan.times import EventTimes, HeldEventTimes

__all__ = [
    "DIVERTED", "Admit", "Aggregate", "AlterLifetime", "CapDuration", "Chop", "Clip", "Coalesce", "Combine",
    "Contents", "Diverted", "EdgeLifetimes", "EventTimes", "Explode", "Extend", "Failures", "Final", "Fold",
    "GroupApply", "GroupInput", "HeldEventTimes", "Join", "LoopEnd", "LoopInput", "LoopStart", "Match",
    "Merge", "Node", "Operate", "Orphans", "Output", "Over", "Panes", "PerWindow", "PointAtEnd",
    "PointAtStart", "Properties", "Recurse", "Select", "SetDuration", "Shift", "Source", "TableJoin", "Top",
    "Union", "Where", "diverted_streams", "sources_of", "walk",
]  # fmt: skip
