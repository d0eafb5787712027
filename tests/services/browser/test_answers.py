"""The screen Answers: a live table in the views of the shell, with corrections, filters and a pause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.services.browser.conftest import NewPage
from tests.services.server.soak.serving import Served

import headrace as hr

_HOSTILE = "<img src=x onerror=alert(1)>"
_DAY = "2024-05-01T"
#: Keeps the longest task of the page, in milliseconds.
_WATCH = """window.longest = 0; new PerformanceObserver((list) => {
    for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ type: "longtask", buffered: true });"""
#: Keeps the corrections that were shown, which fade after some seconds.
_SEEN = """window.seen = new Set(); const look = () => {
    for (const old of document.querySelectorAll(".answers-changed s")) window.seen.add(old.parentElement.textContent);
}; new MutationObserver(look).observe(document.body, { childList: true, subtree: true }); look();"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with sales by the minute, prices, and a query whose names and values are hostile."""
    server = Served(tmp_path_factory.mktemp("answers") / "server")
    try:
        sql(server, f"""
            CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 10 min;
            QUERY minutes AS SELECT item, count(*) AS n, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;
            CREATE TABLE prices (item STRING PRIMARY KEY, price DOUBLE);
            INSERT INTO prices VALUES ('pear', 3.5), ('fig', 2.0), ('{_HOSTILE}', 1.0);
            CREATE MATERIALIZED VIEW "{_HOSTILE}" AS SELECT item AS "{_HOSTILE}", price FROM prices
        """)  # fmt: skip
        sell(server, ("pear", 2, "12:00:05"), ("fig", 1, "12:00:10"), ("pear", 1, "12:01:30"), ("pear", 4, "12:02:30"))
        yield server
    finally:
        server.close()


def sql(server: Served, text: str) -> list[dict[str, Any]]:
    reply = httpx.post(f"{server.url}/sql", json={"sql": text}, timeout=120)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["replies"]
    return found


def sell(server: Served, *sales: tuple[str, int, str]) -> None:
    rows = [{"item": item, "amount": amount, "ts": f"{_DAY}{at}Z"} for item, amount, at in sales]
    assert httpx.post(f"{server.url}/streams/sales/rows", json=rows, timeout=120).status_code == 200


def opened(new_page: NewPage, server: Served, name: str, **look: Any) -> Page:
    page = new_page(server.url, **look)
    page.goto(f"{server.url}/ui/#/answers/{name}")
    expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=60_000)
    page.evaluate(_SEEN)
    return page


def seen(page: Page, correction: str) -> None:
    """Wait until a correction was shown, old → new."""
    page.wait_for_function("(text) => window.seen.has(text)", arg=correction, timeout=120_000)


def row(page: Page, *texts: str) -> Locator:
    found = page.get_by_role("row")
    for text in texts:
        found = found.filter(has_text=text)
    return found


def test_a_correction_is_highlighted(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "minutes")
    expect(row(page, "12:00:00", "pear")).to_have_count(1, timeout=60_000)
    sell(shop, ("pear", 5, "12:00:45"))
    seen(page, "2 → 7")
    page.get_by_role("tab", name="Changes").click()
    expect(row(page, "±", "pear").last).to_contain_text("2 → 7")
    expect(row(page, "±", "pear").last.locator("s").last).to_have_text("2")
    page.get_by_role("tab", name="Events").click()
    expect(row(page, "retract", "removed")).to_have_count(1)
    page.get_by_role("tab", name="History").click()
    expect(row(page, "12:00:00", "pear")).to_contain_text("7")
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".tl-name").filter(has_text="pear")).to_have_count(1)
    expect(page.get_by_text("final up to 2024-05-01 11:52:00").last).to_be_visible()
    page.get_by_role("tab", name="History").click()
    expect(page.locator(".answers-changed")).to_have_count(0, timeout=60_000)  # it fades


def test_rows_of_a_table(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "prices")
    expect(row(page, "pear")).to_contain_text("3.5")
    sql(shop, "UPDATE prices SET price = 4.5 WHERE item = 'pear'; DELETE FROM prices WHERE item = 'fig'")
    seen(page, "3.5 → 4.5")
    expect(row(page, "fig")).to_have_count(0, timeout=60_000)  # after it was struck through
    page.get_by_role("tab", name="Changes").click()
    expect(row(page, "±", "fig")).to_have_count(1)


def test_payloads_and_names_are_text(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", dark=True)
    expect(page.get_by_role("heading", name=_HOSTILE)).to_be_visible()
    expect(page.get_by_role("columnheader", name=_HOSTILE)).to_be_visible()
    expect(page.get_by_role("gridcell", name=_HOSTILE)).to_be_visible()
    page.get_by_role("gridcell", name=_HOSTILE).click()
    expect(page.get_by_role("definition").filter(has_text=_HOSTILE)).to_be_visible()
    for view in ("History", "Changes", "Events"):
        page.get_by_role("tab", name=view).click()
    assert page.locator("img").count() == 0


def test_filter_sort_and_pause(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "minutes", width=390)
    expect(row(page, "12:00:00", "fig")).to_have_count(1, timeout=60_000)
    page.get_by_role("searchbox", name="Filter").fill("fig")
    expect(row(page, "pear")).to_have_count(0)
    page.get_by_role("searchbox", name="Filter").fill("")
    page.get_by_role("button", name="item", exact=True).click()
    expect(page.get_by_role("columnheader", name="item")).to_have_attribute("aria-sort", "ascending")
    expect(page.get_by_role("row").nth(1)).to_contain_text("fig")
    page.get_by_role("button", name="Pause").press("Enter")
    sell(shop, ("kiwi", 5, "12:00:50"))
    expect(page.get_by_text("paused since 1 change")).to_be_visible(timeout=60_000)
    expect(row(page, "kiwi")).to_have_count(0)
    page.get_by_role("button", name="Continue").press("Enter")
    expect(row(page, "kiwi")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"


def test_the_keyboard_alone(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "minutes")
    expect(row(page, "12:00:00", "fig")).to_have_count(1, timeout=60_000)
    page.get_by_role("tab", name="History").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Changes")).to_be_focused()
    expect(page.get_by_role("tab", name="Changes")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowLeft")
    expect(row(page, "12:00:00", "fig")).to_have_count(1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Row")).to_be_visible()


def test_a_name_that_cannot_be_followed(shop: Served, new_page: NewPage) -> None:
    page = new_page(shop.url)
    page.goto(f"{shop.url}/ui/#/answers/sales")
    expect(page.get_by_role("alert")).to_contain_text("sales")
    page.goto(f"{shop.url}/ui/#/answers")
    page.get_by_role("link", name="minutes").click()
    expect(page.get_by_role("heading", name="minutes")).to_be_visible()


def test_a_large_batch_does_not_freeze_the_page(shop: Served, new_page: NewPage) -> None:
    """100,000 rows that appear, and 100,000 that are corrected: each a batch."""
    sql(shop, """
        CREATE STREAM hits (page LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 h;
        QUERY pages AS SELECT page, count(*) AS n FROM hits [TUMBLING 1 min] GROUP BY page
    """)  # fmt: skip
    page = opened(new_page, shop, "pages")
    page.evaluate(_WATCH)
    with hr.connect(shop.url) as client:
        hits = client["hits"]
        many = pa.table({
            "page": pa.array(np.arange(100_000)),
            "ts": pa.array(np.full(100_000, 1714564805000000), pa.timestamp("us", "UTC")),
        })  # fmt: skip
        hits.insert(many)
        hits.insert([{"page": 1, "ts": f"{_DAY}12:02:00Z"}])
        expect(page.get_by_text("100,000 rows", exact=True)).to_be_visible(timeout=120_000)
        hits.insert(many)
        expect(page.get_by_text("200,000 changes")).to_be_visible(timeout=120_000)
    seen(page, "1 → 2")
    longest = page.evaluate("window.longest")
    assert longest < 5_000  # the goal is 500 ms, and 120 are usual; the machine may be busy


def test_it_goes_on_after_a_kill(served: Served, new_page: NewPage) -> None:
    sql(served, """
        CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 10 min;
        QUERY minutes AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item
    """)  # fmt: skip
    sell(served, ("pear", 2, "12:00:05"), ("pear", 1, "12:01:30"))
    page = opened(new_page, served, "minutes")
    expect(row(page, "12:00:00", "pear")).to_contain_text("2", timeout=60_000)
    served.kill()
    sell(served, ("pear", 5, "12:00:45"), ("fig", 3, "12:00:46"))
    expect(row(page, "12:00:00", "pear")).to_contain_text("7", timeout=120_000)
    expect(row(page, "12:00:00", "fig")).to_have_count(1)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_text("retractions of rows")).to_have_count(0)
