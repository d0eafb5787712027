"""Whether two runs gave the same in every batch: what leaves early must not depend on faults either."""

from __future__ import annotations

from headrace.host.result import Result
from headrace.testing.checks import Violation

__all__ = ["check_same_batches"]


def check_same_batches(given: Result, expected: Result, what: str) -> None:
    """Raise unless the same left in every batch, in whatever order within the batch, with the same promises."""
    pairs = zip(given.batches, expected.batches, strict=True)
    for number, ((changes, progress), (right, promised)) in enumerate(pairs, 1):
        a, b = (sorted(map(str, c.consolidate().to_table().to_pylist())) for c in (changes, right))
        if (a, progress) == (b, promised):
            continue
        lines = [f"{what}, batch {number} is not what it is without"]
        lines += [f"  only so:       {row}" for row in a if row not in b]
        lines += [f"  only without:  {row}" for row in b if row not in a]
        lines += [f"  progress {progress}, without {promised}"] if progress != promised else []
        raise Violation("\n".join(lines), allowed="modules that keep nothing to themselves between calls")
