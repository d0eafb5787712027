"""What is kept of old batches: announced before it is removed, so that nothing counts as lost."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.io.commit import BatchDirectory
from headrace.io.keep import Keep, shown_bytes
from headrace.io.object_batches import Batches, ObjectBatches


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize(("given", "kept"), [
    ("30d", Keep(seconds=30 * 86_400)), (timedelta(hours=1), Keep(seconds=3600)), ("1.5 kB", Keep(bytes=1500)),
    ("2 GiB", Keep(bytes=2 << 30)), ("7 days, 10 MB", Keep(seconds=7 * 86_400, bytes=10_000_000)),
    ("500 b, 1 min", Keep(seconds=60, bytes=500)),
])  # fmt: skip
def test_an_age_a_size_or_both(given: Any, kept: Keep):
    assert Keep.of(given) == kept
    assert Keep.from_json(kept.to_json()) == kept


@pytest.mark.parametrize("given", ["", "soon", "1 GB, 2 GB", "1 h, 2 h", "0 s", "-1 d", 30, None, timedelta(0)])
def test_what_says_nothing_is_refused(given: Any):
    with pytest.raises(PlanError, match="how long something is kept"):
        Keep.of(given)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=1), st.integers(1, 9), st.integers(1, 40))
def test_what_is_removed_is_old_or_too_much_and_what_stays_is_neither(
    things: list[tuple[int, int]], seconds: int, size: int
):
    things.sort()
    count = Keep(seconds, size).removable(things, now=20)
    left = things[count:]
    assert left, "the newest stays"
    assert len(left) == 1 or (left[0][0] >= 20 - seconds and sum(bytes for _, bytes in left) <= size)
    for place, (written, _) in enumerate(things[:count]):
        assert written < 20 - seconds or sum(bytes for _, bytes in things[place:]) > size


def test_what_was_written_while_the_clock_was_ahead_is_as_old_as_what_follows():
    keep, day = Keep(seconds=10), 86_400.0
    assert keep.removable([(5 * day, 1), (6 * day, 1), (1, 1), (2, 1), (3, 1)], now=12) == 3
    assert keep.removable([(5 * day, 1), (6 * day, 1), (7, 1), (9, 1)], now=12) == 0
    assert keep.removable([(5 * day, 1), (6 * day, 1)], now=12) == 0


def test_bytes_are_shown_with_three_digits():
    assert [shown_bytes(n) for n in (0, 1234, 5_600_000)] == ["0 B", "1.23 kB", "5.6 MB"]


def fill(out: Batches, *batches: int) -> None:
    for batch in batches:
        out.commit(batch, [out.stage(batch, "x.jsonl", b"%4d" % batch)])


def age(out: BatchDirectory, batches: dict[int, float]) -> None:
    for batch, seconds in batches.items():
        os.utime(out.path / f"batch-{batch:08d}", (seconds, seconds))


def test_old_batches_are_removed_and_counted(tmp_path: Path):
    out = BatchDirectory(str(tmp_path))
    fill(out, 1, 2, 5, 6)
    age(out, {1: 100, 2: 200, 5: 300, 6: 400})
    dry = out.expire(Keep(seconds=100), 350, newest=6, dry=True)
    assert (dry.upto, dry.batches, dry.sum, dry.files, dry.bytes) == (2, 2, 3, 2, 8)
    assert out.committed() == [1, 2, 5, 6]
    assert out.expire(Keep(seconds=100), 350, newest=6) == dry
    assert (out.committed(), out.removed()) == ([5, 6], dry)
    assert sorted(entry.name for entry in tmp_path.glob("batch-*")) == ["batch-00000005", "batch-00000006"]
    assert out.expire(Keep(seconds=100), 350, newest=6).batches == 0
    more = out.expire(Keep(bytes=1), 350, newest=6)
    assert (more.batches, more.sum, out.committed()) == (1, 5, [6]), "the newest stays"
    assert (out.removed().batches, out.removed().sum, out.removed().upto) == (3, 8, 5)
    assert [entry.name for entry in (tmp_path / "_removed").iterdir()] == ["00000005"]
    assert not out.commit(2, []), "a removed batch is not written again"


@pytest.mark.parametrize("moment", range(4))
def test_a_crash_while_batches_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int):
    """Before the announcement all are there, after it none of the old ones, whatever folders are left."""
    out = BatchDirectory(str(tmp_path))
    fill(out, 0, 1, 2, 3)
    age(out, dict.fromkeys(range(3), 100.0))
    calls = iter(range(99))

    def renamed(self: Path, target: Path, do: Any = Path.rename) -> Any:
        if next(calls) == moment - 1:
            raise Crash
        return do(self, target)

    def replaced(self: Path, target: Path) -> None:  # noqa: ARG001
        raise Crash

    monkeypatch.setattr(Path, "rename" if moment else "replace", renamed if moment else replaced)
    with pytest.raises(Crash):
        out.expire(Keep(seconds=100), 1000.0, newest=6)
    monkeypatch.undo()
    total = out.removed()
    assert (len(out.committed()) + total.batches, sum(out.committed()) + total.sum) == (4, 6)
    assert out.committed() == ([3] if moment else [0, 1, 2, 3])
    out.expire(Keep(seconds=100), 1000.0, newest=6)
    assert out.removed().batches == 3
    assert [entry.name for entry in tmp_path.glob("batch-*")] == ["batch-00000003"]


def test_a_merge_beside_it_counts_no_batch_twice(tmp_path: Path):
    """Another process has removed batches 0 and 1 while these were merged with 2."""
    out = BatchDirectory(str(tmp_path))
    fill(out, 0, 1, 2, 3)
    folders = out.folders()[:3]
    age(out, {0: 1.0, 1: 1.0})
    monkey = [folder for folder in folders if folder.last < 2]
    files = {"part-00000.jsonl": b"all"}
    assert out.expire(Keep(seconds=100), 200.0, newest=6, dry=True).batches == len(monkey)
    out._announce(out.expire(Keep(seconds=100), 200.0, newest=6, dry=True))
    out.merge(folders, files)
    assert (out.committed(), out.removed().batches, out.removed().sum) == ([2, 3], 2, 1)
    assert [folder.path.name for folder in out.folders()] == ["batch-00000000-00000002", "batch-00000003"]


def test_batches_that_the_checkpoint_does_not_know_stay_and_do_not_count(tmp_path: Path):
    out = BatchDirectory(str(tmp_path))
    fill(out, 0, 1, 2, 99_999_999)
    assert out.expire(Keep(bytes=4), 0.0, newest=0).batches == 0
    assert out.expire(Keep(bytes=8), 0.0, newest=2).batches == 1
    assert out.committed() == [1, 2, 99_999_999]


def test_old_batches_on_an_object_store(s3: str):
    out = ObjectBatches(s3)
    fill(out, 0, 1, 2)
    assert out.expire(Keep(bytes=1), 0.0, newest=0).batches == 0
    assert out.expire(Keep(bytes=7), 0.0, newest=6, dry=True).batches == 2
    assert out.committed() == [0, 1, 2]
    gone = out.expire(Keep(bytes=7), 0.0, newest=6)
    assert (gone.batches, gone.sum, gone.files, gone.bytes) == (2, 1, 2, 8)
    assert (out.committed(), len(out.files())) == ([2], 1)
    assert list(out.storage.sizes()) == ["_batches/00000002", "_removed/00000001", "batch-00000002/part-00000.jsonl"]
    assert not out.commit(0, [out.stage(0, "x.jsonl", b"again")])
    assert out.expire(Keep(seconds=3600), 2e9, newest=6).batches == 0, "the newest stays"
    fill(out, 3)
    assert out.expire(Keep(seconds=3600), 4e9, newest=6).batches == 1
    assert (out.committed(), out.removed().batches) == ([3], 3)
