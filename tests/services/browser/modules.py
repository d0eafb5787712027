"""Modules of the page in a browser, each by itself: `ui/src` under an address that only the browser knows."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, Route

__all__ = ["UI", "with_modules"]

UI = Path(__file__).parents[3] / "ui" / "src"
_ADDRESS = "http://modules.test/"


def with_modules(page: Page) -> Page:
    """An empty page whose scripts can `import("/fold.js")`; modules are without their styles, which the build adds."""

    def serve(route: Route) -> None:
        path = UI / route.request.url.removeprefix(_ADDRESS)
        if path == UI:
            route.fulfill(content_type="text/html", body="<!doctype html><main></main>")
        else:
            text = re.sub(r'^import "[^"]*\.css";$', "", path.read_text(), flags=re.MULTILINE)
            route.fulfill(content_type="text/javascript", body=text)

    page.route(f"{_ADDRESS}**", serve)
    page.goto(_ADDRESS)
    return page
