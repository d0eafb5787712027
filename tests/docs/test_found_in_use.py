"""The pages of findings and of promises name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
ROWS = {"found_in_use.md": 13 + 5 + 6 + 4, "guarantees.md": None}


@pytest.mark.parametrize(("page", "count"), ROWS.items())
def test_every_row_has_a_test_that_exists(page: str, count: int | None):
    text = (DOCS / page).read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| [A-Z]\d+ \|", line)]
    assert count is None or len(rows) == count
    assert rows
    for row in rows:
        named = re.findall(r"`(tests/[^`]+)`", row)
        assert named, row
        for name in named:
            path, _, function = name.partition("::")
            assert (DOCS.parent / path).exists(), name
            assert not function or f"def {function}(" in (DOCS.parent / path).read_text(), name
