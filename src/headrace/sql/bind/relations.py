"""The items of FROM, while a query is bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.api.stream import Stream
from headrace.expr import Expr, col
from headrace.expr.python.node import fits
from headrace.expr.signatures import widens as number_widens
from headrace.plan.nodes import Select
from headrace.plan.windows import Hopping
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.scope import Relation, visible
from headrace.sql.bind.windows import Windowing

__all__ = ["Item", "fitted", "lasting", "plain", "same_columns", "standing", "widens"]


@dataclass(frozen=True)
class Item:
    """An item of FROM: a stream, its relations, and its windows."""

    stream: Stream
    relations: tuple[Relation, ...]
    windowing: Windowing | None = None
    #: The windows of its tuples, after a join of windows: each tuple lasts as long as its window.
    windows: Hopping | None = None
    #: Columns that stand for the times of the window, in a SELECT with aggregates.
    window_times: tuple[Field, ...] = ()
    #: The streams whose first event begins the answer of an aggregate without groups; (): the stream itself.
    shown: tuple[Stream, ...] = ()


def standing(part: s.Select, item: Item) -> tuple[Item, Hopping | None]:
    """Joined windows as windows again, with the grid for `lasting`: each tuple is placed at the start of its window,
    and all tuples there belong to one window.
    """
    joined = item.windows
    if joined is None:
        return item, None
    windowing = Windowing(part.source, Hopping(joined.hop, joined.hop, joined.origin), (), {})
    return replace(item, stream=item.stream.point_at_start(), windowing=windowing), joined


def lasting(stream: Stream, joined: Hopping | None) -> Stream:
    """The result over joined windows, for as long as these last."""
    return stream if joined is None or joined.size == joined.hop else stream.set_duration(joined.size)


def plain(stream: Stream) -> Stream:
    """A stream without the engine's own columns."""
    names = visible(stream.schema.names)
    return stream if len(names) == len(stream.schema.names) else stream.select(*names)


def same_columns(outputs: Sequence[tuple[str, Expr]], columns: Sequence[tuple[str, Expr]]) -> bool:
    """Whether outputs are exactly these columns, under their own names and in their order."""
    return [(name, str(expr)) for name, expr in outputs] == [(name, str(expr)) for name, expr in columns]


def fitted(context: Context, part: s.Part, stream: Stream, wanted: Schema | None) -> Stream:
    """A stream with the declared columns, matched by position; types may widen."""
    if wanted is None:
        return stream
    shown = plain(stream)
    if len(shown.schema) != len(wanted):
        raise context.error(
            part,
            "the declared columns are not those of the query",
            given=str(shown.schema),
            allowed=str(wanted),
        )
    outputs = []
    for actual, declared in zip(shown.schema, wanted, strict=True):
        if not widens(actual.type, declared.type):
            raise context.error(
                part,
                f"{actual} does not widen to {declared}",
                given=str(shown.schema),
                allowed=str(wanted),
                instead=f"CAST({actual.name} AS {declared.type.value})",
            )
        value = col(actual.name).code() if actual.type is Type.CHAR and declared.type.is_numeric else col(actual.name)
        outputs.append((declared.name, value if actual.type is declared.type else value.cast(declared.type)))
    if shown.schema == wanted:
        return shown
    return Stream(Select(shown.node, tuple(outputs)))


def widens(source: Type, target: Type) -> bool:
    """Whether values of one type are taken for another without a CAST (the dialect's table of types)."""
    code = source is Type.CHAR and number_widens(Type.INT, target)  # not every character has a number of 8 or 16 bits
    return fits(source, target) or (source.is_text and target.is_text) or code
