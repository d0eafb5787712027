"""Random tests draw the same examples whatever else the process has loaded; see `tests/conftest.py`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st


def drawn() -> list[str]:
    seen: list[str] = []

    @settings(max_examples=500, derandomize=True, phases=[Phase.generate], database=None)
    @given(st.text() | st.integers().map(str))
    def note(value: str) -> None:
        seen.append(value)

    note()
    return seen


@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") == "fuzz", reason="fuzz draws other examples every time")
def test_examples_do_not_depend_on_the_modules_that_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = drawn()
    words = ", ".join(f"'number {n}', {n}" for n in range(1_000_000, 1_000_040))
    (tmp_path / "loaded_meanwhile.py").write_text(f"WORDS = [{words}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("loaded_meanwhile")
    try:
        assert drawn() == before
    finally:
        del sys.modules["loaded_meanwhile"]
