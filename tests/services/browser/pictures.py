"""The pictures of the dashboard in the documentation: `python -m tests.services.browser.pictures docs/pictures`.

The steps are those of the tests. Look at the pictures before you commit them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from tests.services.browser import picture_answers, picture_queries
from tests.services.browser.chromium import chromium
from tests.services.browser.test_debugger import Ui, find_wrong_price, write_trades


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=options)
        yield found
        found.close()


def new_page(found: Browser, *, dark: bool = False) -> Page:
    """A page of the size of the pictures."""
    context = found.new_context(
        viewport={"width": 1280, "height": 860}, color_scheme="dark" if dark else "light", timezone_id="UTC"
    )
    return context.new_page()


def write_debugger(folder: Path) -> None:
    """The steps of the tutorial about a wrong average."""
    with tempfile.TemporaryDirectory() as data, browser() as found:
        write_trades(Path(data))
        ui = Ui(f"{Path(data) / 'average.py'}:average", "--batch-rows", "25")
        try:
            page = new_page(found)
            page.goto(ui.address)
            find_wrong_price(page, folder)
        finally:
            ui.close()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write_debugger(target)
    picture_queries.write_pictures(target)
    picture_answers.write_pictures(target)
