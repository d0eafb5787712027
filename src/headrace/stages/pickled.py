"""Pickled state, and its owner.

Nearly all state is Arrow columns, which any query can read safely. States of users' modules are pickled Python values.
Loading a pickle imports the classes that it names and runs their code, and only the code that wrote it can use it. So
the entry of such a trace in a commit has a key `pickled`, with the fingerprints of the query and of the operator that
saved it. Only this operator of this query may load it; any other is refused before it reads a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import CheckpointError
from headrace.modules.merged import MergedStates, PartialState
from headrace.plan.nodes import Node, Panes, walk
from headrace.stages.cut import Line

__all__ = ["PICKLED", "carries_states", "check_marked", "check_owner", "owner_mark"]

PICKLED = "pickled"


def owner_mark(line: Line, operator: str) -> dict[str, str]:
    """The owner of pickles: the query and the operator."""
    return {"query": line.fingerprint, "operator": operator}


def carries_states(line: Line) -> frozenset[str]:
    """The operators whose rows contain states of modules, computed before a shuffle and not merged yet."""
    found: set[str] = set()
    for node in line.nodes:
        fed = any(child.fingerprint in found for child in node.inputs)
        if _makes_states(node) or any(map(_makes_states, walk(*node.inside))) or (fed and not _merges_states(node)):
            found.add(node.fingerprint)
    readers = [n.fingerprint for n in line.nodes if any(child.fingerprint in found for child in n.inputs)]
    return frozenset([*found, *readers])


def _makes_states(node: Node) -> bool:
    return isinstance(node, Panes) or any(isinstance(m, PartialState) for m in getattr(node, "modules", ()))


def _merges_states(node: Node) -> bool:
    return any(isinstance(module, MergedStates) for module in getattr(node, "modules", ()))


def check_owner(line: Line, operator: str, traces: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise if a saved trace of an operator was pickled by another query or operator."""
    for name, saved in traces.items():
        if PICKLED in saved and saved[PICKLED] != owner_mark(line, operator):
            raise _refused(line, operator, name, saved[PICKLED])


def check_marked(line: Line, operator: str, pickled: Iterable[str], traces: Mapping[str, Mapping[str, Any]]) -> None:
    """`check_owner`, and raise if a trace in `pickled` has no owner."""
    check_owner(line, operator, traces)
    for name in pickled:
        if PICKLED not in traces[name]:
            raise _refused(line, operator, name, None)


def _refused(line: Line, operator: str, trace: str, given: object) -> CheckpointError:
    what = next((node.describe() for node in line.nodes if node.fingerprint == operator), operator)
    whose = "does not say which query saved it" if given is None else "was saved by another query or operator"
    return CheckpointError(
        f"the state {trace!r} of {what} is pickled and {whose}: loading it could run any code",
        given=given,
        allowed=str(owner_mark(line, operator)),
        instead="the checkpoint of this very query, or a new checkpoint",
    )
