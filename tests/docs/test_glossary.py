"""The glossary: every term is linked where a page uses it first, and every entry can be linked to."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("link_terms", DOCS / "link_terms.py")
assert spec is not None
assert spec.loader is not None
link_terms = importlib.util.module_from_spec(spec)
spec.loader.exec_module(link_terms)

TEXT = link_terms.GLOSSARY.read_text(encoding="utf-8")
TERMS = link_terms.terms(TEXT)
MADE_UP = link_terms.terms('<a id="event"></a>\n**event**: x.\n\n<a id="cti"></a>\n**CTI**, **time increment**: y.\n')


def unlinked(page: str) -> list[tuple[str, str]]:
    """The terms of a made-up page that lack a link, as they stand there."""
    return [(term.id, page[start:end]) for term, start, end in link_terms.unlinked(page, MADE_UP)]


@pytest.mark.parametrize("page", link_terms.PAGES, ids=lambda page: page.relative_to(DOCS.parent).as_posix())
def test_every_term_is_linked_where_it_is_used_first(page: Path):
    text = page.read_text(encoding="utf-8")
    found = [
        f"line {text.count(chr(10), 0, start) + 1}: {text[start:end]!r} is {term.id}"
        for term, start, end in link_terms.unlinked(text, TERMS)
    ]
    assert found == [], "run: python docs/link_terms.py"


def test_every_entry_has_one_anchor_and_stands_in_its_place():
    ids = [term.id for term in TERMS]
    assert ids == re.findall(r'<a id="([^"]+)"></a>', TEXT), "every anchor is that of an entry"
    assert len(ids) == len(set(ids)) > 30
    names = re.findall(r"^\*\*(.+?)\*\*", TEXT, re.MULTILINE)
    assert [name.lower() for name in names] == sorted(name.lower() for name in names)
    assert set(link_terms.FORMS) <= set(ids)


def test_the_words_of_the_design_are_there():
    wanted = "event lifetime le cti cht sync-time settled final diverted level bucket channel trip wave trace segment"
    assert set(wanted.split()) <= {term.id for term in TERMS}


def test_some_page_uses_each_term():
    pages = "".join(page.read_text(encoding="utf-8") for page in link_terms.PAGES)
    assert [term.id for term in TERMS if f"glossary.md#{term.id})" not in pages] == []


def test_a_first_use_without_a_link_is_found():
    assert unlinked("An event, and a [CTI](glossary.md#cti).") == [("event", "event")]
    assert unlinked("A [CTI](glossary.md#cti) of [Events](../glossary.md#event) is no event.") == []
    assert unlinked("An event. Then a link: [event](glossary.md#event).") == [("event", "event")]
    assert unlinked("[event](glossary.md#cti) goes elsewhere; an event.") == [("event", "event")]
    assert unlinked("A time\nincrement.") == [("cti", "time\nincrement")]


def test_only_prose_counts():
    assert (
        unlinked("# Event\n\n`event` [a late event](x.md) ![event](y.svg) prevents cti\n```python\nevent\n```\n") == []
    )


def test_links_are_put_in_once():
    page = "Late events, CTIs.\nMore events."
    once = link_terms.linked(page, MADE_UP, "../glossary.md")
    assert once == "Late [events](../glossary.md#event), [CTIs](../glossary.md#cti).\nMore events."
    assert link_terms.linked(once, MADE_UP, "../glossary.md") == once
