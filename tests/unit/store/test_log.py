"""Epochs, plans and commits: one driver owns the query, a plan is fixed once, a batch is committed once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import CheckpointError, StoreError, Superseded
from headrace.store.blocks import Ledger, write_blocks
from headrace.store.cleanup import Cleaner
from headrace.store.log import Commit, Log, epoch_of, number_of
from headrace.store.storage import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, durable=False)


def claimed(storage: LocalStorage) -> Log:
    log = Log(storage)
    log.claim()
    return log


def run(log: Log, batches: range, cleaner: Cleaner | None = None) -> None:
    """Batches with one file each, which the next batch replaces."""
    for batch in batches:
        log.plan(batch, {"reads": batch})
        ledger = Ledger()
        ledger.add(write_blocks(log.storage, batch, log.epoch, {"state": b"s"}, inline=0))
        commit = Commit(batch, log.epoch, {"made": batch}, ledger.files, ledger.blocks, {"small": b"1"})
        assert log.commit(commit)
        if cleaner is not None:
            cleaner.clean_up(commit)


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_every_start_has_the_next_epoch_and_only_its_file_stays(storage: LocalStorage):
    assert [claimed(storage).epoch for _ in range(3)] == [1, 2, 3]
    assert storage.keys("epochs") == ["epochs/00000003"]


def test_a_start_removes_the_drafts_of_the_dead(storage: LocalStorage):
    claimed(storage)
    (storage.path / ".drafts" / "half").write_bytes(b"")
    claimed(storage)
    assert list((storage.path / ".drafts").iterdir()) == []


def test_a_driver_stops_when_there_is_a_newer_one(storage: LocalStorage):
    old, new = claimed(storage), claimed(storage)
    with pytest.raises(Superseded, match="another process"):
        old.commit(Commit(0, old.epoch, {}))
    assert new.commit(Commit(0, new.epoch, {}))


def test_a_number_that_others_took_and_removed_owns_nothing(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    """While a driver is about to create the next file, two others start, and the second removes what the first made."""
    claimed(storage)
    create, late = storage.create, Log(storage)

    def others_first(key: str, data: bytes) -> bool:
        monkeypatch.setattr(storage, "create", create)
        assert [claimed(storage).epoch, claimed(storage).epoch] == [2, 3]
        return create(key, data)

    monkeypatch.setattr(storage, "create", others_first)
    assert late.claim() == 2
    with pytest.raises(Superseded):
        late.check_owner()


def test_without_its_epochs_a_store_does_not_use_a_number_again(storage: LocalStorage):
    claimed(storage)
    run(old := claimed(storage), range(2))
    shutil.rmtree(storage.path / "epochs")
    assert claimed(storage).epoch == 3
    with pytest.raises(Superseded):
        old.check_owner()


def test_what_fails_in_a_driver_that_was_superseded_is_superseded(storage: LocalStorage):
    old = claimed(storage)
    with pytest.raises(KeyError), old.owned():
        raise KeyError("missing")
    claimed(storage)
    with pytest.raises(Superseded), old.owned():
        raise KeyError("missing")


# --- plans and commits -----------------------------------------------------------------------------------------------


def test_a_plan_is_fixed_by_the_first_attempt(storage: LocalStorage):
    old, new = claimed(storage), claimed(storage)
    assert old.planned(0) is None
    assert old.plan(0, {"files": [1]}) == {"files": [1]}
    assert new.plan(0, {"files": [1, 2]}) == {"files": [1]} == new.planned(0)


def test_a_batch_is_committed_once(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    """An older driver that has looked for a newer one already may still commit; then the newer one does not."""
    old = claimed(storage)
    monkeypatch.setattr(old, "check_owner", lambda: None)
    new = claimed(storage)
    assert old.commit(Commit(0, old.epoch, {"by": "old"}))
    assert not new.commit(Commit(0, new.epoch, {"by": "new"}))
    assert new.read(0).record == {"by": "old"}


def test_a_commit_that_comes_after_clean_up_does_not_count(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    """A driver sleeps between looking and creating, until others have committed its batch and cleaned it up."""
    old = claimed(storage)
    check = old.check_owner

    def sleep() -> None:
        check()
        new = claimed(storage)
        run(new, range(4), Cleaner(new, kept=2))

    monkeypatch.setattr(old, "check_owner", sleep)
    with pytest.raises(Superseded):
        old.commit(Commit(0, old.epoch, {}))
    last = Log(storage).last()
    assert last is not None
    assert last.batch == 3


def test_a_commit_is_read_as_it_was_written(storage: LocalStorage):
    run(claimed(storage), range(1))
    commit = Log(storage).read(0)
    assert (commit.batch, commit.epoch, commit.record) == (0, 1, {"made": 0})
    assert {name: bytes(data) for name, data in commit.inline.items()} == {"small": b"1"}
    assert list(commit.files) == storage.keys("data") == list(commit.blocks.values())


def test_a_new_store_has_no_last_commit(storage: LocalStorage):
    assert Log(storage).last() is None
    claimed(storage).plan(0, {})
    assert Log(storage).last() is None


# --- what is missing -------------------------------------------------------------------------------------------------


@pytest.fixture
def cleaned(storage: LocalStorage) -> LocalStorage:
    """Twelve batches of which four are kept, and a thirteenth that was planned."""
    log = claimed(storage)
    run(log, range(12), Cleaner(log, kept=4))
    log.plan(12, {"reads": 12})
    return storage


def outcome(storage: LocalStorage) -> int | str:
    """The last batch, or the error."""
    try:
        claimed(storage)
        last = Log(storage).last()
    except CheckpointError as error:
        return str(error)
    return -1 if last is None else last.batch


def test_a_store_that_is_whole_goes_on(cleaned: LocalStorage):
    assert outcome(cleaned) == 11


@pytest.mark.parametrize("batch", [8, 9, 10])
def test_a_missing_commit_is_named(cleaned: LocalStorage, batch: int):
    cleaned.remove(f"commits/{batch:012d}")
    assert f"those of the batches {batch} are missing" in str(outcome(cleaned))


def test_a_missing_last_commit_is_noticed_by_the_plan_after_it(cleaned: LocalStorage):
    cleaned.remove("commits/000000000011")
    assert "batch 12 was planned, and the last commit is that of batch 10" in str(outcome(cleaned))


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["commits"], "those of the batches 8 are missing"),
        (["commits", "plans"], "those of the batches 8 are missing"),
        (["commits", "floors"], "batch 12 was planned, and the last commit is that of batch -1"),
        (["floors"], "those of the batches 0, 1, 2, 3, 4 and 3 more are missing"),
        (["plans"], 11),
        (["epochs"], 11),
        (["epochs", "data"], 11),  # which whoever reads the data finds out
        (["commits", "floors", "plans"], -1),  # nothing says that there was something; sinks do
    ],
)
def test_a_missing_folder_is_named_or_means_nothing(cleaned: LocalStorage, folders: list[str], expected: int | str):
    for folder in folders:
        shutil.rmtree(cleaned.path / folder)
    found = outcome(cleaned)
    assert found == expected or (isinstance(expected, str) and expected in str(found))


@pytest.mark.parametrize("content", [b"", bytes(4096)], ids=["empty", "zeros"])
def test_a_plan_that_was_lost_with_the_power_is_made_anew(cleaned: LocalStorage, content: bytes):
    path = cleaned.path / "plans" / "000000000012"
    path.unlink()
    path.write_bytes(content)
    log = claimed(cleaned)
    assert log.planned(12) is None
    assert log.plan(12, {"reads": 7}) == {"reads": 7} == Log(cleaned).planned(12)


def test_a_plan_in_place_of_a_lost_one_is_never_replaced(cleaned: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    """An older driver finds the lost plan, and sleeps; its tasks and those of a newer one then read the same."""
    path = cleaned.path / "plans" / "000000000012"
    path.unlink()
    path.touch()
    older, newer, reading = claimed(cleaned), claimed(cleaned), cleaned.read

    def sleeping(key: str) -> pa.Buffer:
        found = reading(key)
        monkeypatch.setattr(cleaned, "read", reading)
        assert newer.plan(12, {"by": "newer"}) == {"by": "newer"}
        return found

    monkeypatch.setattr(cleaned, "read", sleeping)
    assert older.plan(12, {"by": "older"}) == {"by": "newer"} == Log(cleaned).planned(12)


@pytest.mark.parametrize(
    ("key", "how"),
    [
        *(("commits/000000000011", how) for how in ("empty", "cut", "altered", "another")),
        *(("plans/000000000012", how) for how in ("cut", "altered", "another")),
    ],
)
def test_a_damaged_commit_or_plan_is_named(cleaned: LocalStorage, key: str, how: str):
    path = cleaned.path / key
    data = path.read_bytes()
    path.unlink()  # a draft may be the same file
    another = cleaned.path / f"{key[:-2]}09"
    path.write_bytes(
        {"empty": b"", "cut": data[:-7], "altered": data.replace(b'"', b"'", 1), "another": another.read_bytes()}[how]
    )
    look = Log(cleaned).last if key.startswith("commits") else lambda: Log(cleaned).planned(12)
    with pytest.raises(StoreError, match=key):
        look()


def test_a_file_that_is_not_of_the_store_is_named(cleaned: LocalStorage):
    (cleaned.path / "commits" / "copy of 11").touch()
    assert "'commits/copy of 11' is not a file of the store" in str(outcome(cleaned))
    for name in ["data/7", "data/000000000001-x-5f", "data/notes"]:
        with pytest.raises(StoreError, match=name):
            number_of(name) + epoch_of(name)


def test_a_listing_that_misses_the_floor_while_it_moves_is_no_gap(
    cleaned: LocalStorage, monkeypatch: pytest.MonkeyPatch
):
    """The old floor is removed before the listing comes to it, the new one is created behind it."""
    listing, missed = cleaned.keys, iter([True])

    def racing(folder: str, after: str = "") -> list[str]:
        return [] if folder == "floors" and next(missed, False) else listing(folder, after)

    monkeypatch.setattr(cleaned, "keys", racing)
    last = Log(cleaned).last()
    assert last is not None
    assert last.batch == 11


def test_a_takeover_during_clean_up_sees_no_gap(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    """An older driver commits, cleans up and plans between any two listings of the newer one."""
    listing = storage.keys
    for moment in range(6):
        old = claimed(storage)
        cleaner = Cleaner(old, kept=2)
        first = number_of(max(storage.keys("commits"), default="-1")) + 1 if moment else 0
        run(old, range(first, first + 3), cleaner)
        left = moment

        def meanwhile(
            folder: str, after: str = "", old: Log = old, cleaner: Cleaner = cleaner, n: int = first + 3
        ) -> list[str]:
            nonlocal left
            left -= 1
            if left == -1:
                monkeypatch.setattr(old, "check_owner", lambda: None)
                run(old, range(n, n + 1), cleaner)
                old.plan(n + 1, {})
            return listing(folder, after)

        with monkeypatch.context() as patch:
            patch.setattr(storage, "keys", meanwhile)
            last = Log(storage).last()
        assert last is not None
        assert last.batch >= first + 2
