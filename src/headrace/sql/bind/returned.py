"""Aggregates that return rows, in the list of a SELECT: `SELECT tag, cases(tag, seen) OVER (...) FROM s` (rule 7.5).

The rows of the aggregate are beside the columns of the tuple at which they were returned: the call stands for all of
its columns. With ACTIVE EXPIRATION only what PARTITION BY names is beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.api.stream import Stream
from headrace.modules import Operator
from headrace.plan.nodes import Fold
from headrace.sql import syntax as s
from headrace.sql.bind.expressions import module_called
from headrace.sql.bind.relations import Item
from headrace.sql.bind.scope import Relation
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["check_active", "gives_rows", "with_frame", "with_rows"]

#: The relation of a call's rows; no stream has this name.
_ROWS = "__rows"


def gives_rows(part: Any, known: Mapping[str, Any]) -> bool:
    """Whether a part calls an aggregate or a module that returns rows."""
    if not isinstance(part, s.Call):
        return False
    found = known.get(".".join(one.text for one in part.name))
    return isinstance(found, Operator) or (isinstance(found, type) and issubclass(found, Operator))


def with_frame(part: s.Select, known: Mapping[str, Any]) -> s.Select:
    """Calls of nonblocking aggregates that return rows, over all tuples that precede each tuple of their group."""
    over = s.Over(tuple(entry.value for entry in part.group))
    entries = []
    for entry in part.entries:
        call = entry.value
        if gives_rows(call, known) and isinstance(call, s.Call) and call.over is None:
            found = known[".".join(one.text for one in call.name)]
            if getattr(found, "blocking", True) is False:
                entry = replace(entry, value=replace(call, over=over))
        entries.append(entry)
    framed = tuple(entries)
    return part if framed == part.entries else replace(part, entries=framed, group=())


def with_rows(queries: Queries, part: s.Select, item: Item, given: Mapping[s.Call, str]) -> tuple[s.Select, Item]:
    """The SELECT with such a call replaced by its columns, over a stream that has them."""
    own = queries.catalog.known
    calls = [entry for entry in part.entries if gives_rows(entry.value, own) and entry.value.over is not None]  # type: ignore[attr-defined]
    if not calls:
        return part, item
    if len(calls) > 1 or calls[0].alias is not None:
        raise queries.context.error(
            calls[-1],
            "a list has at most one aggregate that returns rows, and its columns have names",
            given=to_sql(calls[-1]),
            allowed="one such call, without AS",
            instead="a query for each",
        )
    call = calls[0].value
    assert isinstance(call, s.Call)
    assert call.over is not None
    check_active(queries, part, call.over)
    module = module_called(queries.context, call, own)
    expressions = queries.expressions(item, aggregates=True, given=given)
    keys = [expressions.bind(key) for key in call.over.partition]
    with queries.context.at(call):
        mapping = tuple(module.mapping([expressions.bind(one) for one in call.arguments], {}).items())
        made = item.stream.group_by(*keys).over(**queries.frame(call.over, item.stream))
        below, grouped, active = made.grouped.stream.node, made.grouped.keys, call.over.active
        # Columns of the tuple may have the same names.
        names = {name: f"_sql_{name}" if name in below.schema.names else name for name in module.gives.names}
        node = Fold(
            below, grouped, made.frame, module, mapping, tuple(names.values()), active=active, policy=made.policy
        )
    rows = Relation(_ROWS, names, by_name=True)
    found = replace(item, stream=Stream(node), relations=(*item.relations, rows))
    columns = tuple(
        s.Entry(s.Column(_name(name, call), _name(_ROWS, call), at=call.at), _name(name, call), at=call.at)
        for name in names
    )
    entries = [one for entry in part.entries for one in (columns if entry is calls[0] else (entry,))]
    return replace(part, entries=tuple(entries)), found


def _name(text: str, call: s.Call) -> s.Name:
    return s.Name(text, quoted=True, at=call.at)


def check_active(queries: Queries, part: s.Select, over: s.Over) -> None:
    """Check that rows returned when a tuple leaves stand beside keys only."""
    if not over.active:
        return
    for entry in part.entries:
        if isinstance(entry.value, s.Call) and entry.value.over is over:
            continue
        if entry.value not in over.partition:
            raise queries.context.error(
                entry,
                "rows returned when a tuple leaves have no current tuple beside them",
                given=to_sql(entry),
                allowed="the columns of PARTITION BY, and the aggregate",
                instead=f"return it, or PARTITION BY {to_sql(entry.value)}",
            )
