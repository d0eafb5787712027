"""The page of the grammar is what its script writes from the grammar that runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from headrace.sql.tables import tables

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("make_grammar", DOCS / "make_grammar.py")
assert spec is not None
assert spec.loader is not None
make_grammar = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_grammar)


def test_the_page_is_what_the_script_writes():
    assert make_grammar.PAGE.read_text(encoding="utf-8") == make_grammar.page(), "run: python docs/make_grammar.py"


def test_every_keyword_and_sign_is_on_the_page():
    page = make_grammar.page()
    shown = set(page.replace("(", " ").split())
    assert set(tables().lexemes.words) - shown == set()
    assert {sign for sign in tables().lexemes.signs if f"'{sign}'" not in page} == set()
