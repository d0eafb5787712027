"""The screens Queries and A query: what they show, start and stop, keys, hostile texts, and a server that is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.services.browser.conftest import NewPage
from tests.services.server.soak.serving import Served

from headrace.server.access import Access

HOSTILE = '<img src=x onerror="alert(1)">'
CREATED = f"""
CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 10 s LATE DIVERT;
CREATE STREAM prices (item STRING, price DOUBLE, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 10 s LATE DIVERT;
CREATE STREAM strict (a LONG, ts LONG) ORDER BY ts LATE RAISE WITH PROGRESS ADVANCE 1;
QUERY minutes AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;
QUERY turnover AS SELECT s.item, s.amount * p.price AS money
  FROM sales [RANGE 1 min] AS s JOIN prices [RANGE 1 min] AS p ON s.item = p.item;
QUERY "{HOSTILE.replace('"', '""')}" AS SELECT item AS "{HOSTILE.replace('"', '""')}" FROM sales WHERE amount > 2;
QUERY broken AS SELECT a FROM strict;
QUERY paused AS SELECT item FROM prices;
STOP QUERY paused;
"""


def ask(served: Served, text: str) -> list[dict[str, Any]]:
    reply = httpx.post(f"{served.url}/sql", json={"sql": text}, timeout=120)
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["replies"]
    return found


def insert(served: Served, stream: str, *rows: dict[str, Any]) -> None:
    reply = httpx.post(f"{served.url}/streams/{stream}/rows", json=list(rows), timeout=120)
    assert reply.status_code == 200, reply.text


def sale(time: str, amount: int = 1, item: str = "pear") -> dict[str, Any]:
    return {"item": item, "amount": amount, "ts": f"2024-05-01T{time}Z"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Queries that run together, one that has failed, and one that is stopped; a correction, and a late row."""
    server = Served(tmp_path_factory.mktemp("shop"))
    try:
        ask(server, CREATED)
        insert(server, "strict", {"a": 1, "ts": 10}, {"a": 2, "ts": 1})
        insert(server, "prices", {"item": "pear", "price": 2.5, "ts": "2024-05-01T12:00:00Z"})
        batches = (
            [sale("12:00:05", 2), sale("12:00:50", 3, HOSTILE)],
            [sale("12:01:05", 1)],
            [sale("12:00:58", 7)],
            [sale("11:00:00", 1, HOSTILE)],
        )
        for rows in batches:
            insert(server, "sales", *rows)
            ask(server, "SELECT * FROM minutes; SELECT * FROM turnover")  # waits until they have read it
        yield server
    finally:
        server.close()


def opened(new_page: NewPage, served: Served, place: str, **look: Any) -> Page:
    page = new_page(served.url, **look)
    page.goto(f"{served.url}/ui/#/{place}")
    return page


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def no_scroll(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


# --- Queries


def test_all_queries(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "queries")
    minutes = row(page, "minutes")
    expect(minutes.locator(".query-state")).to_have_text("running")
    expect(minutes.get_by_text("with 2 more")).to_be_visible()
    expect(minutes.locator("td.queries-diverted")).to_have_text("1")
    expect(minutes.locator("td.queries-cti")).to_contain_text("2024-05-01 12:0")
    expect(minutes.get_by_role("img")).to_be_visible()
    broken = row(page, "broken")
    expect(broken.locator(".query-state")).to_have_text("failed")
    expect(broken.get_by_text("an event breaks the promise")).to_be_visible()
    expect(row(page, "paused").locator(".query-state")).to_have_text("stopped")
    expect(page.get_by_text("3 running, 1 failed, 1 stopped")).to_be_visible()


def test_start_and_stop(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "queries")
    page.get_by_role("button", name="Start paused").click()
    expect(row(page, "paused").locator(".query-state")).to_have_text("running")
    page.get_by_role("button", name="Stop paused").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(row(page, "paused").locator(".query-state")).to_have_text("running")
    page.get_by_role("button", name="Stop paused").click()
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_text("query paused was stopped")).to_be_visible()
    expect(row(page, "paused").locator(".query-state")).to_have_text("stopped")


def test_a_reader_may_not_stop(shop: Served, new_page: NewPage) -> None:
    access = Access(shop.data)
    token = access.tokens.create("ann", "reader")
    access.close()
    page = new_page(shop.url)
    page.evaluate("token => sessionStorage.setItem('headrace.token', token)", token)
    page.goto(f"{shop.url}/ui/#/queries")
    page.reload()
    expect(page.get_by_text("ann (reader)")).to_be_visible()
    page.get_by_role("button", name="Stop minutes").click()
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_text("needs the role writer, and ann is a reader")).to_be_visible()
    expect(row(page, "minutes").locator(".query-state")).to_have_text("running")


def test_no_query_yet(shop: Served, new_page: NewPage) -> None:
    page = new_page()
    page.route("**/ui/data/queries", lambda route: route.fulfill(json={"now": 0, "queries": []}))
    page.goto(f"{shop.url}/ui/#/queries")
    expect(page.get_by_text("No query is here yet")).to_be_visible()
    expect(page.get_by_text("QUERY minutes AS SELECT")).to_be_visible()


# --- A query


def test_the_plan_of_a_query(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "query/turnover")
    nodes = page.locator(".graph-node")
    expect(nodes.filter(has_text="Source")).to_have_count(2)
    join = nodes.filter(has_text="Join")
    expect(join.get_by_text("rows, ")).to_be_visible()  # the size of its state
    expect(page.get_by_text("stage 1: rows brought together by item")).to_be_visible()
    join.click()
    side = page.get_by_role("region", name="The operator")
    expect(side.get_by_text("whose end the other side's CTI has not passed").first).to_be_visible()
    expect(side.get_by_role("heading")).to_contain_text("Join")
    nodes.filter(has_text="clients of sales").click()
    expect(side.get_by_text("minutes")).to_be_visible()  # it is shared
    expect(page.get_by_role("link", name="Answers").last).to_have_attribute("href", "#/answers/turnover")
    expect(page.get_by_role("link", name="Debugger").last).to_have_attribute("href", "#/debug/turnover")


def test_batches_and_where_their_time_was_spent(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "query/minutes?tab=batches")
    grid = page.get_by_role("grid", name="batches of minutes")
    corrected = grid.locator(".vt-rows .vt-row:has(> :nth-child(5):text-is('1'))")
    expect(corrected.get_by_role("img")).to_be_visible()
    corrected.click()
    expect(page.get_by_text("2, of which 1 take answers back")).to_be_visible()
    expect(page.get_by_text("reads and computes")).to_be_visible()


def test_charts_have_a_text(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "query/minutes?tab=charts", dark=True)
    rates = page.get_by_role("region", name="Rows and changes in each second")
    expect(rates.locator("canvas")).to_be_visible()
    expect(rates.get_by_text("rows read: now")).to_be_visible()
    rates.get_by_text("as a table").click()
    expect(rates.get_by_role("columnheader", name="corrections")).to_be_visible()
    expect(rates.get_by_role("row").nth(1)).to_be_visible()
    page.get_by_role("button", name="Theme").click()
    expect(rates.locator("canvas")).to_be_visible()


def test_log_diverted_rows_checkpoint_and_text(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "query/minutes?tab=log")
    expect(page.get_by_text("created by local")).to_be_visible()
    page.get_by_role("tab", name="Diverted").click()
    diverted = page.get_by_role("grid").get_by_role("row").nth(1)
    expect(diverted).to_contain_text("late: its sync time 2024-05-01T11:00:00 is before the CTI")
    expect(diverted).to_contain_text(json.dumps(HOSTILE)[:-1])
    page.get_by_role("tab", name="Checkpoint").click()
    expect(page.get_by_role("cell", name="clients of sales (item STRING, amount LONG, ts DATETIME)")).to_be_visible()
    expect(page.get_by_text("has not closed them").first).to_be_visible()
    assert str(shop.data) not in page.content()
    page.get_by_role("tab", name="SQL").click()
    expect(page.get_by_text("QUERY minutes AS")).to_be_visible()
    expect(page.get_by_text("CTI delay: up to 1 min")).to_be_visible()


def test_why_a_query_failed(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "query/broken")
    expect(page.get_by_role("alert")).to_contain_text("an event breaks the promise of the CTI")
    expect(page.get_by_role("button", name="Start broken")).to_be_visible()
    page.goto(f"{shop.url}/ui/#/query/nothing")
    expect(page.get_by_role("alert")).to_contain_text("there is no query 'nothing'")


def test_hostile_names_are_texts(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "queries", width=390)
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    page.locator(".graph-node").filter(has_text="Output").click()
    expect(page.get_by_role("region", name="The operator").get_by_text(HOSTILE).first).to_be_visible()
    for tab in ("Charts", "Batches", "Log", "Diverted", "Checkpoint", "SQL"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        assert page.locator("img").count() == 0
        assert no_scroll(page), tab


def test_small_and_dark(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop, "queries", width=390, dark=True)
    expect(row(page, "minutes").locator(".query-state")).to_be_visible()
    assert no_scroll(page)
    page.goto(f"{shop.url}/ui/#/query/turnover")
    expect(page.locator(".graph-node").filter(has_text="Join")).to_have_count(1)
    assert no_scroll(page)


def test_keys_alone(shop: Served, new_page: NewPage) -> None:
    """From the list into a query, through its tabs, to an operator, and back."""
    page = opened(new_page, shop, "queries")
    expect(row(page, "minutes")).to_be_visible()
    focus(page, "minutes")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="minutes")).to_be_visible()
    expect(page.locator(".graph-node").first).to_be_visible()
    focus(page, "Plan")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Charts")).to_be_focused()
    expect(page.get_by_role("tab", name="Charts")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    expect(page.get_by_role("grid", name="batches of minutes")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_text("reads and computes")).to_be_visible()
    page.get_by_role("tab", name="Batches").focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("tab", name="Plan")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Tab")
    expect(page.locator(".graph-node").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="The operator").get_by_role("heading")).to_contain_text("#1 Source")
    focus(page, "Stop minutes", back=True)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".query-state")).to_have_text("running")


def focus(page: Page, name: str, *, back: bool = False) -> None:
    """Press Tab until the element of this name has the focus."""
    for _ in range(60):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        found = page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent")
        if found == name:
            return
    raise AssertionError(f"keys do not reach {name}")


# --- the last: the server is killed


def test_the_page_comes_back_by_itself(shop: Served, new_page: NewPage) -> None:
    overview = opened(new_page, shop, "queries")
    page = opened(new_page, shop, "query/minutes?tab=batches")
    expect(row(overview, "minutes").locator(".query-state")).to_have_text("running")
    grid = page.get_by_role("grid", name="batches of minutes")
    expect(grid.get_by_role("row").nth(1)).to_be_visible()
    shop.kill()
    insert(shop, "sales", *[sale("12:02:00", 1)] * 37)
    cell = grid.get_by_role("row").nth(1).get_by_role("gridcell", name="37", exact=True)
    expect(cell).to_be_visible(timeout=120_000)
    expect(page.locator(".connection")).to_have_text("")
    expect(row(overview, "minutes").locator(".query-state")).to_have_text("running")
