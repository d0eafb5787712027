"""What the sinks of pipelines should have, computed from the input alone, and what they have.

The expected answers are a few lines of Python over all input; they share nothing with the engine. A sink is read as its
users read it: committed records and rows only. Logs are folded: each entry must fit to those before it, so that a batch
that is there twice, or half, shows.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import Any

import psycopg
from tests.services.broker import Broker
from tests.services.lives import records
from tests.services.pipelines import WINDOW, Run

__all__ = ["check"]

#: An answer: the columns of its row and its lifetime, or of a total the columns alone.
Answers = Counter[tuple[Hashable, ...]]


def check(broker: Broker, run: Run, sink: str) -> int:
    """Raise unless a sink has all answers, each once; returns how many entries it has."""
    expected = _totals(run) if sink in ("current", "copied") else _averages(broker, run)
    assert expected, "nothing was written to the source"
    if sink in ("events", "compacted", "copied"):
        entries = records(broker, run.place(sink))
        found = {"events": _events, "compacted": _compacted, "copied": _compacted}[sink](entries)
        count = sum(map(len, entries))
    else:
        rows = _rows(run, sink)
        found, count = _folded(rows) if sink == "log" else Counter(rows), len(rows)
    missing, extra = expected - found, found - expected
    assert not missing, f"{sink}: {sum(missing.values())} of {len(expected)} answers are missing: {_some(missing)}"
    assert not extra, f"{sink}: {sum(extra.values())} answers are wrong or there twice: {_some(extra)}"
    return count


def _some(answers: Answers) -> str:
    return ", ".join(map(str, list(answers)[:5]))


# --- expected --------------------------------------------------------------------------------------------------------


def _averages(broker: Broker, run: Run) -> Answers:
    values: dict[tuple[str, int], list[int]] = defaultdict(list)
    for partition in records(broker, run.source):
        for _, value in partition:
            event = json.loads(value or b"")
            values[event["k"], event["ts"] // WINDOW].append(event["v"])
    return Counter(
        (k, slot, len(v), sum(v) / len(v), slot * WINDOW, (slot + 1) * WINDOW) for (k, slot), v in values.items()
    )


def _totals(run: Run) -> Answers:
    with psycopg.connect(run.dsn) as connection:
        found = connection.execute(f"SELECT k, count(*), sum(v) FROM {run.source} GROUP BY k".encode()).fetchall()
    return Counter((k, n, int(total)) for k, n, total in found)


# --- found -----------------------------------------------------------------------------------------------------------


def _events(partitions: Iterable[Iterable[tuple[Any, bytes | None]]]) -> Answers:
    """The events that are left when all retractions are applied, partition by partition."""
    found: Answers = Counter()
    for partition in partitions:
        alive: Answers = Counter()
        cti = float("-inf")
        for _, value in partition:
            event = json.loads(value or b"")
            if event["kind"] == "cti":
                moved = float(event["le"])
                assert moved > cti, f"a CTI is there twice: {event}"
                cti = moved
                continue
            row = event["payload"]
            answer = (row["k"], row["slot"], row["n"], row["mean"], event["le"], event["re"])
            if event["kind"] == "insert":
                assert not alive[answer], f"an event is there twice: {event}"
                assert event["le"] >= cti, f"an event before the CTI {cti}: {event}"
                alive[answer] += 1
            else:
                assert alive[answer] == 1, f"a retraction of what is not there: {event}"
                del alive[answer]
                if event["re_new"] > event["le"]:
                    alive[*answer[:-1], event["re_new"]] += 1
        found += alive
    return found


def _compacted(partitions: Iterable[Iterable[tuple[bytes | None, bytes | None]]]) -> Answers:
    """The rows that are left when each message replaces the one before of its key."""
    rows: dict[bytes | None, dict[str, Any]] = {}
    for partition in partitions:
        for key, value in partition:
            rows.pop(key, None)
            if value is not None:
                rows[key] = json.loads(value)
    return Counter(_answer(row) for row in rows.values())


def _answer(row: dict[str, Any]) -> tuple[Hashable, ...]:
    if "total" in row:
        return row["k"], row["n"], int(row["total"])
    return row["k"], row["slot"], row["n"], row["mean"], row["le"], row["le"] + WINDOW


def _folded(rows: Iterable[tuple[Hashable, ...]]) -> Answers:
    """The rows that are left of a log of changes, in the order of its batches; in a batch, deletions come first."""
    found: Answers = Counter()
    for _, change, *row in sorted(rows, key=lambda row: (row[0], row[1])):  # type: ignore[misc, arg-type]
        answer = tuple(row)
        if change == "insert":
            assert not found[answer], f"a row is there twice: {row}"
            found[answer] += 1
        else:
            assert found[answer] == 1, f"a deletion of what is not there: {row}"
            del found[answer]
    return found


def _rows(run: Run, sink: str) -> list[tuple[Hashable, ...]]:
    columns = {
        "rows": f"k, slot, n, mean, le, le + {WINDOW}",
        "final": "k, slot, n, mean, le, re",
        "log": "_batch, _change_type, k, slot, n, mean, le, re",
        "current": "k, n, total::bigint",
    }[sink]
    with psycopg.connect(run.dsn) as connection:
        return connection.execute(f"SELECT {columns} FROM {run.place(sink)}".encode()).fetchall()
