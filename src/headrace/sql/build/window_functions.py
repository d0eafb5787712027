"""Windows as other dialects write them: functions in FROM, `TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)`, and
in GROUP BY, `TUMBLE(ts, INTERVAL '10' SECOND)`. The latter become the former.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.sql import syntax as s
from headrace.sql.build.expressions import Token
from headrace.sql.syntax import Span
from headrace.sql.syntax.rewrite import rewritten

if TYPE_CHECKING:
    from headrace.sql.build.queries import QueryBuilder as Builder

__all__ = ["grouped_by_function", "window_call"]

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
_TIMES = re.compile(r"(?:TUMBLE|HOP|SESSION)_(START|END)", re.IGNORECASE)


def window_call(builder: Builder, at: Span, parts: Sequence[Any]) -> s.FromItem:
    """The item of FROM that is a window function."""
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
    return s.FromItem(given.function(), at=at)


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

    def function(self) -> s.WindowFunction:
        """The function with its arguments."""
        missing = [one for one in self.wanted if one not in self.values and one != "offset"]
        if missing:
            self.fail(f"the argument {missing[0]} is missing")
        rows, time = _rows(self.values["data"]), self.values["timecol"]
        if rows is None or not isinstance(time, s.Column):
            self.fail("the rows are a stream, and their time is a column of it")
        assert rows is not None
        keys = tuple(key for one in rows.brackets if isinstance(one, s.Window) for key in one.partition)
        spans = tuple(self._span(name) for name in _PARAMETERS[self.kind] if name != "offset")
        kind: Any = self.kind
        return s.WindowFunction(
            kind, replace(rows, brackets=()), time, spans, self.values.get("offset"), keys, at=self.at
        )

    def _span(self, name: str) -> s.Duration:
        value = self.values[name]
        if not isinstance(value, s.Duration):
            self.fail(f"the argument {name} is an interval", value.at)
        found: s.Duration = replace(value, interval=False)
        return found


def _rows(value: Any) -> s.FromItem | None:
    """The rows of a window function: a name, or a query in parentheses."""
    if isinstance(value, s.Column) and value.stream is None:
        return s.FromItem(value.name, at=value.at)
    if isinstance(value, s.ScalarQuery):
        return s.FromItem(s.Subquery(value.query, at=value.at), at=value.at)
    return value if isinstance(value, s.FromItem) else None


# --- GROUP BY --------------------------------------------------------------------------------------------------------


def grouped_by_function(builder: Builder, part: s.Select) -> s.Select:
    """GROUP BY TUMBLE(ts, …), with TUMBLE_START and TUMBLE_END, as a window function in FROM."""
    calls = [entry.value for entry in part.group if _is_function(entry.value)]
    if not calls:
        return part
    call = calls[0]
    assert isinstance(call, s.Call)
    given = _Given(builder, call.at, call.name[0].text.upper())
    given.values["data"] = s.FromItem(part.source.stream, at=part.source.at)
    for value in call.arguments:
        given.add(value, None)
    plain = isinstance(part.source.stream, (s.Name, s.Subquery)) and not part.source.brackets
    if len(calls) > 1 or part.joins or not plain:
        given.fail("a query is grouped by one window of its only stream")
    source = replace(part.source, stream=given.function())
    group: list[s.Entry] = []
    for entry in part.group:
        group += _times(entry.at) if entry.value is call else [entry]
    return rewritten(replace(part, source=source, group=tuple(group)), _time_of_call)


def _times(at: Span) -> list[s.Entry]:
    return [s.Entry(s.Column(s.Name(name, at=at), at=at), at=at) for name in ("window_start", "window_end")]


def _is_function(value: s.Expression) -> bool:
    return isinstance(value, s.Call) and len(value.name) == 1 and value.name[0].text.upper() in _PARAMETERS


def _time_of_call(one: s.Part) -> s.Part | None:
    """`TUMBLE_START(ts, …)` as `window_start`."""
    if isinstance(one, s.Subquery):
        return one
    found = _TIMES.fullmatch(one.name[0].text) if isinstance(one, s.Call) and len(one.name) == 1 else None
    return s.Column(s.Name(f"window_{found[1].lower()}", at=one.at), at=one.at) if found else None
