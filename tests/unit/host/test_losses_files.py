"""Files that were not used as they are, in words."""

from __future__ import annotations

from headrace.host.losses import Losses, describe_losses
from headrace.io.ingress import COUNTERS


def test_files_are_told_beside_rows():
    counts = {"csv in": dict.fromkeys(COUNTERS, 0) | {"rows": 3, "accepted": 3, "missing_files": 1, "old_files": 2}}
    told = "csv in: 1 file removed before they were read, 2 files too old to be read"
    assert describe_losses(counts, {}) == told
    losses = Losses()
    assert losses.grown("q", counts, {}) == told
    assert losses.grown("q", counts, {}) == ""
