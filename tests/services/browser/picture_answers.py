"""Pictures of the screens Answers and Editor: `python -m tests.services.browser.picture_answers docs/pictures`."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from pathlib import Path

import httpx
from playwright.sync_api import Page, expect, sync_playwright
from tests.services.browser.chromium import chromium
from tests.services.server.soak.serving import Served

_CREATED = """
CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 2 min;
QUERY minutes AS SELECT item, count(*) AS sold, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item;
"""
_ITEMS = ("pear", "fig", "truffle", "saffron")


def write_pictures(folder: Path) -> None:
    """Write the pictures: answers with a correction, their timeline, and an example in the editor."""
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        served = Served(Path(data) / "server")
        try:
            options = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=chromium(), args=options)
            page = browser.new_context(viewport={"width": 1280, "height": 800}, timezone_id="UTC").new_page()
            _answers(page, served, folder)
            page.set_viewport_size({"width": 1280, "height": 960})
            _editor(page, served, folder)
            browser.close()
        finally:
            served.close()


def _answers(page: Page, served: Served, folder: Path) -> None:
    chance = random.Random(3)

    def sell(*times: str) -> None:
        rows = [
            {"item": chance.choice(_ITEMS), "amount": chance.randint(1, 9), "ts": f"2024-05-01T{at}Z"} for at in times
        ]
        httpx.post(f"{served.url}/streams/sales/rows", json=rows, timeout=60).raise_for_status()

    httpx.post(f"{served.url}/sql", json={"sql": _CREATED}, timeout=60).raise_for_status()
    sell(*(f"12:{minute:02}:{second:02}" for minute in range(12) for second in range(2, 60, 9)))
    page.goto(f"{served.url}/ui/#/answers/minutes")
    expect(page.get_by_role("gridcell", name="pear").first).to_be_visible()
    page.reload()  # what was there before the page is not marked as new
    expect(page.get_by_role("gridcell", name="pear").first).to_be_visible()
    sell("12:10:40", "12:10:41", "12:10:42", "12:12:41", "12:12:42", "12:13:05")
    expect(page.locator(".answers-changed").first).to_be_visible()
    page.screenshot(path=str(folder / "dashboard_answers.png"))
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".tl-cti")).to_be_visible()
    page.get_by_role("application").press("ArrowDown")
    page.screenshot(path=str(folder / "dashboard_timeline.png"))


def _editor(page: Page, served: Served, folder: Path) -> None:
    page.goto(f"{served.url}/ui/#/editor")
    page.get_by_label("Examples").select_option("An answer that corrects itself")
    for number in range(1, 5):
        expect(page.get_by_role("button", name="Insert the next row")).to_be_enabled()
        page.get_by_role("button", name="Insert the next row").click()
        expect(page.get_by_text("✓")).to_have_count(number)
        if number == 3:
            expect(page.get_by_role("grid", name="Answers of").get_by_role("row")).to_have_count(3)
    expect(page.locator(".answers-changed")).to_be_visible()
    page.screenshot(path=str(folder / "dashboard_editor.png"))


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
