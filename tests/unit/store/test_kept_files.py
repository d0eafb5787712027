"""Files of remote stores on this machine's disk: used only if whole, the least recently used go first."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from headrace.errors import StoreError
from headrace.pieces import Pieces
from headrace.store.blocks import BlockReader, Ledger, write_blocks
from headrace.store.kept_files import KeptFiles
from headrace.store.log import Commit
from headrace.store.objects import ObjectStorage


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    return tmp_path / "store"


def files(cache: Path) -> list[Path]:
    return sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns)


def test_a_file_is_there_for_all_processes_of_the_machine(cache: Path):
    KeptFiles("s3://b").add("data/1", Pieces([b"abc", b"def"]))
    assert KeptFiles("s3://b").get("data/1").to_pybytes() == b"abcdef"
    assert KeptFiles("s3://other").get("data/1") is None
    KeptFiles("s3://b").remove("data/1")
    assert KeptFiles("s3://b").get("data/1") is None
    assert files(cache) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "longer"])
def test_a_damaged_file_is_never_used(damage: str, cache: Path):
    KeptFiles("s3://b").add("data/1", b"abcdef" * 100)
    (path,) = files(cache)
    data = path.read_bytes()
    harm = {"cut": data[:-7], "changed": b"X" + data[1:], "empty": b"", "longer": data + b"abc"}
    path.write_bytes(harm[damage])
    assert KeptFiles("s3://b").get("data/1") is None
    KeptFiles("s3://b").add("data/1", b"abcdef" * 100)
    assert KeptFiles("s3://b").get("data/1").to_pybytes() == b"abcdef" * 100


def test_a_folder_that_is_removed_meanwhile_does_no_harm(cache: Path, monkeypatch: pytest.MonkeyPatch):
    kept = KeptFiles("s3://b")
    kept.add("data/1", b"abc")
    write = Path.open

    def clearing(path: Path, *given: str) -> object:
        shutil.rmtree(cache)
        return write(path, *given)

    monkeypatch.setattr(Path, "open", clearing)
    kept.add("data/2", bytes(300_000_000))  # so large that room is made
    monkeypatch.undo()
    monkeypatch.setenv("HEADRACE_CACHE", str(cache.parent))
    assert kept.get("data/2") is None
    kept.add("data/2", b"def")
    assert kept.get("data/2").to_pybytes() == b"def"


def test_nothing_is_remembered_of_files_that_are_gone(cache: Path):
    kept = KeptFiles("s3://b")
    for number in range(120):
        kept.add(f"data/{number}", b"abc")
        if number % 2:
            kept.remove(f"data/{number}")
    assert len(kept._checked) == 60
    shutil.rmtree(cache)
    for number in range(100):
        kept.add(f"data/new-{number}", b"abc")
    assert len(kept._checked) <= 100


def test_what_was_used_least_recently_goes_first(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADRACE_CACHE_MB", "1")
    kept = KeptFiles("s3://b")
    for number in range(3):
        kept.add(f"data/{number}", bytes(300_000))
    for number, path in enumerate(files(cache)):
        os.utime(path, (number, number))
    assert kept.get("data/0") is not None
    kept.add("data/3", bytes(300_000))
    assert [kept.get(f"data/{number}") is not None for number in range(4)] == [True, False, True, True]
    kept.add("data/4", bytes(1_100_000))
    assert kept.get("data/4") is None, "larger than all there may be"


@pytest.mark.usefixtures("cache")
def test_nothing_is_kept_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADRACE_CACHE_MB", "0")
    KeptFiles("s3://b").add("data/1", b"abc")
    assert KeptFiles("s3://b").get("data/1") is None
    monkeypatch.setenv("HEADRACE_CACHE_MB", "much")
    with pytest.raises(StoreError, match="megabytes"):
        KeptFiles("s3://b").get("data/1")


@pytest.mark.slow
def test_only_what_the_machine_lacks_is_fetched(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fetched() -> int:
        reader = BlockReader(ObjectStorage(s3, keep=True), commit)
        reader.open(["a", "b"])
        assert [reader.block(name).to_pybytes() for name in ("a", "b")] == [bytes(100_000), bytes(200_000)]
        return reader.fetched

    storage, ledger = ObjectStorage(s3, keep=True), Ledger()
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "one"))
    ledger.add(write_blocks(storage, 0, 1, {"a": bytes(100_000)}))
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "two"))
    ledger.add(write_blocks(storage, 0, 1, {"b": bytes(200_000)}))
    commit = Commit(0, 1, {}, ledger.files, ledger.blocks, ledger.inline)
    assert 100_000 < fetched() < 110_000
    assert fetched() == 0
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "one"))
    assert 200_000 < fetched() < 210_000
    for file in ledger.files:
        storage.remove(file)
    assert list((tmp_path / "one" / "store").iterdir()) == []
