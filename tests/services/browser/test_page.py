"""The frame of the page: its parts load under their policy, who may see it, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect
from tests.services.browser.conftest import NewPage
from tests.services.server.soak.serving import Served

from headrace.server.access import Access


def test_the_server_leads_to_the_page(served: Served, new_page: NewPage) -> None:
    page = new_page(served.url)
    expect(page.get_by_role("navigation").get_by_role("link", name="Queries")).to_be_visible()
    expect(page.get_by_text("(admin)")).to_be_visible()
    page.goto(served.url)
    expect(page).to_have_url(f"{served.url}/ui/#/queries")


def test_themes(served: Served, new_page: NewPage) -> None:
    page = new_page(served.url, dark=True)
    back = "getComputedStyle(document.body).backgroundColor"
    expect(page.get_by_role("button", name="Theme")).to_be_visible()
    dark = page.evaluate(back)
    page.get_by_role("button", name="Theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.evaluate(back) != dark


def test_addresses_of_nothing(served: Served, new_page: NewPage) -> None:
    page = new_page(served.url)
    problems: list[object] = []
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    for place in ("query/%E0%A4%A", "constructor"):
        page.goto(f"{served.url}/ui/#/{place}")
        expect(page.get_by_text("There is no such screen")).to_be_visible()
        page.goto(f"{served.url}/ui/#/queries")
        expect(page.get_by_role("heading", name="Queries")).to_be_visible()
    page.goto(f"{served.url}/ui/#/answers/nosuch")
    expect(page.get_by_role("alert")).to_contain_text("There is no such query, stream, table or view.")
    page.get_by_role("link", name="What there is").click()
    expect(page.get_by_role("heading", name="Answers")).to_be_visible()
    assert problems == []


def test_the_policy_of_the_page(served: Served) -> None:
    reply = httpx.get(f"{served.url}/ui/")
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert httpx.get(f"{served.url}/ui/no.js").status_code == 404
    assert httpx.get(f"{served.url}/ui/..%2fassets.py").status_code == 404


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    """A server whose clients need tokens."""
    server = Served(tmp_path / "server", "--require-tokens")
    try:
        yield server
    finally:
        server.close()


def test_a_token_is_asked_for(guarded: Served, new_page: NewPage) -> None:
    access = Access(guarded.data)
    token = access.tokens.create("ann", "reader")
    access.close()
    page = new_page(guarded.url)
    page.get_by_label("Token").fill("hr_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_text("ann (reader)")).to_be_visible()
    assert token not in json.dumps(page.evaluate("({...localStorage})"))
    page.get_by_role("navigation").get_by_role("link", name="Editor").click()
    page.get_by_role("textbox", name="SQL").fill("CREATE SECRET s AS 'hunter2'")
    page.wait_for_function("JSON.stringify({...sessionStorage}).includes('hunter2')")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert "hunter2" not in json.dumps(page.evaluate("[{...localStorage}, {...sessionStorage}]"))
