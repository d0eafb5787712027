"""The screen Editor: errors at their places, completion, the plan as one types, running, examples, playing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.services.browser.conftest import NewPage
from tests.services.server.soak.serving import Served

from headrace.server.access import Access

_HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a stream, and a table whose name, column and value are hostile; clients may have tokens."""
    server = Served(tmp_path_factory.mktemp("editor") / "server")
    try:
        text = f"""
            CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 10 min;
            CREATE TABLE "{_HOSTILE}" ("{_HOSTILE}" STRING);
            INSERT INTO "{_HOSTILE}" VALUES ('{_HOSTILE}')
        """
        assert httpx.post(f"{server.url}/sql", json={"sql": text}, timeout=120).status_code == 200
        yield server
    finally:
        server.close()


def opened(new_page: NewPage, server: Served, **look: Any) -> Page:
    page = new_page(server.url, **look)
    page.goto(f"{server.url}/ui/#/editor")
    expect(editor(page)).to_be_visible()
    expect(page.get_by_text("The text is right.")).to_be_visible()
    return page


def editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="SQL")


def write(page: Page, text: str) -> None:
    """Replace the text; without completion in between."""
    editor(page).focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_an_error_is_marked_at_its_place(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop)
    write(page, "SELECT item, amuont FROM sales")
    expect(page.locator(".cm-lintRange-error")).to_have_text("amuont")
    expect(page.locator(".editor-verdict")).to_contain_text("there is no column 'amuont'")
    expect(page.locator(".editor-verdict")).to_contain_text("instead: amount")
    write(page, "SELECT item, amount FROM sales")
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)
    expect(page.get_by_text("The text is right.")).to_be_visible()
    write(page, "SELECT '😀' AS smile, item FORM sales")  # a letter of two units
    expect(page.locator(".cm-lintRange-error")).to_have_text("sales")


def test_completion_offers_columns(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop)
    write(page, "SELECT  FROM sales")
    for _ in range(len(" FROM sales")):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("amo")
    option = page.get_by_role("option", name="amount")
    expect(option).to_be_visible()
    expect(option).to_contain_text("of sales")
    write(page, "SELECT su")
    page.keyboard.press("Control+Space")
    expect(page.get_by_role("option", name="sum", exact=False).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".cm-tooltip-autocomplete")).to_have_count(0)


def test_the_plan_appears_as_one_types(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop)
    write(page, "SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item")
    expect(page.get_by_role("button", name="clients of sales").first).to_be_visible()
    page.get_by_text("EXPLAIN", exact=True).click()
    expect(page.get_by_label("EXPLAIN")).to_contain_text("total = sum(amount)")


def test_run(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop)
    write(page, f"INSERT INTO sales VALUES ('pear', 2, '2024-05-01T12:00:00');\nSELECT * FROM \"{_HOSTILE}\"")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("inserted into sales")).to_be_visible()
    expect(page.get_by_role("columnheader", name=_HOSTILE)).to_be_visible()
    expect(page.get_by_role("gridcell", name=_HOSTILE)).to_be_visible()
    assert page.locator("img").count() == 0
    write(page, "SELECT * FROM sales; SELECT item FROM nowhere")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("there is no stream 'nowhere'")
    expect(page.locator(".cm-lintRange-error")).to_have_text("nowhere")
    page.reload()
    expect(editor(page)).to_contain_text("nowhere")  # the text is kept


def test_tab_leaves_the_text(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop)
    editor(page).focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(editor(page)).not_to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(editor(page)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_label("Examples")).to_be_focused()


def test_examples_run(shop: Served, new_page: NewPage) -> None:
    """Those with rows to play with are below; what the others reply, a unit test looks at."""
    page = opened(new_page, shop, width=390, dark=True)
    for name in ("A join in time", "A pattern: a price that falls and rises"):
        page.get_by_label("Examples").select_option(name)
        expect(page.get_by_role("heading", name=name)).to_be_visible()
        expect(page.get_by_role("grid", name="SELECT")).to_be_visible()
        expect(page.get_by_text("The text is right.")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"


def test_playing(shop: Served, new_page: NewPage) -> None:
    page = opened(new_page, shop)
    page.get_by_label("Examples").select_option("An answer that corrects itself")
    answers = page.get_by_role("grid", name="Answers of example_minutes")
    insert = page.get_by_role("button", name="Insert the next row")
    for number in range(1, 5):
        expect(insert).to_be_enabled()
        if number == 4:
            expect(answers.get_by_role("row").filter(has_text="pear")).to_contain_text("2")
            page.get_by_label("amount of row 4").fill("40")
        insert.press("Enter")
        expect(page.get_by_text("✓")).to_have_count(number)
    expect(answers.get_by_role("row").filter(has_text="pear")).to_contain_text("2 → 42")
    page.get_by_role("button", name="Begin again").click()
    expect(page.get_by_text("✓")).to_have_count(0)
    expect(page.get_by_role("button", name="Insert the next row")).to_be_enabled()


def test_a_reader_may_look_and_not_change(shop: Served, new_page: NewPage) -> None:
    access = Access(shop.data)
    token = access.tokens.create("ann", "reader")
    access.close()
    page = new_page(shop.url)
    page.evaluate("(token) => sessionStorage.setItem('headrace.token', token)", token)
    page.goto(f"{shop.url}/ui/?reader#/editor")
    expect(page.get_by_text("ann (reader)")).to_be_visible()
    write(page, "CREATE TABLE another (a LONG)")
    expect(page.locator(".editor-verdict")).to_contain_text("needs the role writer")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("needs the role writer")
    write(page, "SELECT * FROM sales")
    expect(page.get_by_text("The text is right.")).to_be_visible()
