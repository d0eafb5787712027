"""What stands in FROM, while a query is bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.api.stream import Stream
from headrace.expr import Expr
from headrace.plan.nodes import Final, Node, PointAtEnd, PointAtStart, Select, Shift, Source, Union, Where
from headrace.plan.policies import Arrival, Point
from headrace.plan.windows import Grid
from headrace.sql.bind.scope import Relation, visible
from headrace.sql.bind.windows import Windowing

__all__ = ["Item", "has_points", "plain", "same_columns"]


@dataclass(frozen=True)
class Item:
    """What stands in FROM, so far."""

    stream: Stream
    relations: tuple[Relation, ...]
    windowing: Windowing | None = None
    #: The windows that its tuples are from, once windows are joined: each lasts as long as its window.
    windows: Grid | None = None


def plain(stream: Stream) -> Stream:
    """A stream without the columns that the engine added."""
    names = visible(stream.schema.names)
    return stream if len(names) == len(stream.schema.names) else stream.select(*names)


def has_points(node: Node) -> bool:
    """Whether a stream is of instants."""
    if isinstance(node, (PointAtStart, PointAtEnd)):
        return True
    if isinstance(node, (Where, Select, Shift, Union, Final)):
        return all(has_points(child) for child in node.inputs)
    return isinstance(node, Source) and isinstance(node.lifetime, (Point, Arrival))


def same_columns(outputs: Sequence[tuple[str, Expr]], columns: Sequence[tuple[str, Expr]]) -> bool:
    """Whether outputs are just columns, under their own names and in their order."""
    return [(name, str(expr)) for name, expr in outputs] == [(name, str(expr)) for name, expr in columns]
