"""A real browser for the tests of this folder, and pages that fail a test when something is wrong with them.

A page may not log an error, throw, break its content security policy, or ask another server for anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright
from tests.services.browser.chromium import chromium
from tests.services.server.soak.serving import Served

#: Playwright waits five seconds unless it is asked for more, and a machine may be busy.
expect.set_options(timeout=60_000)
NewPage = Callable[..., Page]

#: What a browser logs by itself when the server is away or refuses: tests of these look at what the page shows.
_ALLOWED = ("net::ERR_", "the server responded with a status of 4", "the server responded with a status of 5")

expect.set_options(timeout=60_000)  # a busy machine is slow, not wrong


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium(), args=options, headless=True)
        yield found
        found.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[NewPage]:
    """Makes pages, `new_page(url, width=390, dark=True)`; at the end of the test nothing may be wrong with them.

    With `app=False` the page is empty, for a test that fills it by itself.
    """
    wrong: list[str] = []
    contexts = []

    def make(url: str = "", *, width: int = 1280, height: int = 800, dark: bool = False, app: bool = True) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", timezone_id="UTC"
        )
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()

        def logged(message: ConsoleMessage) -> None:
            if message.type == "error" and not any(part in message.text for part in _ALLOWED):
                wrong.append(f"console: {message.text}")

        def asked(request: Request) -> None:
            if url and not request.url.startswith((url, "data:", "blob:")):
                wrong.append(f"asked elsewhere: {request.url}")

        page.on("console", logged)
        page.on("pageerror", lambda error: wrong.append(f"thrown: {error}"))
        page.on("request", asked)
        if not app:
            page.route("**/ui/app.js", lambda route: route.fulfill(content_type="text/javascript", body=""))
        if url:
            page.goto(f"{url}/ui/")
        return page

    yield make
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server of its own for the test, as a process: `served.kill()` kills it and starts it again."""
    server = Served(tmp_path / "server")
    try:
        yield server
    finally:
        server.close()
