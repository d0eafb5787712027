"""Clean-up: what no kept commit names is removed, what a reader has pinned is not, and files do not add up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StoreError
from headrace.store.blocks import BlockReader, Ledger, write_blocks
from headrace.store.cleanup import KEPT, Cleaner, pinned
from headrace.store.log import Commit, Log, number_of
from headrace.store.storage import LocalStorage

ALIVE = 3  # how many batches a block lives


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, durable=False)


def claimed(storage: LocalStorage) -> Log:
    log = Log(storage)
    log.claim()
    return log


def run_batch(log: Log, ledger: Ledger, batch: int, **record: Any) -> Commit:
    """A batch that makes a block in a file, and litter."""
    log.plan(batch, {})
    write_blocks(log.storage, batch, log.epoch, {"litter": b"x"}, inline=0)
    ledger.add(write_blocks(log.storage, batch, log.epoch, {str(batch): b"block"}, inline=0))
    ledger.keep([str(n) for n in range(batch - ALIVE + 1, batch + 1)])
    commit = Commit(batch, log.epoch, record, dict(ledger.files), dict(ledger.blocks))
    assert log.commit(commit)
    return commit


def readable(storage: LocalStorage, commit: Commit) -> bool:
    return all(BlockReader(storage, commit).block(name).to_pybytes() == b"block" for name in commit.blocks)


def test_the_number_of_files_is_bounded(storage: LocalStorage):
    log, ledger = claimed(storage), Ledger()
    cleaner, counts = Cleaner(log), []
    for batch in range(60):
        cleaner.clean_up(run_batch(log, ledger, batch))
        counts.append(sum(path.is_file() for path in storage.path.rglob("*")))
    assert max(counts[30:]) == counts[30] == KEPT + KEPT + (KEPT + ALIVE - 1) + 2  # with an epoch and a floor
    assert log.batches() == list(range(50, 60))
    assert all(readable(storage, log.read(batch)) for batch in log.batches())


def test_a_new_driver_cleans_up_after_its_first_commit_and_not_before(storage: LocalStorage):
    old, ledger = claimed(storage), Ledger()
    run_batch(old, ledger, 0)
    litter = write_blocks(storage, 1, old.epoch, {"attempt": b"x"}, inline=0).file
    new = claimed(storage)
    assert litter in storage.keys("data")
    Cleaner(new).clean_up(run_batch(new, ledger, 1))
    assert storage.keys("data") == sorted(ledger.files)


def test_files_of_the_running_batch_and_of_newer_drivers_stay(storage: LocalStorage):
    log, ledger = claimed(storage), Ledger()
    last = run_batch(log, ledger, 0)
    running = write_blocks(storage, 1, log.epoch, {"": b"x"}, inline=0).file
    newer = write_blocks(storage, 0, log.epoch + 1, {"": b"x"}, inline=0).file
    Cleaner(log).clean_up(last)
    assert storage.keys("data") == sorted([*ledger.files, running, newer])


def test_a_pinned_commit_stays_until_its_reader_is_done(storage: LocalStorage):
    log, ledger = claimed(storage), Ledger()
    cleaner = Cleaner(log, kept=2)
    run_batch(log, ledger, 0)
    with pinned(Log(storage)) as commit:
        assert commit is not None
        for batch in range(1, 8):
            cleaner.clean_up(run_batch(log, ledger, batch))
        assert log.batches() == [0, 6, 7]
        assert readable(storage, commit)
        assert Log(storage).last().batch == 7
    cleaner.clean_up(run_batch(log, ledger, 8))
    assert log.batches() == [7, 8]
    assert storage.keys("pins") == []
    assert min(map(number_of, storage.keys("data"))) == 7 - ALIVE + 1


def test_a_reader_of_an_empty_store_gets_nothing(storage: LocalStorage):
    with pinned(Log(storage)) as commit:
        assert commit is None


@pytest.mark.parametrize("moment", range(4))
def test_a_reader_that_meets_a_driver_takes_a_commit_that_stays(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, moment: int
):
    """The driver commits and cleans up before the reader's first, second, ... call."""
    log, ledger = claimed(storage), Ledger()
    cleaner = Cleaner(log, kept=1)
    cleaner.clean_up(run_batch(log, ledger, 0))
    left = moment

    def meanwhile(name: str) -> Callable[..., Any]:
        call = getattr(storage, name)

        def first_the_driver(*given: object) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                for batch in (1, 2):
                    cleaner.clean_up(run_batch(log, ledger, batch))
            return call(*given)

        return first_the_driver

    reading = LocalStorage(storage.path, durable=False)
    for name in ("keys", "create", "read", "remove"):
        monkeypatch.setattr(reading, name, meanwhile(name))
    with pinned(Log(reading)) as commit:
        assert readable(storage, commit)
        cleaner.clean_up(run_batch(log, ledger, max(log.batches()) + 1))
        assert readable(storage, commit)


def test_a_damaged_commit_that_is_kept_stops_clean_up(storage: LocalStorage):
    log, ledger = claimed(storage), Ledger()
    run_batch(log, ledger, 0)
    path = storage.path / "commits" / f"{0:012d}"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1])
    with pytest.raises(StoreError, match="commits/000000000000"):
        Cleaner(log).clean_up(run_batch(log, ledger, 1))


def test_a_recording_ends_though_the_clock_was_ahead(storage: LocalStorage):
    log, ledger = claimed(storage), Ledger()
    cleaner = Cleaner(log, kept=2)
    cleaner.seconds = 3.0
    floors = []
    for batch, time in enumerate([9000.0, 9001.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]):
        cleaner.clean_up(run_batch(log, ledger, batch, time=time))
        floors.append(log.batches()[0])
    assert floors == [0, 0, 0, 0, 0, 0, 3, 4, 5]  # what was made ahead is as old as the batch after it
