"""Windows as other dialects write them: functions in FROM, `TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)`, and
in GROUP BY, `TUMBLE(ts, INTERVAL '10' SECOND)`. Both become the brackets after a stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.sql import syntax as s
from headrace.sql.build.expressions import Token
from headrace.sql.syntax import Span
from headrace.sql.syntax.rewrite import rewritten
from headrace.time import duration

if TYPE_CHECKING:
    from headrace.sql.build.queries import QueryBuilder as Builder

__all__ = ["window_call", "with_window_functions"]

#: The parameters behind the rows and their time; the last is the offset of the grid.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "TUMBLE": ("size", "offset"),
    "HOP": ("slide", "size", "offset"),
    "SESSION": ("gap",),
    "CUMULATE": ("step", "size", "offset"),
}
_FORMS = {
    "TUMBLE": "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "HOP": "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND): the slide, then the size",
    "SESSION": "SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
    "CUMULATE": "CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY): the step, then the size",
}
_IN_FROM = re.compile(r"(?:TABLE\s*\(\s*)?(?:TUMBLE|HOP|SESSION|CUMULATE)\s*\(", re.IGNORECASE)
_TIMES = re.compile(r"(?:TUMBLE|HOP|SESSION)_(START|END)", re.IGNORECASE)
_WINDOW_TIMES = ("window_start", "window_end")
#: How many windows CUMULATE may have that begin together: each is a query of its own.
MAX_STEPS = 400


def window_call(builder: Builder, at: Span, parts: Sequence[Any]) -> s.FromItem:
    """The item of FROM that a window function stands for."""
    kind = next(part for part in parts if isinstance(part, Token) and part.kind == "WINDOW_FUNCTION").text.upper()
    given = _Given(builder, at, kind)
    names: list[s.Name] = []
    for part in parts:
        if isinstance(part, s.Name):
            names = [part]
        elif isinstance(part, s.Named):
            given.add(part.value, part.name)
        elif not isinstance(part, Token):
            given.add(part, names.pop() if names else None)
    return given.item()


class _Given:
    """The arguments of a window function, by position or by name."""

    def __init__(self, builder: Builder, at: Span, kind: str) -> None:
        self.builder, self.at, self.kind = builder, at, kind
        self.wanted = ("data", "timecol", *_PARAMETERS[kind])
        self.values: dict[str, Any] = {}

    def add(self, value: Any, name: s.Name | None) -> None:
        """An argument."""
        free = [one for one in self.wanted if one not in self.values]
        key = name.text.lower() if name is not None else next(iter(free), "")
        if key not in free:
            self.fail("this argument has no place here", (name or value).at)
        self.values[key] = value

    def fail(self, message: str, at: Span | None = None) -> Any:
        """Raise an error with the form of the function."""
        self.builder.fail(f"{self.kind}: {message}", at or self.at, instead=_FORMS[self.kind])

    def item(self) -> s.FromItem:
        """The stream with its window in brackets."""
        missing = [one for one in self.wanted if one not in self.values and one != "offset"]
        if missing:
            self.fail(f"the argument {missing[0]} is missing")
        rows, column = self.values["data"], self.values["timecol"]
        if isinstance(rows, s.Column) and rows.stream is None:
            rows = s.FromItem(rows.name, at=rows.at)
        if not isinstance(rows, s.FromItem) or not isinstance(column, s.Column):
            self.fail("the rows are a stream, and their time is a column of it")
        keys = rows.brackets[0].partition if rows.brackets else ()
        return s.FromItem(rows.stream, (self._window(column, keys),), at=self.at)

    def _window(self, column: s.Column, keys: tuple[s.Column, ...]) -> s.Window:
        more: dict[str, Any] = {"on": column, "partition": keys, "at": self.at}
        spans = [self._span(name) for name in _PARAMETERS[self.kind] if name in self.values and name != "offset"]
        if self.kind == "SESSION":
            return s.SessionWindow(spans[0], **more)
        starting = self.values.get("offset")
        if isinstance(starting, s.Duration):
            starting = s.Number(_ticks(self.builder, starting)) if _whole(starting) else starting
        if self.kind == "TUMBLE":
            return s.GridWindow(spans[0], starting=starting, **more)
        return s.GridWindow(spans[1], spans[0], starting, **more)

    def _span(self, name: str) -> s.Duration:
        value = self.values[name]
        if not isinstance(value, s.Duration):
            self.fail(f"the argument {name} is an interval", value.at)
        found: s.Duration = replace(value, interval=False)
        return found


def _whole(part: s.Duration) -> bool:
    return not any(unit.lower().rstrip("s") in ("month", "quarter", "year") for _, unit in part.amounts)


def _ticks(builder: Builder, part: s.Duration) -> int:
    try:
        return duration(" ".join(f"{amount} {unit}" for amount, unit in part.amounts))
    except HeadraceError as error:
        return builder.fail(error.message, part.at, given=error.given)


# --- a SELECT with window functions ----------------------------------------------------------------------------------


def with_window_functions(builder: Builder, part: s.Select) -> s.Body:
    """A SELECT whose windows are brackets, and its names of times those of the brackets."""
    part = _grouped_by_function(builder, part)
    items = [part.source, *(join.right for join in part.joins)]
    functions = [item for item in items if _IN_FROM.match(builder.text, item.at[0])]
    if not functions:
        return part
    called = [item.alias or item.stream for item in functions]
    names = {name.text.lower() for name in called if isinstance(name, s.Name)}
    group = tuple(entry for entry in part.group if not _is_column(entry.value, "window_time"))
    joined = bool(part.joins) and not part.group
    entries = tuple(_called(entry) for entry in part.entries)
    part = rewritten(replace(part, group=group, entries=entries), lambda one: _plain_time(one, names, joined=joined))
    part = replace(part, joins=tuple(replace(join, on=_of_rows(join.on)) for join in part.joins))
    if not part.joins:
        part = replace(part, entries=tuple(new for entry in part.entries for new in _with_times(entry)))
    if builder.text[part.source.at[0] :].upper().lstrip("TABLE( \t\n").startswith("CUMULATE"):
        return _cumulated(builder, part)
    return part


def _called(entry: s.Entry) -> s.Entry:
    """An entry that is a time of a window, with its name, which another expression will stand for."""
    of_window = entry.alias is None and _is_column(entry.value, *_WINDOW_TIMES, "window_time")
    return replace(entry, alias=entry.value.name) if of_window and isinstance(entry.value, s.Column) else entry


def _plain_time(one: s.Part, names: set[str], *, joined: bool) -> s.Part | None:
    """`w.window_start` of a window function without the name, because joined windows have the same times.

    `window_time` is the last instant of a window. The pairs of joined windows last as long as these.
    """
    if isinstance(one, s.Subquery):
        return one
    if not isinstance(one, s.Column) or (one.stream is not None and one.stream.text.lower() not in names):
        return None
    if _is_column(one, "window_time"):
        end = s.Column(s.Name("re" if joined else "window_end", at=one.at), at=one.at)
        return s.Binary("-", end, s.Duration(((1, "us"),), at=one.at), at=one.at)
    if not _is_column(one, *_WINDOW_TIMES):
        return None
    name = {"window_start": "le", "window_end": "re"}[one.name.text.lower()] if joined else one.name.text
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
    return None if same and _is_column(condition.left, *_WINDOW_TIMES, "le", "re") else condition


def _with_times(entry: s.Entry) -> list[s.Entry]:
    """`*` of a window function has the times of the window."""
    if not isinstance(entry.value, s.Star):
        return [entry]
    times = [s.Column(s.Name(name, at=entry.at), at=entry.at) for name in _WINDOW_TIMES]
    return [entry, *(s.Entry(time, at=entry.at) for time in times)]


def _grouped_by_function(builder: Builder, part: s.Select) -> s.Select:
    """GROUP BY TUMBLE(ts, …), with TUMBLE_START and TUMBLE_END."""
    calls = [entry.value for entry in part.group if _grid_call(entry.value)]
    if not calls:
        return part
    call = calls[0]
    assert isinstance(call, s.Call)
    given = _Given(builder, call.at, call.name[0].text.upper())
    given.values["data"] = s.FromItem(part.source.stream, at=part.source.at)
    for value in call.arguments:
        given.add(value, None)
    if len(calls) > 1 or part.joins or part.source.brackets:
        given.fail("a query is grouped by one window of its only stream")
    source = replace(part.source, brackets=given.item().brackets)
    group = tuple(entry for entry in part.group if entry.value is not call)
    return rewritten(replace(part, source=source, group=group), _time_of_call)


def _grid_call(value: s.Expression) -> bool:
    return isinstance(value, s.Call) and len(value.name) == 1 and value.name[0].text.upper() in _PARAMETERS


def _time_of_call(one: s.Part) -> s.Part | None:
    """`TUMBLE_START(ts, …)` as `window_start`."""
    if isinstance(one, s.Subquery):
        return one
    found = _TIMES.fullmatch(one.name[0].text) if isinstance(one, s.Call) and len(one.name) == 1 else None
    return s.Column(s.Name(f"window_{found[1].lower()}", at=one.at), at=one.at) if found else None


def _cumulated(builder: Builder, part: s.Select) -> s.Body:
    """The windows that grow by a step up to their size: for each number of steps, windows that begin together."""
    window = part.source.brackets[-1]
    assert isinstance(window, s.GridWindow)
    assert window.every is not None
    size, step = _ticks(builder, window.size), _ticks(builder, window.every)
    if part.joins or step <= 0 or size % step or size // step > MAX_STEPS:
        builder.fail(
            f"CUMULATE: the size is a multiple of the step, up to {MAX_STEPS} of them, and the stream is the only one",
            part.source.at,
            instead=_FORMS["CUMULATE"],
        )
    grown = [s.Duration(((number * step, "us"),), at=window.at) for number in range(1, size // step + 1)]
    every = s.Duration(((size, "us"),), at=window.at)
    windows = [replace(window, size=one, every=every) for one in grown]
    selects = [replace(part, source=replace(part.source, brackets=(one,))) for one in windows]
    found: s.Body = selects[0]
    for one in selects[1:]:
        found = s.SetOperation("union", found, one, all=True, at=part.at)
    return found
