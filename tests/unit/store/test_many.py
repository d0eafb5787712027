"""What `make simulate` runs: some of it."""

from __future__ import annotations

import pytest
from tests.unit.store import many


@pytest.mark.slow
def test_some_rounds_run_every_scenario(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(many, "RIVALS", 2)
    counts = {name: count for name, (count, _) in many.runs_of(range(1, 3), float("inf")).items()}
    assert len(counts) == len(list(many.scenarios())) == 11
    assert sorted(set(counts.values())) == [2, 4]
    assert many.runs_of(range(2), 0.0) == {}, "there was no time"
