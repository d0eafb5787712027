"""What stands in FROM, while a query is bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.api.stream import Stream
from headrace.expr import Expr, col
from headrace.expr.python.node import fits
from headrace.plan.nodes import (
    Diverted,
    Final,
    Match,
    Node,
    Orphans,
    PointAtEnd,
    PointAtStart,
    Select,
    Shift,
    Source,
    Union,
    Where,
)
from headrace.plan.policies import Arrival, Point
from headrace.plan.windows import Grid
from headrace.schema import Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.scope import Relation, visible
from headrace.sql.bind.windows import Windowing

__all__ = ["Item", "fitted", "has_points", "lasting", "plain", "same_columns", "standing"]


@dataclass(frozen=True)
class Item:
    """What stands in FROM, so far."""

    stream: Stream
    relations: tuple[Relation, ...]
    windowing: Windowing | None = None
    #: The windows that its tuples are from, once windows are joined: each lasts as long as its window.
    windows: Grid | None = None


def standing(part: s.Select, item: Item) -> tuple[Item, Grid | None]:
    """Joined windows as windows again, with the grid that `lasting` takes: each tuple stands at the start of its
    window, and all that stand there are one window's.
    """
    joined = item.windows
    if joined is None:
        return item, None
    windowing = Windowing(part.source, Grid(joined.hop, joined.hop, joined.origin), (), {})
    return replace(item, stream=item.stream.point_at_start(), windowing=windowing), joined


def lasting(stream: Stream, joined: Grid | None) -> Stream:
    """What was made of joined windows, for as long as these last."""
    return stream if joined is None or joined.size == joined.hop else stream.set_duration(joined.size)


def plain(stream: Stream) -> Stream:
    """A stream without the columns that the engine added."""
    names = visible(stream.schema.names)
    return stream if len(names) == len(stream.schema.names) else stream.select(*names)


def has_points(node: Node) -> bool:
    """Whether a stream is of instants."""
    if isinstance(node, (Diverted, Match, Orphans, PointAtStart, PointAtEnd)):
        return True
    if isinstance(node, (Where, Select, Shift, Union, Final)):
        return all(has_points(child) for child in node.inputs)
    return isinstance(node, Source) and isinstance(node.lifetime, (Point, Arrival))


def same_columns(outputs: Sequence[tuple[str, Expr]], columns: Sequence[tuple[str, Expr]]) -> bool:
    """Whether outputs are just columns, under their own names and in their order."""
    return [(name, str(expr)) for name, expr in outputs] == [(name, str(expr)) for name, expr in columns]


def fitted(context: Context, part: s.Part, stream: Stream, wanted: Schema | None) -> Stream:
    """A stream with the columns that were declared: by their place, if types widen to them."""
    if wanted is None:
        return stream
    shown = plain(stream)
    if len(shown.schema) != len(wanted):
        raise context.error(
            part,
            "the columns declared are not those of the query",
            given=str(shown.schema),
            allowed=str(wanted),
        )
    outputs = []
    for mine, theirs in zip(shown.schema, wanted, strict=True):
        if not _widens(mine.type, theirs.type):
            raise context.error(
                part,
                f"{mine} does not become {theirs} by itself",
                given=str(shown.schema),
                allowed=str(wanted),
                instead=f"CAST({mine.name} AS {theirs.type.value})",
            )
        value = col(mine.name)
        outputs.append((theirs.name, value if mine.type is theirs.type else value.cast(theirs.type)))
    if shown.schema == wanted:
        return shown
    return Stream(Select(shown.node, tuple(outputs)))


def _widens(mine: Type, wanted: Type) -> bool:
    """Whether values of one type are taken for another without a CAST (the dialect's table of types)."""
    return fits(mine, wanted) or (mine.is_text and wanted.is_text)
