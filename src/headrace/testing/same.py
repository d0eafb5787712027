"""Check that two streams have the same history (rule 1.4), with a readable table of the differences.

    assert_same_history(
        trades.group_by("symbol").window(hr.tumbling(10)).aggregate(n=hr.count()),
        '''
        le | re | symbol | n
        0  | 10 | A      | 2
        10 | 20 | A      | 1
        ''',
    )

A row whose lifetime alone differs is shown as one difference, not as an extra row and a missing one: most mistakes in
temporal queries look like this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.api.history import History
from headrace.api.running import Run
from headrace.api.stream import Stream
from headrace.border import as_ticks, is_shown, lifetimes
from headrace.changes import Changes, up_to
from headrace.columnar import canonical_floats, factorize
from headrace.display.words import counted
from headrace.errors import EventError, SchemaError
from headrace.events import check_events, events_and_dates, events_table, to_changes
from headrace.events import history as history_of
from headrace.schema import RESERVED, Schema, Type
from headrace.testing.checks import Violation
from headrace.time import INFINITY, TimeLike, format_ticks, ticks

__all__ = ["DifferentHistory", "aligned", "assert_same_history", "history_differences", "read_history"]

#: A stream to run, a finished run, or events: a drawn table, a list of dicts, an Arrow table, a pandas frame.
HistoryLike: TypeAlias = "Stream | Run | pa.Table | str | Sequence[Mapping[str, Any]] | Any"
#: A history in ticks, and whether its times are dates.
_Dated: TypeAlias = tuple[pa.Table, bool]
_MOST_ROWS = 30
_LIFETIME = ["le", "re"]


class DifferentHistory(Violation):
    """Two streams that should have the same history do not."""

    code = "DIFFERENT_HISTORY"


def assert_same_history(
    given: HistoryLike, expected: HistoryLike, *, until: TimeLike | None = None, digits: int | None = None
) -> None:
    """Raise, with a table of the differences, unless both have the same history.

    Either side is a stream, which is run on the local host to the end of its inputs, a finished run, or events: a drawn
    table, a list of dicts, an Arrow table or a pandas frame, physical (with `kind`) or a history (`le`, `re` and the
    payload). Columns are matched by name, and events written by hand take the types of the other side. `until` limits
    the comparison to the time before it (rule 5.3); `digits` compares floats to that many digits.
    """
    differences = history_differences(given, expected, until=until, digits=digits)
    if differences:
        raise DifferentHistory("\n".join(differences))


def history_differences(
    given: HistoryLike,
    expected: HistoryLike,
    *,
    until: TimeLike | None = None,
    digits: int | None = None,
    names: tuple[str, str] = ("given", "expected"),
) -> list[str]:
    """Text lines that describe how two histories differ; none if they are the same."""
    if digits is not None and digits < 1:
        raise SchemaError("digits is the number of digits to compare", given=digits, allowed="1, 2, 3, …")
    (left, dated), (right, also_dated) = _read_both(given, expected)
    if set(left.column_names) != set(right.column_names):
        return _different_columns(left, right, names)
    right = right.select(left.column_names)
    if list(map(_family, left.schema)) != list(map(_family, right.schema)):
        return _different_types(left, right, names)
    try:
        right = right.cast(left.schema)
    except pa.ArrowInvalid:
        return _different_types(left, right, names)
    limit = INFINITY if until is None else ticks(until)
    a, b = (_comparable(table, limit, digits) for table in (left, right))
    rest = Changes.concat([a, Changes(b.le, b.re, -b.weight, b.payload)]).consolidate()
    if not len(rest):
        return []
    found = sorted(_paired(rest), key=lambda difference: (difference.at, difference.order))
    lines = _table_lines(found, rest, names, dates=dated or also_dated)
    return [_summary(found, (len(a), len(b)), names), *lines]


def read_history(data: HistoryLike, schema: Schema | None = None) -> pa.Table:
    """The history of a stream, a run, or physical events or a history in any form; `le`, `re` and the payload."""
    return _read(data, schema)[0]


def _read(data: HistoryLike, schema: Schema | None = None) -> _Dated:
    if isinstance(data, Stream | Run | History):
        shown = data.cht()
        return as_ticks(shown), is_shown(shown)
    table, dates = events_and_dates(data, schema)
    check_events(table)
    return history_of(to_changes(table, Schema.of(table.schema).payload)), dates


# --- both sides ------------------------------------------------------------------------------------------------------


def _read_both(given: HistoryLike, expected: HistoryLike) -> tuple[_Dated, _Dated]:
    """Both histories; one written by hand is read with the types of the other."""
    if _is_handwritten(given) and not _is_handwritten(expected):
        right = _read(expected)
        return _read_like(given, right[0]), right
    left = _read(given)
    return left, _read_like(expected, left[0]) if _is_handwritten(expected) else _read(expected)


def _is_handwritten(data: HistoryLike) -> bool:
    """Whether types have to be guessed."""
    return isinstance(data, str | Sequence)


def _read_like(data: HistoryLike, other: pa.Table) -> _Dated:
    schema = Schema.of(other.schema).payload
    names = _payload_names(data)
    if names is not None and names != set(schema.names):
        return _read(data)
    try:
        return _read(data, schema)
    except (EventError, SchemaError):  # the values have other types: the comparison or the reader reports them
        return _read(data)


def _payload_names(data: Any) -> set[str] | None:
    """The payload columns of the data; None for an empty list, which matches any columns."""
    if isinstance(data, str):
        return set(events_table(data).column_names) - set(RESERVED)
    return {name for row in data for name in row} - set(RESERVED) if data else None


def _different_columns(left: pa.Table, right: pa.Table, names: tuple[str, str]) -> list[str]:
    lines = ["the histories have different columns:"]
    for name, table, other in ((names[0], left, right), (names[1], right, left)):
        only = [str(field) for field in Schema.of(table.schema).payload if field.name not in other.column_names]
        lines += [f"  only {name}: {', '.join(only)}"] if only else []
    return lines


def _family(field: pa.Field) -> tuple[bool, str]:
    """The family of comparable types: integers and floats of any size are numbers."""
    kind = Type.from_arrow(field.type)
    element = kind.element
    return kind.is_array, "number" if element.is_numeric else "text" if element.is_text else element.value


def _different_types(left: pa.Table, right: pa.Table, names: tuple[str, str]) -> list[str]:
    a, b = Schema.of(left.schema), Schema.of(right.schema)
    pairs = [(field, b[field.name]) for field in a if field.type is not b[field.name].type]
    lines = [f"  {x.name} is {x.type.value} in {names[0]}, {y.type.value} in {names[1]}" for x, y in pairs]
    return ["the histories have columns of different types:", *lines]


def _comparable(table: pa.Table, until: int, digits: int | None) -> Changes:
    payload = canonical_floats(table.drop_columns(_LIFETIME))
    for i, field in enumerate(payload.schema if digits is not None else ()):
        if pa.types.is_floating(field.type):
            rounded = [None if v is None else float(f"{v:.{digits}g}") for v in payload.column(i).to_pylist()]
            payload = payload.set_column(i, field, pa.array(rounded, field.type))
    le, re = lifetimes(table)
    return up_to(Changes.inserts(le, re, payload), until)


# --- differences -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Difference:
    """A payload and the lifetimes it has on either side; None where it is missing."""

    row: int
    given: tuple[int, int] | None
    expected: tuple[int, int] | None

    @property
    def at(self) -> int:
        """The first instant of the difference."""
        return min(life[0] for life in (self.given, self.expected) if life is not None)

    @property
    def order(self) -> int:
        return 0 if self.given and self.expected else 1 if self.expected else 2

    def lifetime(self, *, dates: bool) -> str:
        if self.given and self.expected:
            return f"{_life(self.expected, dates)} became {_life(self.given, dates)}"
        return _life(self.given or self.expected or (0, 0), dates)


def _paired(rest: Changes) -> list[_Difference]:
    """The differences between both sides; rows of equal payload are paired.

    First those that start together, then those that end together, then those that overlap: the likeliest pairs first.
    """
    codes, _ = factorize(rest.payload)
    lives = list(zip(rest.le.tolist(), rest.re.tolist(), strict=True))
    sides: dict[int, tuple[list[int], list[int]]] = {}
    for row in np.repeat(np.arange(len(rest)), np.abs(rest.weight)).tolist():
        sides.setdefault(int(codes[row]), ([], []))[int(rest.weight[row] < 0)].append(row)
    found: list[_Difference] = []
    for extra, missing in sides.values():
        pairs = [*_sharing_end(extra, missing, lives, 0), *_sharing_end(extra, missing, lives, 1)]
        pairs += _overlapping(extra, missing, lives)
        found += [_Difference(row, lives[row], lives[twin]) for row, twin in pairs]
        found += [_Difference(row, lives[row], None) for row in extra]
        found += [_Difference(row, None, lives[row]) for row in missing]
    return found


def _sharing_end(extra: list[int], missing: list[int], lives: list[tuple[int, int]], end: int) -> list[tuple[int, int]]:
    """Pairs that share their start (end 0) or their end (end 1); both lists lose them."""
    waiting: dict[int, list[int]] = {}
    for row in sorted(missing, key=lambda row: lives[row], reverse=True):
        waiting.setdefault(lives[row][end], []).append(row)
    pairs = [
        (row, waiting[lives[row][end]].pop())
        for row in sorted(extra, key=lambda row: lives[row])
        if waiting.get(lives[row][end])
    ]
    _remove_pairs(pairs, extra, missing)
    return pairs


def _overlapping(extra: list[int], missing: list[int], lives: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs that share an instant; both lists lose them."""
    pairs: list[tuple[int, int]] = []
    left, right = (sorted(rows, key=lambda row: lives[row], reverse=True) for rows in (extra, missing))
    while left and right:
        (le, re), (other_le, other_re) = lives[left[-1]], lives[right[-1]]
        if max(le, other_le) < min(re, other_re):
            pairs.append((left.pop(), right.pop()))
        else:
            (left if re <= other_re else right).pop()
    _remove_pairs(pairs, extra, missing)
    return pairs


def _remove_pairs(pairs: Sequence[tuple[int, int]], extra: list[int], missing: list[int]) -> None:
    # A row of weight 2 is in its list twice, so rows are counted.
    for rows, taken in ((extra, Counter(row for row, _ in pairs)), (missing, Counter(twin for _, twin in pairs))):
        rows[:] = (Counter(rows) - taken).elements()


def _summary(found: Sequence[_Difference], sizes: tuple[int, int], names: tuple[str, str]) -> str:
    changed, missing, more = (sum(difference.order == order for difference in found) for order in (0, 1, 2))
    parts = [
        f"{counted(changed, 'lifetime')} changed" if changed else "",
        f"{counted(missing, 'row')} missing" if missing else "",
        f"{counted(more, 'row')} only {names[0]}" if more else "",
    ]
    summary = ", ".join(part for part in parts if part)
    return f"the histories differ: {summary} ({counted(sizes[0], 'row')} {names[0]}, {sizes[1]} {names[1]})"


def _table_lines(found: Sequence[_Difference], rest: Changes, names: tuple[str, str], *, dates: bool) -> list[str]:
    labels = ("changed", "missing", f"only {names[0]}")
    columns = rest.payload.column_names
    shown = found[:_MOST_ROWS]
    payloads = rest.payload.take(pa.array([difference.row for difference in shown])).to_pylist()
    rows = [
        [labels[difference.order], difference.lifetime(dates=dates), *(cell(payload[name]) for name in columns)]
        for difference, payload in zip(shown, payloads, strict=True)
    ]
    more = [f"  … and {len(found) - len(shown)} more"] if len(found) > len(shown) else []
    return [*(f"  {line}" for line in aligned([["", "lifetime", *columns], *rows])), *more]


def _life(life: tuple[int, int], dates: bool) -> str:
    return f"[{format_ticks(life[0], dates=dates)}, {format_ticks(life[1], dates=dates)})"


# --- tables of text --------------------------------------------------------------------------------------------------


def cell(value: Any) -> str:
    """A value as in a drawn table: empty for null, text in quotes where it would be ambiguous."""
    if value is None:
        return ""
    if isinstance(value, str):
        plain = value and value == value.strip() and value.isprintable() and not set('"|[],') & set(value)
        return value if plain else f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(cell, value))}]"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """The text lines of a drawn table, with aligned columns."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [" | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
