"""The widgets of notebooks in a browser: a page gives them a model, as notebooks do, with the data of real queries."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect
from tests.services.browser.conftest import NewPage
from tests.services.server.soak.serving import Served

import headrace as hr
from headrace.notebook.widgets import QueryFollower, widget_of

#: A model of anywidget: values, messages from Python (`window.receive`) and to Python (`window.sent`).
_SHOW = """async ([kind, data]) => {
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/ui/widget.css" });
  document.head.append(link);
  const el = document.createElement("div");
  document.body.replaceChildren(el);
  const listeners = [];
  window.sent = [];
  const call = (name, value) => listeners.filter((one) => one[0] === name).forEach((one) => one[1](value));
  window.receive = (message) => call("msg:custom", message);
  window.change = (next) => { data = next; call("change:data"); };
  const model = {
    get: (name) => ({ kind, data })[name],
    on: (name, call) => listeners.push([name, call]),
    off: (name, call) => listeners.splice(listeners.findIndex((one) => one[0] === name && one[1] === call), 1),
    send: (message) => window.sent.push(message),
  };
  const widget = (await import("/ui/widget.js")).default;
  window.close_widget = widget.render({ model, el });
}"""


def _shown(page: Page, widget: Any) -> None:
    page.evaluate(_SHOW, [widget.kind, widget.data])


def test_a_stream_is_a_graph(served: Served, new_page: NewPage) -> None:
    page = new_page(served.url, app=False)
    hostile = "<img src=x onerror=alert(1)>"
    stream = hr.events("le | re | v\n1 | 5 | 1")
    _shown(page, widget_of(stream.window(hr.tumbling(5)).aggregate(**{hostile: hr.count()})))
    aggregate = page.get_by_role("button", name="Aggregate").or_(page.get_by_role("button", name="Merge")).first
    aggregate.focus()
    page.keyboard.press("Enter")
    expect(page.locator("pre")).to_contain_text("CTI delay")
    expect(page.locator("pre")).to_contain_text(hostile)
    assert page.locator("img").count() == 0


def test_a_result_is_a_timeline(served: Served, new_page: NewPage) -> None:
    page = new_page(served.url, app=False)
    events = hr.events("le | re | name | v\n1 | 5 | a | 1\n2 | 9 | <b>b</b> | 2")
    _shown(page, widget_of(events.run().results["out"]))
    expect(page.locator(".tl-picture")).to_be_visible()
    expect(page.locator(".tl-picture")).to_contain_text("<b>b</b>")
    page.get_by_role("button", name="Zoom in").click()
    assert page.locator(".tl-picture b").count() == 0


def test_a_query_shows_its_corrections(served: Served, new_page: NewPage) -> None:
    page = new_page(served.url, app=False)
    events = hr.events("le | re | name | v\n1 | 5 | a | 1")
    query = events.start(hr.memory(), host="local", name="q")
    query.process_all_available()
    follower = QueryFollower(query)
    sent: list[Any] = []
    follower.widget.send = sent.append  # type: ignore[method-assign]
    try:
        _shown(page, follower.widget)
        assert page.evaluate("window.sent") == [{"type": "ready"}]
        follower._asked(None, {"type": "ready"}, None)
        page.evaluate("(message) => window.receive(message)", sent[0])
        expect(page.get_by_role("gridcell", name="a", exact=True)).to_be_visible()
        old = {"kind": "retract", "le": 1, "re": 5, "re_new": 1, "name": "a", "v": 1}
        new = {"kind": "insert", "le": 1, "re": 5, "re_new": None, "name": "a", "v": 77}
        corrected = {"type": "rows", "snapshot": False, "cti": 3, "left_out": 0, "rows": [old, new]}
        page.evaluate("(message) => window.receive(message)", corrected)
        expect(page.get_by_role("gridcell").filter(has_text="77")).to_have_text("1 → 77")
        page.evaluate(
            "(data) => window.change(data)", {**follower.widget.data, "state": "failed", "error": "no <b>disk</b>"}
        )
        expect(page.get_by_role("alert")).to_have_text("no <b>disk</b>")
    finally:
        query.stop()
        follower.thread.join(60)
    page.evaluate("window.close_widget()")
