"""Who shares what: for SHOW SHARING and EXPLAIN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.host.live_tables import followed
from headrace.optimizer import SHARED_RULES, optimize
from headrace.plan.nodes import Node, Output, Source, walk
from headrace.server.catalog import key_of
from headrace.server.queries import ServedQuery
from headrace.sql import syntax as s
from headrace.sql.outcomes import ShownTable

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer

__all__ = ["sharing_explained", "sharing_shown"]

_COLUMNS = ("query", "runs with", "operators", "shared", "alone because")


def sharing_shown(part: s.Show, server: HeadraceServer) -> ShownTable:
    """A row for each query: with which others it runs, and how many of its operators others use, too."""
    queries = [served.query for served in list(server.objects.values()) if served.query is not None]
    return ShownTable(part, _COLUMNS, tuple(_row(server, query) for query in queries))


def _row(server: HeadraceServer, query: ServedQuery) -> tuple[str, ...]:
    run = server.runs.run_of(query)
    others = [] if run is None else [member for member in run.members if member is not query]
    own = operators_of(query.planned[0])
    shared = [node for node in own.values() if any(node.fingerprint in operators_of(o.planned[0]) for o in others)]
    if others:
        return query.name, ", ".join(other.name for other in others), str(len(own)), str(len(shared)), ""
    why = query.why_alone() or ("it does not run" if run is None else "no other query reads what it reads")
    return query.name, "", str(len(own)), "0", why


def operators_of(planned: Output) -> dict[str, Node]:
    """The operators of a query that may share work, by fingerprint."""
    return {node.fingerprint: node for node in walk(planned.input)}


def sharing_explained(server: HeadraceServer, name: str | None, node: Node) -> str:
    """What a query has in common with others that run: of a query of the server, or of one that is only asked for."""
    served = server.objects.get(key_of("query", name)) if name is not None else None
    query = served.query if served is not None else None
    if query is not None:
        if why := query.why_alone():
            return f"It runs alone: {why}."
        planned = query.planned[0]
    else:
        (planned,) = optimize((Output(followed(node), "out"),), SHARED_RULES)
    own = operators_of(planned)
    lines = []
    for run in list(server.runs.runs):
        for member in run.members:
            if member is query or member.why_alone():
                continue
            common = [one for one in operators_of(member.planned[0]).values() if one.fingerprint in own]
            if any(isinstance(one, Source) for one in common):
                together = "shares" if query in run.members else "would share"
                lines.append(f"  {together} with {member.name}: {'; '.join(one.describe() for one in common)}")
    return "\n".join(["Sharing", *lines]) if lines else "No query that runs reads what it reads."
