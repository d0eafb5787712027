"""The Debugger with 100,000 changes in a batch: nothing freezes, a click is answered; and two queries compared."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.services.browser.conftest import NewPage
from tests.services.browser.test_debugger import Ui, opened, operator, rows_of
from tests.services.server.soak.serving import Served

#: A filter, a projection, a window, a filter and a projection over 200,000 events in two batches.
MANY = """
import numpy as np
import pyarrow as pa

import headrace as hr
from headrace import col

number = np.arange(200_000)
table = pa.table({"k": number % 100, "i": number, "x": (number % 97).astype(float), "ts": number * 10})
rows = hr.from_arrow(table, lifetime=hr.point("ts")).where(col("x") >= 0).with_columns(y=col("x") * 2)
means = rows.group_by("k").window(hr.tumbling(100_000)).aggregate(y=hr.avg("y"), n=hr.count())
many = means.where(col("n") > 0).with_columns(z=col("y") + 1)
"""
#: Click an element, and return the milliseconds until a fitting one is shown in the panel of the chosen row.
CLICK = """([place, answer]) => new Promise((resolve, reject) => {
    const row = document.querySelectorAll(".dbg-rows .vt-rows [role=row]")[place];
    const panel = document.querySelector(".dbg-answer");
    const began = performance.now();
    row.click();
    const seen = () => panel.querySelector(answer) && (watch.disconnect(), resolve(performance.now() - began));
    const watch = new MutationObserver(seen);
    watch.observe(panel, { childList: true, subtree: true });
    setTimeout(() => reject(new Error("no answer is shown")), 60000);
})"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    folder = tmp_path_factory.mktemp("many")
    (folder / "many.py").write_text(MANY)
    started = Ui(f"{folder / 'many.py'}:many", "--batch-rows", "100000")
    yield started
    started.close()


def fastest(page: Page, answer: str) -> float:
    """Clicks on rows that nobody has asked about, each answered anew."""
    found: list[float] = [page.evaluate(CLICK, [place, answer]) for place in range(2, 10)]
    print(f"a click is answered in {min(found):.0f} to {max(found):.0f} ms")  # noqa: T201 - a figure of the docs
    return min(found)


def test_a_click_is_answered_at_once(new_page: NewPage, many: Ui):
    """The goal is 200 ms on an idle machine; beside other tests it may be much more."""
    page = opened(new_page, many)
    operator(page, 6).click()
    expect(page.get_by_text("2,000 events")).to_be_visible()
    assert fastest(page, ".dbg-steps") < 2000
    operator(page, 1).click()
    page.get_by_role("tab", name="Changes").click()
    page.get_by_role("slider", name="Batch").fill("1")
    expect(page.get_by_text("+100,000 in this batch")).to_be_visible()
    assert fastest(page, ".dbg-steps") < 2000


def test_a_batch_of_many_changes(new_page: NewPage, many: Ui):
    page = opened(new_page, many)
    operator(page, 3).click()
    page.get_by_role("tab", name="Changes").click()
    page.get_by_role("slider", name="Batch").fill("1")
    expect(page.get_by_text("+100,000 in this batch")).to_be_visible()
    assert rows_of(page).count() < 100
    longest = page.evaluate("""() => new Promise((resolve) => {
        const scroller = document.querySelector(".dbg-rows .vt");
        let [last, longest, frames] = [performance.now(), 0, 0];
        const frame = (now) => {
            longest = Math.max(longest, now - last);
            last = now;
            scroller.scrollTop = scroller.scrollHeight * (frames / 60);
            if ((frames += 1) < 60) requestAnimationFrame(frame); else resolve(longest);
        };
        requestAnimationFrame(frame);
    })""")
    assert longest < 1000  # milliseconds without a frame


def test_two_queries_side_by_side(served: Served, new_page: NewPage):
    text = """
        CREATE TABLE visits (id INT PRIMARY KEY, k STRING, x DOUBLE);
        QUERY totals AS SELECT k, sum(x) AS s FROM visits GROUP BY k;
        QUERY large_totals AS SELECT k, sum(x) AS s FROM visits WHERE x > 1 GROUP BY k;
        INSERT INTO visits VALUES (1, 'a', 1.0), (2, 'a', 2.0), (3, 'b', 4.0)
    """
    assert httpx.post(f"{served.url}/sql", json={"sql": text}, timeout=120).status_code == 200
    page = new_page(served.url)
    page.goto(f"{served.url}/ui/#/debug/totals")
    expect(page.get_by_role("group", name="The operators")).to_be_visible()
    page.get_by_label("Compare with another query").select_option("large_totals")
    comparison = page.get_by_role("region", name="Comparison")
    expect(comparison).to_contain_text("2 rows of the answers differ")
    answers = comparison.get_by_role("grid", name="Answers of both runs").locator(".vt-rows").get_by_role("row")
    expect(answers.filter(has_text="only totals")).to_contain_text("3")
    expect(answers.filter(has_text="only large_totals")).to_contain_text("2")
    expect(answers.filter(has_text="both")).to_contain_text("4")
    expect(comparison.get_by_role("grid", name="Pairs of operators")).to_contain_text("not in both")


def test_a_pair_that_is_gone(served: Served, new_page: NewPage):
    """A query that was dropped since the list was made: the page says so, and stays as it is."""

    def sql(text: str) -> None:
        assert httpx.post(f"{served.url}/sql", json={"sql": text}, timeout=120).status_code == 200

    sql("""
        CREATE TABLE clicks (id INT PRIMARY KEY, x DOUBLE);
        QUERY one AS SELECT sum(x) AS s FROM clicks;
        QUERY two AS SELECT max(x) AS s FROM clicks;
        INSERT INTO clicks VALUES (1, 1.0)
    """)
    page = new_page(served.url)
    page.goto(f"{served.url}/ui/#/debug/one")
    expect(page.get_by_role("group", name="The operators")).to_be_visible()
    others = page.get_by_label("Compare with another query")
    expect(others).to_contain_text("two")
    sql("DROP QUERY two")
    others.select_option("two")
    expect(page.get_by_role("alert")).to_contain_text("two")
    expect(page.get_by_role("group", name="The operators")).to_be_visible()
