"""The timeline (`ui/src/parts/timeline.js`) over plain data: what it draws, keys, and the limits that it states."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.services.browser.conftest import NewPage
from tests.services.browser.modules import with_modules

_HOSTILE = "<img src=x onerror=alert(1)>"
_SHOW = """async (data) => {
    const { timeline } = await import("/parts/timeline.js");
    window.chosen = [];
    const mark = (row) => row.mark && { kind: row.mark, age: 0 };
    window.shown ??= timeline({ mark, onRow: (row) => window.chosen.push(row.n) });
    document.querySelector("main").replaceChildren(window.shown.element);
    window.shown.show(data);
}"""


@pytest.fixture
def page(new_page: NewPage) -> Page:
    return with_modules(new_page())


def _rows(count: int) -> list[dict[str, Any]]:
    """Lifetimes of ten ticks, of two keys; the last one goes on."""
    rows = [{"le": 10 * i, "re": 10 * i + 10, "item": _HOSTILE if i % 2 else "fig", "n": i} for i in range(count)]
    rows[-1]["re"] = "inf"
    return rows


def _show(page: Page, rows: list[dict[str, Any]], **data: Any) -> None:
    page.evaluate(_SHOW, {"rows": rows, "columns": ["item", "n"], "key": "item", "cti": None, **data})


def test_what_is_final_and_what_is_open(page: Page) -> None:
    _show(page, _rows(6), cti=35)
    expect(page.locator(".tl-bar")).to_have_count(6)
    expect(page.locator(".tl-bar:not(:has(.tl-open))")).to_have_count(3)  # [0, 30)
    expect(page.locator(".tl-bar:has(.tl-open):has(.tl-final)")).to_have_count(1)  # [30, 40)
    expect(page.locator(".tl-head")).to_have_count(1)
    expect(page.locator(".tl-cti text")).to_have_text("final up to 35")
    expect(page.locator(".tl-name")).to_have_text([_HOSTILE[:24] + "…", "fig"])
    page.get_by_label("Lanes by").select_option("")
    expect(page.locator(".tl-name")).to_have_count(0)
    rows = _rows(6)
    rows[4] |= {"n": 40, "mark": "corrected"}
    _show(page, rows, cti=45)
    expect(page.locator(".tl-corrected")).to_have_count(1)
    expect(page.locator(".tl-cti text")).to_have_text("final up to 45")  # it moves
    assert page.locator("img").count() == 0


def test_dates(page: Page) -> None:
    row = {"le": "2024-05-01T12:00:00.000000Z", "re": "2024-05-01T12:10:00.000000Z", "item": "fig", "n": 1}
    _show(page, [row, {**row, "re": None}], cti="2024-05-01T12:05:00Z", dates=True)
    expect(page.locator(".tl-cti text")).to_have_text("final up to 12:05:00")
    expect(page.locator(".tl-time").filter(has_text="2024-05-01")).to_have_count(1)
    expect(page.locator(".tl-bar:has(.tl-open):has(.tl-final)")).to_have_count(2)


def test_all_begin_at_one_instant(page: Page) -> None:
    """Of large times, the room around them must not be lost when numbers are rounded."""
    for start, dates in (("2026-11-18T19:54:02.355108Z", True), (1795031642355108, False), (2**56, False)):
        _show(page, [{"le": start, "re": "inf", "item": name, "n": 1} for name in "ab"], dates=dates)
        expect(page.locator(".tl-bar")).to_have_count(2)
        expect(page.locator(".tl-grid[x1=NaN], .tl-time[x=NaN]")).to_have_count(0)
        assert page.locator(".tl-time").count() > 0


def test_the_keyboard_alone(page: Page) -> None:
    _show(page, _rows(40))
    expect(page.locator(".tl-bar")).to_have_count(40)
    page.keyboard.press("Tab")
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("status")).to_contain_text("10 – 20")
    expect(page.get_by_role("status")).to_contain_text(_HOSTILE)
    page.keyboard.press("Enter")
    assert page.evaluate("window.chosen") == [1]
    page.keyboard.press("+")
    page.keyboard.press("+")
    expect(page.get_by_text("in view shown")).not_to_contain_text("40 of 40")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("0")
    expect(page.locator(".tl-bar")).to_have_count(40)
    page.keyboard.press("End")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "true")


def test_it_states_its_limits(page: Page) -> None:
    _show(page, _rows(12_000))
    page.get_by_role("button", name="All").click()
    expect(page.get_by_text("300 of 12,000 in view shown")).to_be_visible()
    expect(page.locator(".tl-bar")).to_have_count(300)
    page.get_by_role("application").hover()
    page.mouse.down()
    page.mouse.move(900, 200)
    page.mouse.up()
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
