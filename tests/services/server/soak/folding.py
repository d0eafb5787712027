"""What a subscriber has after the rows that it got: each form folded by the letter of its definition.

A fold is strict: a retraction of what is not there, an event before a promise, and an answer that is final twice are
failures at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

__all__ = ["INFINITY", "EventsFold", "FinalFold", "Fold", "History", "UpsertFold", "latest", "ticks"]

History = Counter[tuple[Any, ...]]
INFINITY = (1 << 63) - 1


def ticks(value: Any) -> int | None:
    """Microseconds of a time, however a client shows it; None if there is none."""
    if value in (None, "", "NULL"):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        if value in ("inf", "infinity"):
            return INFINITY
        text = re.sub(r"\+00(:00)?$", "", value.removesuffix("Z")).replace(" ", "T")
        value = datetime.fromisoformat(text).replace(tzinfo=UTC)
    assert isinstance(value, datetime)
    passed = value - datetime(1970, 1, 1, tzinfo=UTC)
    found = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return INFINITY if value.year >= 9999 else found


class Fold(Protocol):
    """The rows of a form, one after the other."""

    #: Rows so far, and those of them that change an earlier answer.
    rows: int
    corrections: int

    def add(self, row: Mapping[str, Any]) -> None: ...

    def differences(self, expected: History) -> str:
        """How it differs from the history, for people; empty if it does not."""


class EventsFold:
    """Inserts, retractions and CTIs."""

    def __init__(self, columns: Sequence[str], _key: Sequence[str] = ()) -> None:
        self.columns, self.history = columns, Counter[tuple[Any, ...]]()
        self.rows = self.corrections = 0
        self.cti = -INFINITY

    def add(self, row: Mapping[str, Any]) -> None:
        le, re_, re_new = ticks(row["le"]), ticks(row["re"]), ticks(row["re_new"])
        assert le is not None
        self.rows += 1
        if row["kind"] == "cti":
            assert le >= self.cti, f"a promise goes back from {self.cti}: {row}"
            self.cti = le
            return
        payload = tuple(row[name] for name in self.columns)
        assert re_ is not None
        if row["kind"] == "insert":
            assert le >= self.cti, f"before the promise {self.cti}: {row}"
            self.history[(le, re_, *payload)] += 1
            return
        assert row["kind"] == "retract", row
        assert re_new is not None
        assert min(re_, re_new) >= self.cti, f"before the promise {self.cti}: {row}"
        self.corrections += 1
        old = (le, re_, *payload)
        assert self.history[old] > 0, f"there is nothing to retract: {row}"
        self.history[old] -= 1
        if not self.history[old]:
            del self.history[old]
        if re_new > le:
            self.history[(le, re_new, *payload)] += 1

    def differences(self, expected: History) -> str:
        return _differences(self.history, expected)


class FinalFold:
    """Answers that never change."""

    def __init__(self, columns: Sequence[str], _key: Sequence[str] = ()) -> None:
        self.columns, self.history = columns, Counter[tuple[Any, ...]]()
        self.rows = self.corrections = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        self.history[(ticks(row["le"]), ticks(row["re"]), *(row[name] for name in self.columns))] += 1

    def differences(self, expected: History) -> str:
        return _differences(self.history, expected)


class UpsertFold:
    """The latest row of each key."""

    def __init__(self, columns: Sequence[str], key: Sequence[str]) -> None:
        self.columns, self.key = columns, key
        self.latest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.rows = self.corrections = 0

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows += 1
        key = tuple(row[name] for name in self.key)
        if row["_op"] == "delete":
            assert key in self.latest, f"there is nothing to delete: {row}"
            del self.latest[key]
            self.corrections += 1
            return
        found = (ticks(row["le"]), *(row[name] for name in self.columns))
        self.corrections += key in self.latest and self.latest[key][0] == found[0]
        self.latest[key] = found

    def differences(self, expected: History) -> str:
        places = [list(self.columns).index(name) for name in self.key]
        return _differences(Counter(self.latest.values()), latest(expected, places))


def latest(history: History, key: Sequence[int]) -> History:
    """The rows that start last for each key, without their ends."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for le, _, *payload in history:
        name = tuple(payload[place] for place in key)
        if name not in found or found[name][0] < le:
            found[name] = (le, *payload)
    return Counter(found.values())


def _differences(found: History, expected: History) -> str:
    missing, more = expected - found, found - expected
    if not missing and not more:
        return ""
    shown = [f"{sum(part.values())} {what}, such as {list(part.items())[:3]}"
             for part, what in ((missing, "missing"), (more, "too many")) if part]  # fmt: skip
    return f"{'; '.join(shown)} (of {sum(expected.values())})"
