"""The window functions of FROM: `TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)`.

Over a stream of instants they are the brackets after it, which divide its time. Over rows that last, the value in the
column says in which windows a row is, and `window_start` and `window_end` are columns like others (`in_windows`); only
`DESCRIPTOR(le)`, which is no column, means the time of the rows there, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.api import windows as api
from headrace.api.column_windows import WINDOW_COLUMNS, in_growing_windows, in_windows
from headrace.api.stream import Stream
from headrace.plan.instants import has_points
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import inside
from headrace.sql.bind.relations import Item
from headrace.sql.bind.values import calendar_of, duration_of, ticks_of, unit_of_type
from headrace.sql.bind.windows import OWN_TIME, Tick
from headrace.sql.printer import to_sql
from headrace.sql.syntax.rewrite import rewritten

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["around_windows", "in_column_windows", "with_brackets"]

#: How many windows CUMULATE of a stream may have that begin together: each is a query of its own.
MAX_STEPS = 400


def _items(part: s.Select) -> list[s.FromItem]:
    return [part.source, *(join.right for join in part.joins)]


# --- rows that last --------------------------------------------------------------------------------------------------


def in_column_windows(queries: Queries, part: s.WindowFunction, item: Item) -> Item:
    """Rows that last, each with the times of its windows by a column."""
    context = queries.context
    if part.kind == "SESSION":
        raise context.error(
            part,
            "SESSION: over rows that last, windows are made of the value of a column, and sessions of several rows",
            given=to_sql(part),
            allowed="TUMBLE, HOP and CUMULATE",
            instead="FROM stream [NOW] [SESSION 5 min], whose rows are instants",
        )
    if part.keys:
        raise context.error(
            part.keys[0],
            f"{part.kind}: over rows that last, all rows have the same windows",
            given=f"PARTITION BY {', '.join(map(to_sql, part.keys))}",
            instead="GROUP BY with these columns",
        )
    time = queries.expressions(item).bind(part.time)
    unit = unit_of_type(time.type(item.stream.schema))
    with context.at(part.time):
        if part.kind == "CUMULATE":
            size, step = _steps(context, part)
            node = in_growing_windows(item.stream.node, time, size, step, _origin(context, part, unit))
        else:
            node = in_windows(item.stream.node, time, _grid(context, part, unit))
    [relation] = item.relations
    columns = {**relation.columns, **{name: name for name in WINDOW_COLUMNS}}
    return replace(item, stream=Stream(node), relations=(replace(relation, columns=columns),))


def _grid(context: Context, part: s.WindowFunction, unit: int) -> Any:
    size, every = part.spans[-1], part.spans[0]
    with context.at(part):
        if any(calendar_of(context, span)[0] for span in part.spans):
            return api.hopping(to_sql(size), to_sql(every))
        return api.hopping(duration_of(context, size), duration_of(context, every), _origin(context, part, unit))


def _origin(context: Context, part: s.WindowFunction, unit: int) -> int:
    return 0 if part.offset is None else ticks_of(context, part.offset, unit)


def _steps(context: Context, part: s.WindowFunction) -> tuple[int, int]:
    """The size and the step of CUMULATE."""
    step, size = (duration_of(context, span) for span in part.spans)
    if step <= 0 or size % step or size // step > MAX_STEPS:
        raise context.error(
            part,
            f"CUMULATE: the size is a multiple of the step, up to {MAX_STEPS} of them",
            given=to_sql(part),
            instead="CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY): the step, then the size",
        )
    return size, step


# --- OVER the rows of windows ----------------------------------------------------------------------------------------


def around_windows(part: s.Select) -> s.Select:
    """A SELECT with OVER over a window function, as one over the rows of its windows, which last as long as these."""
    places = (*part.entries, *(() if part.qualify is None else (part.qualify,)))
    framed = any(isinstance(one, s.Call) and one.over is not None for place in places for one in inside(place))
    item, function = part.source, part.source.stream
    if not framed or part.joins or part.group or not isinstance(function, s.WindowFunction):
        return part
    rows = s.Select((s.Entry(s.Star(None, at=item.at), at=item.at),), item, where=part.where, at=part.at)
    name = item.alias or (function.rows.stream if isinstance(function.rows.stream, s.Name) else None)
    source = s.FromItem(s.Subquery(s.Query(rows, at=part.at), at=part.at), alias=name, at=item.at)
    return replace(part, source=source, where=None)


# --- streams of instants ---------------------------------------------------------------------------------------------


def with_brackets(queries: Queries, part: s.Select, tick: Tick) -> s.Body:
    """A SELECT whose window functions over streams of instants are brackets, and their times those of the brackets."""
    functions = [item for item in _items(part) if _divides_time(queries, item, tick)]
    lasting = [item for item in _items(part) if isinstance(item.stream, s.WindowFunction) and item not in functions]
    part = rewritten(part, lambda one: _ending(one, set(map(_name, lasting)), bare=not functions)) if lasting else part
    if not functions:
        return part
    joined = bool(part.joins) and not part.group
    group = tuple(entry for entry in part.group if not _is_column(entry.value, "window_time"))
    entries = tuple(_called(entry) for entry in part.entries)
    names = set(map(_name, functions))
    part = rewritten(replace(part, group=group, entries=entries), lambda one: _plain_time(one, names, joined=joined))
    part = replace(
        part,
        source=_bracketed(part.source) if part.source in functions else part.source,
        joins=tuple(
            replace(join, on=_of_rows(join.on), right=_bracketed(join.right) if join.right in functions else join.right)
            for join in part.joins
        ),
    )
    if not part.joins:
        part = replace(part, entries=tuple(new for entry in part.entries for new in _with_times(entry)))
    cumulated = functions[0].stream
    assert isinstance(cumulated, s.WindowFunction)
    return _cumulated(queries.context, part, cumulated) if cumulated.kind == "CUMULATE" else part


def _divides_time(queries: Queries, item: s.FromItem, tick: Tick) -> bool:
    """Whether a window function is about the time of its rows, not about the value of a column."""
    function = item.stream
    if not isinstance(function, s.WindowFunction):
        return False
    own = function.time.stream is None and function.time.name.text.lower() == OWN_TIME
    rows = queries.item(function.rows, tick)
    return has_points(rows.stream.node) or (own and OWN_TIME not in rows.stream.schema)


def _name(item: s.FromItem) -> str:
    """The name of a window function in a SELECT, in lower case: that of its rows, if it has no other."""
    assert isinstance(item.stream, s.WindowFunction)
    name = item.alias or item.stream.rows.stream
    return name.text.lower() if isinstance(name, s.Name) else ""


def _bracketed(item: s.FromItem) -> s.FromItem:
    """The rows of a window function with its window in brackets."""
    function = item.stream
    assert isinstance(function, s.WindowFunction)
    more: dict[str, Any] = {"on": function.time, "partition": function.keys, "at": function.at}
    size, slide = function.spans[-1], function.spans[0]
    window: s.Window
    if function.kind == "SESSION":
        window = s.SessionWindow(size, **more)
    else:
        window = s.GridWindow(size, None if function.kind == "TUMBLE" else slide, function.offset, **more)
    return replace(item, stream=function.rows.stream, brackets=(window,))


def _called(entry: s.Entry) -> s.Entry:
    """An entry that is a time of a window, with its name, which another expression will stand for."""
    of_window = entry.alias is None and _is_column(entry.value, *WINDOW_COLUMNS, "window_time")
    return replace(entry, alias=entry.value.name) if of_window and isinstance(entry.value, s.Column) else entry


def _ending(one: s.Part, names: set[str], *, bare: bool) -> s.Part | None:
    """`window_time` of rows that last, which is the last instant of a window; `bare`: also without a name."""
    if isinstance(one, (s.FromItem, s.Subquery)):
        return one
    if isinstance(one, s.Entry) and isinstance(value := _ending(one.value, names, bare=bare), s.Expression):
        return replace(_called(one), value=value)
    if not isinstance(one, s.Column) or not _is_column(one, "window_time"):
        return None
    if one.stream.text.lower() not in names if one.stream is not None else not bare:
        return None
    end = replace(one, name=replace(one.name, text=WINDOW_COLUMNS[1]))
    return s.Binary("-", end, s.Duration(((1, "us"),), at=one.at), at=one.at)


def _plain_time(one: s.Part, names: set[str], *, joined: bool) -> s.Part | None:
    """`w.window_start` of a window function without the name, because joined windows have the same times.

    `window_time` is the last instant of a window. The pairs of joined windows last as long as these.
    """
    if isinstance(one, (s.FromItem, s.Subquery)):
        return one
    if not isinstance(one, s.Column) or (one.stream is not None and one.stream.text.lower() not in names):
        return None
    if _is_column(one, "window_time"):
        end = s.Column(s.Name("re" if joined else WINDOW_COLUMNS[1], at=one.at), at=one.at)
        return s.Binary("-", end, s.Duration(((1, "us"),), at=one.at), at=one.at)
    if not _is_column(one, *WINDOW_COLUMNS):
        return None
    name = dict(zip(WINDOW_COLUMNS, ("le", "re"), strict=True))[one.name.text.lower()] if joined else one.name.text
    return replace(one, name=replace(one.name, text=name), stream=None)


def _is_column(one: s.Part, *names: str) -> bool:
    return isinstance(one, s.Column) and one.name.text.lower() in names


def _of_rows(condition: s.Expression | None) -> s.Expression | None:
    """The condition of a join without `a.window_start = b.window_start`: only rows of the same window meet."""
    if not isinstance(condition, s.Binary):
        return condition
    if condition.operator == "AND":
        left, right = _of_rows(condition.left), _of_rows(condition.right)
        return replace(condition, left=left, right=right) if left and right else left or right
    same = condition.operator == "=" and condition.left == condition.right
    return None if same and _is_column(condition.left, *WINDOW_COLUMNS, "le", "re") else condition


def _with_times(entry: s.Entry) -> list[s.Entry]:
    """`*` of a window function has the times of the window."""
    if not isinstance(entry.value, s.Star):
        return [entry]
    times = [s.Column(s.Name(name, at=entry.at), at=entry.at) for name in WINDOW_COLUMNS]
    return [entry, *(s.Entry(time, at=entry.at) for time in times)]


def _cumulated(context: Context, part: s.Select, function: s.WindowFunction) -> s.Body:
    """The windows that grow by a step up to their size: for each number of steps, windows that begin together."""
    size, step = _steps(context, function)
    window = part.source.brackets[-1]
    assert isinstance(window, s.GridWindow)
    if part.joins:
        raise context.error(
            function,
            "CUMULATE: its stream is the only one of FROM",
            given=to_sql(function),
            instead="FROM (SELECT … FROM CUMULATE(…)) AS c JOIN …",
        )
    grown = [s.Duration(((number * step, "us"),), at=window.at) for number in range(1, size // step + 1)]
    every = s.Duration(((size, "us"),), at=window.at)
    windows = [replace(window, size=one, every=every) for one in grown]
    selects = [replace(part, source=replace(part.source, brackets=(one,))) for one in windows]
    found: s.Body = selects[0]
    for one in selects[1:]:
        found = s.SetOperation("union", found, one, all=True, at=part.at)
    return found
