"""The Debugger: from a wrong answer to the line of its cause, removals, hostile values, keys, narrow and dark."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.docs.test_readme import ROOT, blocks
from tests.services.browser.conftest import NewPage
from tests.services.server.soak.serving import Served

import headrace as hr

HOSTILE = "<img src=x onerror=alert(1)>"
TUTORIAL = ROOT / "docs" / "tutorials" / "wrong_average.md"
ODD = '''
odd = hr.events("""
    kind    | le | re | re_new | k
    insert  | 1  | 5  |        | <img src=x onerror=alert(1)>
    insert  | 2  | 5  |        | b
    retract | 2  | 5  | 2      | b
""").select(**{"<b>k</b>": "k"})
'''


def write_trades(folder: Path) -> None:
    """The files of the tutorial: one price at 12:05 has lost its point, one row is out of order, one is late."""
    files = {block.title: block.text for block in blocks(TUTORIAL.read_text()) if block.title}
    subprocess.run([sys.executable, "-c", files["make_trades.py"]], cwd=folder, check=True)
    (folder / "average.py").write_text(files["average.py"] + ODD)


class Ui:
    """A running `headrace ui`."""

    def __init__(self, target: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "headrace", "ui", target, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip().partition(": ")[2]
        self.url = self.address.partition("/ui/")[0]

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    folder = tmp_path_factory.mktemp("debugger")
    write_trades(folder)
    started = Ui(f"{folder / 'average.py'}:average", "--batch-rows", "25")
    yield started
    started.close()


def opened(new_page: NewPage, ui: Ui, **options: int | bool) -> Page:
    page = new_page(ui.url, **options)
    page.goto(ui.address)
    expect(page.get_by_role("group", name="The operators")).to_be_visible()
    return page


def rows_of(page: Page) -> Locator:
    return page.get_by_role("grid", name="Rows of the chosen operator").locator(".vt-rows").get_by_role("row")


def at_batch(page: Page, batch: int) -> None:
    page.get_by_role("slider", name="Batch").fill(str(batch))
    expect(page.locator(".dbg-batch")).to_contain_text(f"batch {batch}")


def operator(page: Page, number: int) -> Locator:
    return page.locator(".graph-node", has_text=f"#{number} ")


def find_wrong_price(page: Page, pictures: Path | None = None) -> None:
    """The steps of the tutorial: the average is wrong at 12:05. With a folder, a picture of each step."""

    def picture(number: int) -> None:
        if pictures is not None:
            page.screenshot(path=pictures / f"debugger_{number}.png", full_page=True)

    wrong = rows_of(page).filter(has_text="12:05:00").filter(has_text="12:06:00").filter(has_text="93.")
    expect(wrong).to_be_visible()
    picture(1)
    wrong.click()
    answer = page.get_by_role("region", name="The chosen row")
    causes = answer.get_by_role("grid", name="Causes among #1").locator(".vt-rows").get_by_role("row")
    expect(
        answer.get_by_text("window [2024-05-01 12:05:00, 2024-05-01 12:06:00) of symbol = A ← 12 members")
    ).to_be_visible()
    expect(causes.first).to_contain_text("1010")
    picture(2)
    causes.first.click()
    expect(answer.get_by_text("trades.csv, line 164")).to_be_visible()
    expect(page.locator(".dbg-rows .marked.vt-current")).to_contain_text("1010")
    expect(answer.get_by_text("Kept away by it")).to_be_visible()
    expect(answer.locator(".dbg-steps .dbg-gone")).to_contain_text("price = 9.9")
    picture(3)


def test_from_a_wrong_answer_to_the_line_of_its_cause(ui: Ui, new_page: NewPage, tmp_path: Path):
    page = opened(new_page, ui)
    find_wrong_price(page, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"debugger_{i}.png" for i in (1, 2, 3)]
    assert page.locator(".graph-node.cause").count() == 3
    assert page.locator(".graph-edge.cause").count() == 2
    assert "token" not in page.url
    page.reload()
    expect(page.locator(".dbg-batch")).to_contain_text("batch 6")


def test_a_removal_and_its_cause(ui: Ui, new_page: NewPage):
    page = opened(new_page, ui)
    page.get_by_role("tab", name="Changes").click()
    at_batch(page, 12)
    page.get_by_role("button", name="Next batch").click()
    expect(operator(page, 3)).to_contain_text("−1")
    expect(page.locator(".graph-edge text")).to_contain_text(["+25", "+20"])
    rows_of(page).filter(has_text="−").click()
    answer = page.get_by_role("region", name="The chosen row")
    expect(answer.get_by_role("button", name="Why was it taken back?")).to_have_attribute("aria-pressed", "true")
    expect(answer.get_by_text("12:09:59").first).to_be_visible()
    answer.get_by_role("button", name="Why is it here?").click()
    expect(answer.get_by_role("button", name="Why is it here?")).to_have_attribute("aria-pressed", "true")


def test_rows_that_were_late_have_their_rule(ui: Ui, new_page: NewPage):
    page = opened(new_page, ui)
    at_batch(page, 18)
    expect(page.locator(".dbg-rule")).to_contain_text("is before the CTI")
    page.get_by_role("button", name="Show the rows").click()
    page.get_by_role("tab", name="Changes").click()
    rows_of(page).filter(has_text="trades.csv").click()
    answer = page.get_by_role("region", name="The chosen row")
    expect(answer).to_contain_text("trades.csv, line 453")
    expect(answer).to_contain_text("not taken into the stream")


def test_state_operator_and_times(ui: Ui, new_page: NewPage):
    page = opened(new_page, ui)
    at_batch(page, 6)
    page.get_by_role("tab", name="State").click()
    expect(page.get_by_role("grid", name="State").first).to_be_visible()
    page.get_by_role("tab", name="Operator").click()
    expect(page.locator(".dbg-content")).to_contain_text("CTI after this batch")
    expect(page.locator(".dbg-content")).to_contain_text("2024-05-01 12:04:00")


def test_with_the_keyboard_alone(ui: Ui, new_page: NewPage):
    page = opened(new_page, ui)
    at_batch(page, 10)
    page.get_by_role("slider", name="Batch").press("ArrowLeft")
    expect(page.locator(".dbg-batch")).to_contain_text("batch 9")
    page.get_by_role("button", name="Trace again").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".dbg-batch")).to_contain_text("batch 10")
    operator(page, 3).focus()
    page.keyboard.press("ArrowLeft")
    expect(operator(page, 2)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".dbg-operator")).to_contain_text("#2 Where")
    expect(rows_of(page).first).to_contain_text("(instant)")
    page.get_by_role("grid", name="Rows of the chosen operator").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="The chosen row")).to_contain_text("Step by step")


def test_why_a_row_is_not_there_and_why_a_cti_is(ui: Ui, new_page: NewPage):
    page = opened(new_page, ui)
    page.get_by_role("button", name="Why is a row not there?").click()
    answer = page.get_by_role("region", name="The chosen row")
    answer.get_by_label("symbol").fill("C")
    answer.get_by_label("at the time").fill("2024-05-01T12:05:10")
    page.keyboard.press("Enter")
    expect(answer.locator(".dbg-reason").first).to_contain_text("no event")
    answer.get_by_label("symbol").fill("")
    page.get_by_label("at the time").fill("")
    page.get_by_label("price", exact=True).fill("many")
    page.keyboard.press("Enter")
    expect(answer.get_by_role("alert")).to_contain_text("no value of price")
    at_batch(page, 6)
    page.get_by_role("tab", name="Operator").click()
    page.get_by_role("button", name="Why?", exact=True).click()
    expect(answer).to_contain_text("less the delay")
    expect(page.locator(".graph-node.cause")).to_have_count(3)


def test_breakpoints_and_steps(ui: Ui, new_page: NewPage):
    page = opened(new_page, ui)
    page.get_by_text("Breakpoints and steps").click()
    page.get_by_label("Stop when").select_option("#3 Aggregate")
    page.get_by_label("condition").fill("price > 80")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".dbg-breakpoints li")).to_contain_text("output of #3 when")
    page.get_by_role("button", name="Run to a breakpoint").click()
    expect(page.locator(".dbg-pause")).to_contain_text("after #3 Aggregate")
    expect(page.locator(".dbg-operator")).to_contain_text("#3 Aggregate")
    rows_of(page).filter(has_text="93.").click()
    causes = page.get_by_role("grid", name="Causes among #1").locator(".vt-rows").get_by_role("row")
    expect(causes.first).to_contain_text("1010")
    page.get_by_role("button", name="Step a batch").click()
    expect(page.locator(".dbg-pause")).to_contain_text("after batch")
    page.get_by_role("button", name="Delete breakpoint 1").click()
    expect(page.locator(".dbg-breakpoints li")).to_have_count(0)
    page.get_by_role("button", name="Run to a breakpoint").click()
    expect(page.locator(".dbg-pause")).to_contain_text("end of the input")


def test_a_run_that_fails(new_page: NewPage, tmp_path: Path):
    """The whole query cannot be traced, but run step by step: up to the batch where it fails."""
    (tmp_path / "bad.py").write_text(
        "import headrace as hr\n\n\n@hr.udf\ndef unlucky(v: int) -> int:\n    return v // (v - 2)\n\n\n"
        "q = hr.events('le | re | v\\n1 | 9 | 1\\n2 | 9 | 2\\n3 | 9 | 3').select(u=unlucky('v'))\n"
    )
    failing = Ui(f"{tmp_path / 'bad.py'}:q", "--batch-rows", "1")
    try:
        page = new_page(failing.url)
        page.goto(failing.address)
        expect(page.get_by_role("alert")).to_contain_text("unlucky")
        page.get_by_text("Breakpoints and steps").click()
        page.get_by_role("button", name="Run to a breakpoint").click()
        expect(page.locator(".dbg-pause").get_by_role("alert")).to_contain_text("failed in batch 1")
        expect(page.locator(".dbg-batch")).to_contain_text("batch 1")
        expect(page.get_by_label("Stop when")).to_contain_text("#3 Select")
        at_batch(page, 0)
        page.get_by_role("tab", name="Changes").click()
        expect(rows_of(page)).to_contain_text("-1")
        page.get_by_role("button", name="Restart").click()
        expect(page.locator(".dbg-pause")).to_contain_text("at the start")
    finally:
        failing.close()


def test_two_versions_side_by_side(new_page: NewPage, tmp_path: Path):
    write_trades(tmp_path)
    changing = Ui(f"{tmp_path / 'average.py'}:average", "--batch-rows", "200")
    try:
        page = opened(new_page, changing)
        text = (tmp_path / "average.py").read_text()
        (tmp_path / "average.py").write_text(text.replace('col("quantity") > 0', '(col("price") < 100)'))
        page.get_by_role("button", name="Trace again").click()
        page.get_by_role("button", name="Compare with the trace before").click()
        compared = page.get_by_role("region", name="Comparison")
        expect(compared.get_by_role("heading").first).to_contain_text("rows of the answers differ")
        expect(compared.get_by_role("grid", name="Pairs")).to_contain_text("price < 100")
        expect(compared.locator(".dbg-remove").first).to_contain_text("only before")
        compared.get_by_role("button", name="Close").click()
        expect(compared).to_have_count(0)
    finally:
        changing.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_narrow_page(ui: Ui, new_page: NewPage, dark: bool):
    page = opened(new_page, ui, width=390, dark=dark)
    find_wrong_price(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_values_and_names_are_text(new_page: NewPage, tmp_path: Path):
    write_trades(tmp_path)
    hostile = Ui(f"{tmp_path / 'average.py'}:odd", "--batch-rows", "1")
    try:
        page = opened(new_page, hostile)
        page.get_by_role("tab", name="Changes").click()
        at_batch(page, 0)
        expect(rows_of(page)).to_contain_text(HOSTILE)
        rows_of(page).click()
        expect(page.get_by_role("region", name="The chosen row")).to_contain_text(f"<b>k</b> = {HOSTILE}")
        assert page.locator("main img, main b b").count() == 0
    finally:
        hostile.close()


def test_a_saved_query(new_page: NewPage, tmp_path: Path):
    write_trades(tmp_path)
    stream = runpy.run_path(str(tmp_path / "average.py"))["average"]
    query = stream.start(hr.memory(), host="local", checkpoint=tmp_path / "saved", record="1 h")
    query.process_all_available()
    query.stop()
    saved = Ui(str(tmp_path / "saved"), "--query", f"{tmp_path / 'average.py'}:average")
    try:
        page = new_page(saved.url)
        page.goto(saved.address)
        expect(page.get_by_text("Merge for Aggregate").first).to_be_visible()
        page.get_by_role("link", name="Trace the batches").click()
        expect(operator(page, 3)).to_contain_text("CTI 2024-05-01 12:13:00")
        expect(page.locator(".dbg-rule")).to_contain_text("1 late, 1 diverted")
    finally:
        saved.close()


def test_a_query_of_a_server(served: Served, new_page: NewPage):
    text = """
        CREATE TABLE ticks (id INT PRIMARY KEY, k STRING, x DOUBLE);
        QUERY sums AS SELECT k, sum(x) AS s FROM ticks GROUP BY k;
        INSERT INTO ticks VALUES (1, 'a', 1.0), (2, 'a', 2.0), (3, 'b', 4.0)
    """
    assert httpx.post(f"{served.url}/sql", json={"sql": text}, timeout=120).status_code == 200
    page = new_page(served.url)
    page.get_by_role("link", name="Debugger").click()
    page.get_by_role("link", name="sums").click()
    expect(page.get_by_role("group", name="The operators")).to_be_visible()
    served.kill()
    page.get_by_role("tab", name="State").click()
    expect(page.get_by_text("traced again")).to_be_visible()


def test_breakpoints_on_a_server(served: Served, new_page: NewPage):
    def sql(text: str) -> None:
        assert httpx.post(f"{served.url}/sql", json={"sql": text}, timeout=120).status_code == 200

    sql("""
        CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 min;
        QUERY minutes AS SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item
    """)
    page = new_page(served.url)
    page.goto(f"{served.url}/ui/#/debug/minutes")
    expect(page.get_by_text("has not read a row yet")).to_be_visible()
    for item, amount, at in (("pear", 2, "12:00:05"), ("fig", 3, "12:01:30"), ("pear", 40, "12:00:40")):
        sql(f"INSERT INTO sales VALUES ('{item}', {amount}, DATETIME '2024-05-01 {at}')")
    page.get_by_label("Rows of a batch").fill("1")
    page.get_by_role("button", name="Trace again").click()
    expect(page.get_by_role("group", name="The operators")).to_be_visible()
    page.get_by_text("Breakpoints and steps").click()
    page.get_by_label("Stop when").select_option("#2 Aggregate")
    page.get_by_label("condition").fill("total > (SELECT 1)")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".dbg-pause").get_by_role("alert")).to_contain_text("no value of total")
    page.get_by_label("condition").fill("total > 10")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".dbg-breakpoints li")).to_contain_text("output of #2 when total > 10")
    page.get_by_role("button", name="Restart").click()
    expect(page.locator(".dbg-pause")).to_contain_text("at the start")
    page.get_by_role("button", name="Run to a breakpoint").click()
    expect(page.locator(".dbg-pause")).to_contain_text("batch 2, after #2")
    expect(page.locator(".dbg-batch")).to_contain_text("batch 2")
    expect(rows_of(page).filter(has_text="42")).to_be_visible()
    page.get_by_role("button", name="Run to a breakpoint").click()
    expect(page.locator(".dbg-pause")).to_contain_text("no breakpoint stops the rest")
