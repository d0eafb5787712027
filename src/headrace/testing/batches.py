"""Check that two runs gave the same output in every batch: early answers must not depend on faults either."""

from __future__ import annotations

from headrace.host.result import Result
from headrace.testing.checks import Violation

__all__ = ["check_same_batches"]


def check_same_batches(actual: Result, expected: Result, label: str) -> None:
    """Raise unless every batch has the same changes, in any order, and the same promises."""
    pairs = zip(actual.batches, expected.batches, strict=True)
    for number, ((changes, progress), (expected_changes, expected_progress)) in enumerate(pairs, 1):
        a, b = (sorted(map(str, c.consolidate().to_table().to_pylist())) for c in (changes, expected_changes))
        if (a, progress) == (b, expected_progress):
            continue
        lines = [f"{label}, batch {number} differs from the run without"]
        lines += [f"  only with:     {row}" for row in a if row not in b]
        lines += [f"  only without:  {row}" for row in b if row not in a]
        lines += [f"  progress {progress}, without {expected_progress}"] if progress != expected_progress else []
        raise Violation("\n".join(lines), allowed="modules that keep no state of their own between calls")
