"""The console sink: what a batch changed, told to people."""

from __future__ import annotations

import io

import pytest
from rich.console import Console as Terminal

import headrace as hr
from headrace.changes import Changes
from headrace.io import console
from headrace.io.console import CORRECTED, MOVED, NEW, WITHDRAWN, batch_rows
from headrace.io.sinks import Console
from headrace.progress import Progress
from headrace.stages.egress import prepared

PRICES = """
    kind    | le | re | re_new | symbol | price
    insert  | 1  | 2  |        | A      | 10
    insert  | 3  | 4  |        | B      | 20
    insert  | 12 | 13 |        | A      | 12
    insert  | 2  | 3  |        | A      | 14
    retract | 3  | 4  | 3      | B      | 20
    cti     | 12 |    |        |        |
"""


def batches(sink: Console) -> list[tuple[Changes, Progress]]:
    prices = hr.events(PRICES, batches=[3, 3])
    averages = prices.group_by("symbol").window(hr.tumbling(10)).aggregate(price=hr.avg("price"), n=hr.count())
    return hr.run({"out": prepared(averages.node, sink)}).results["out"].batches


def test_a_correction_is_one_row_with_the_old_values():
    sink = hr.console()
    first, second, _ = [batch_rows(changes, sink) for changes, _ in batches(sink)]
    assert [(row.mark, row.values["symbol"]) for row in first] == [(NEW, "A"), (NEW, "B")]
    assert [(row.mark, row.before) for row in second] == [(CORRECTED, {"price": 10.0, "n": 1}), (WITHDRAWN, {})]
    assert second[0].values == {"le": 0, "re": 10, "symbol": "A", "price": 12.0, "n": 2}


def test_a_changed_lifetime_is_one_row():
    drawn = """
        kind    | le | re | re_new | symbol
        insert  | 1  | ∞  |        | A
        retract | 1  | ∞  | 5      | A
    """
    sink = hr.console()
    found = hr.events(drawn, batches=[1, 1]).run().results["out"].batches
    (row,) = batch_rows(found[1][0], sink)
    assert (row.mark, row.values, row.before) == (MOVED, {"le": 1, "re": 5, "symbol": "A"}, {"re": hr.INFINITY})


def test_final_rows_are_never_corrected():
    sink = hr.console(encoding="final")
    rows = [row for changes, _ in batches(sink) for row in batch_rows(changes, sink)]
    assert [(row.mark, row.values["price"]) for row in rows] == [(NEW, 12.0), (NEW, 12.0)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr(console, "Terminal", lambda: Terminal(file=text, width=100, force_terminal=False))
    return text


def test_elsewhere_than_on_a_terminal_every_batch_is_a_table(terminal: io.StringIO):
    sink = hr.console(rows=1)
    for number, (changes, progress) in enumerate(batches(sink)):
        console.show_batch(sink, "averages", number, changes, progress)
    text = terminal.getvalue()
    assert "averages · batch 1 · CTI 10" in text
    assert "corrected" in text
    assert "10 → 12" in text
    assert text.count("… and 1 more") == 2


@pytest.mark.parametrize(
    ("encoding", "shown"), [("events", "10 → 12"), ("upsert", "10 → 12"), ("final", "2 answers, 0 corrections")]
)
def test_on_a_terminal_one_table_is_kept_up_to_date(encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch):
    text = io.StringIO()
    screens = console._Screens()
    monkeypatch.setattr(screens, "watched", lambda: True)
    monkeypatch.setattr(console, "_SCREENS", screens)
    live = console.Live
    watching = Terminal(file=text, width=100, force_terminal=True, color_system=None)
    monkeypatch.setattr(console, "Live", lambda **options: live(console=watching, **options))
    sink = Console(encoding, ("symbol",) if encoding == "upsert" else ())  # type: ignore[arg-type]
    for number, (changes, progress) in enumerate(batches(sink)):
        console.show_batch(sink, "averages", number, changes, progress)
    console.close(sink)
    assert shown in text.getvalue()
    assert "batch 2 · CTI ∞" in text.getvalue()
