"""The page of findings names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "found_in_use.md"


def test_every_finding_has_a_test_that_exists():
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [A-D]\d+ \|", line)]
    assert len(rows) == 13 + 5 + 6 + 4
    named = re.findall(r"`(tests/[^`]+)`", PAGE.read_text())
    assert all("`tests/" in row for row in rows)
    for name in named:
        path, _, function = name.partition("::")
        assert (ROOT / path).exists(), name
        assert not function or f"def {function}(" in (ROOT / path).read_text(), name
