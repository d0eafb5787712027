"""Pictures of the screens Queries and A query, over rows that keep arriving: `python -m
tests.services.browser.picture_queries docs/pictures`.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.services.browser.chromium import chromium
from tests.services.server.soak.serving import Served

_CREATED = """
CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 5 s LATE DIVERT;
CREATE STREAM prices (item STRING, price DOUBLE, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 5 s LATE DIVERT;
CREATE STREAM readings (value LONG, ts LONG) ORDER BY ts LATE RAISE WITH PROGRESS ADVANCE 1;
QUERY totals AS SELECT item, sum(amount) AS total, count(*) AS n FROM sales [TUMBLING 10 s] GROUP BY item;
QUERY busy AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 10 s] GROUP BY item HAVING sum(amount) > 500;
QUERY turnover AS SELECT s.item, sum(s.amount * p.price) AS money
  FROM sales [RANGE 10 s] AS s JOIN prices [RANGE 1 min] AS p ON s.item = p.item GROUP BY s.item;
QUERY large AS SELECT item, amount FROM sales WHERE amount > 90;
QUERY strict AS SELECT value FROM readings;
QUERY paused AS SELECT item FROM prices;
STOP QUERY paused;
"""
_ITEMS = ("pear", "fig", "truffle", "saffron")
_SECONDS = 45


def write_pictures(folder: Path) -> None:
    """Write the pictures; it takes about a minute."""
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright, _fed(Path(data)) as served:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium(), args=options)
        page = _opened(browser, served, "queries")
        expect(page.get_by_role("link", name="turnover")).to_be_visible()
        page.wait_for_timeout(_SECONDS * 1_000)  # a picture of a minute needs a minute of rows
        page.screenshot(path=str(folder / "dashboard_queries.png"))
        page = _opened(browser, served, "query/turnover")
        page.locator(".graph-node").filter(has_text="Join").click()
        page.wait_for_timeout(2_000)
        page.screenshot(path=str(folder / "dashboard_query.png"))
        for tab in ("charts", "batches"):
            page.get_by_role("tab", name=tab.title()).click()
            page.wait_for_timeout(2_000)
            page.screenshot(path=str(folder / f"dashboard_query_{tab}.png"))
        browser.close()


def _opened(browser: Browser, served: Served, place: str) -> Page:
    page = browser.new_context(viewport={"width": 1280, "height": 860}, timezone_id="UTC").new_page()
    page.goto(f"{served.url}/ui/#/{place}")
    return page


@contextmanager
def _fed(data: Path) -> Iterator[Served]:
    """A server with queries, and a thread that inserts rows: most are in order, some are late."""
    served, ended = Served(data / "server"), threading.Event()
    httpx.post(f"{served.url}/sql", json={"sql": _CREATED}, timeout=120).raise_for_status()
    _insert(served, "readings", [{"value": 1, "ts": 10}, {"value": 2, "ts": 1}])
    feeding = threading.Thread(target=_feed, args=(served, ended))
    feeding.start()
    try:
        yield served
    finally:
        ended.set()
        feeding.join()
        served.close()


def _feed(served: Served, ended: threading.Event) -> None:
    draws = random.Random(1)
    while not ended.wait(0.2):
        now, rows = datetime.now(UTC), []
        for _ in range(draws.randint(5, 60)):
            late = draws.choice((0, 0, 1, 2, 4)) if draws.random() < 0.995 else 30
            at = (now - timedelta(seconds=late)).isoformat()
            rows.append({"item": draws.choice(_ITEMS), "amount": draws.randint(1, 100), "ts": at})
        _insert(served, "sales", rows)
        prices = [{"item": item, "price": round(draws.uniform(1, 9), 2), "ts": now.isoformat()} for item in _ITEMS]
        _insert(served, "prices", prices[: draws.randint(0, len(prices))] or prices[:1])


def _insert(served: Served, stream: str, rows: list[dict[str, object]]) -> None:
    httpx.post(f"{served.url}/streams/{stream}/rows", json=rows, timeout=120).raise_for_status()


if __name__ == "__main__":
    write_pictures(Path(sys.argv[1]))
