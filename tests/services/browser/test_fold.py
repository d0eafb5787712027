"""The page's fold of events into a history (`ui/src/fold.js`) against the one of the server."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Page
from tests.services.browser.conftest import NewPage
from tests.services.browser.modules import with_modules

from headrace.border import shown
from headrace.events import history, physical_schema, to_changes
from headrace.schema import Schema
from headrace.server.http.replies import rows_json
from headrace.time import INFINITY

_SCHEMA = Schema.of({"item": "string", "amount": "long", "price": "double"})
#: Folds the pieces, and lists what holds as the server's JSON does: a row for each copy.
_FOLDED = """async ([pieces, options]) => {
    const { Fold } = await import("/fold.js");
    const fold = new Fold(["item", "amount", "price"], options);
    let now = 0;
    for (const piece of pieces) {
        for (let at = 0; at < piece.length; at += 7) fold.take(piece.slice(at, at + 7), false, (now += 1));
        fold.settle(now);
        if (now % 3 === 0) fold.expire(now + 1e6);
    }
    fold.expire(now + 1e6);
    const values = (row) => [row.le, row.re, row.item, row.amount, row.price];
    const rows = fold.list().flatMap(({ row, copies }) => Array(copies).fill(values(row)));
    return { rows, counts: fold.counts, left: fold.leaving.size + fold.gone.size + fold.lives.size };
}"""


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return with_modules(new_page())


def _events(chance: random.Random, size: int) -> list[dict[str, Any]]:
    """Inserts and retractions of what is there, with equal rows, NULLs, large numbers and lifetimes without an end."""
    alive: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    for _ in range(size):
        if alive and chance.random() < 0.45:
            old = alive.pop(chance.randrange(len(alive)))
            ends = [end for end in (old["le"], old["le"] + 5, old["le"] + 9, INFINITY) if end != old["re"]]
            end = chance.choice(ends)
            events.append({**old, "kind": "retract", "re_new": end})
            if end != old["le"]:
                alive.append({**old, "re": end})
            continue
        le = chance.randrange(0, 40, 5)
        values = {"item": chance.choice(["a", "b", "<b>", '"', None]), "amount": chance.choice([1, 2, 2**60]),
                  "price": chance.choice([0.5, float("nan"), None])}  # fmt: skip
        alive.append({"le": le, "re": chance.choice([le + 5, le + 10, INFINITY]), **values})
        events.append({**alive[-1], "kind": "insert", "re_new": None})
    return events


def _sorted(rows: list[list[Any]]) -> list[str]:
    return sorted(json.dumps(row) for row in rows)


@pytest.mark.parametrize("dates", [False, True])
def test_differential_fold(page: Page, dates: bool) -> None:
    for seed in range(15):
        chance = random.Random(seed)
        events = pa.Table.from_pylist(_events(chance, 120), physical_schema(_SCHEMA))
        as_sent = json.loads(rows_json(shown(events, dates=dates)))
        cuts = [0, *sorted(chance.randrange(120) for _ in range(5)), 120]
        pieces = [as_sent[start:end] for start, end in pairwise(cuts)]
        folded = page.evaluate(_FOLDED, [pieces, {}])
        expected = json.loads(rows_json(shown(history(to_changes(events, _SCHEMA)), dates=dates)))
        assert _sorted(folded["rows"]) == _sorted([list(row.values()) for row in expected])
        assert folded["counts"]["unknown"] == folded["left"] == 0


def test_its_memory_is_bounded(page: Page) -> None:
    inserts = [
        {"kind": "insert", "le": i, "re": "inf", "re_new": None, "item": str(i), "amount": i, "price": None}
        for i in range(500)
    ]
    ends = [{**row, "kind": "retract", "re_new": 1000} for row in inserts[:50]]
    folded = page.evaluate(_FOLDED, [[inserts, ends], {"most": 100}])
    assert len(folded["rows"]) == 100
    assert folded["counts"]["dropped"] == 450
    assert folded["counts"]["unknown"] == 0
    assert [row[0] for row in folded["rows"]] == [*range(450, 500), *range(50)]  # the newest, and those that changed


def test_a_correction_shows_what_was_before(page: Page) -> None:
    def row(kind: str, item: str, amount: int, re_new: int | None = None) -> dict[str, Any]:
        return {"kind": kind, "le": 0, "re": 5, "re_new": re_new, "item": item, "amount": amount, "price": None}

    pieces = [
        [row("insert", "a", 1), row("insert", "b", 2), row("insert", "c", 7)],
        [row("insert", "b", 3), row("retract", "b", 2, 0), row("retract", "a", 1, 0), row("retract", "c", 7, 0)],
        [row("insert", "a", 4)],  # of the same batch, cut between two pieces
    ]
    found = page.evaluate(
        """async (pieces) => {
            const { Fold } = await import("/fold.js");
            const fold = new Fold(["item", "amount", "price"]);
            pieces.forEach((piece, i) => (fold.take(piece, i === 0, i), fold.settle(i)));
            const shown = ({ mark, row, before }) => [mark, row.item, row.amount, before?.amount ?? null];
            return { rows: fold.list().map(shown), changes: fold.list("changes").map(shown) };
        }""",
        pieces,
    )
    assert sorted(found["rows"]) == [["corrected", "a", 4, 1], ["corrected", "b", 3, 2], ["removed", "c", 7, None]]
    assert sorted(found["changes"]) == [["±", "a", 4, 1], ["±", "b", 3, 2], ["−", "c", 7, None]]


def test_the_only_answer_of_a_window_is_corrected(page: Page) -> None:
    """Answers without a key are paired by their times, however many windows a piece corrects."""

    def row(kind: str, le: int, amount: int, re_new: int | None = None) -> dict[str, Any]:
        return {"kind": kind, "le": le, "re": le + 5, "re_new": re_new, "amount": amount}

    times = range(0, 200, 5)
    pieces = [[row("insert", le, 1) for le in times]]
    pieces.append([row("retract", le, 1, le) for le in times] + [row("insert", le, 2) for le in times])
    found = page.evaluate(
        """async (pieces) => {
            const { Fold } = await import("/fold.js");
            const fold = new Fold(["amount"]);
            pieces.forEach((piece, i) => (fold.take(piece, i === 0, i), fold.settle(i)));
            return [fold.list().map(({ mark, before }) => [mark, before?.amount]), fold.counts.changes];
        }""",
        pieces,
    )
    assert found == [[["corrected", 1]] * len(times), len(times)]
