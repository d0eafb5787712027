"""Blocks: small ones inside a commit, others in files, found again through the commit or an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import StoreError
from headrace.store.blocks import INLINE, MOST_INLINE, BlockReader, Ledger, WrittenBlocks, write_blocks
from headrace.store.log import Commit, Log
from headrace.store.storage import LocalStorage

LARGE = b"l" * (INLINE + 1)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path, durable=False)


def committed(storage: LocalStorage, ledger: Ledger, batch: int = 0) -> Commit:
    """The commit, as whoever reads it finds it."""
    commit = Commit(batch, 1, {}, ledger.files, ledger.blocks, ledger.inline)
    storage.create(f"commits/{batch:012d}", commit.packed())
    return Log(storage).read(batch)


def test_small_blocks_travel_in_the_report(storage: LocalStorage):
    written = write_blocks(storage, 3, 1, {"a": b"1", "b": b""})
    assert storage.keys("data") == []
    assert WrittenBlocks.from_json(written.to_json()).inline == {"a": b"1", "b": b""}


def test_large_blocks_are_one_file_whose_name_has_batch_and_epoch(storage: LocalStorage):
    written = WrittenBlocks.from_json(write_blocks(storage, 3, 1, {"a": b"1", "b": LARGE}).to_json())
    assert written.inline == {}
    assert storage.keys("data") == [written.file]
    assert written.file.startswith("data/000000000003-00000001-")
    assert written.length == storage.length(written.file)


def test_blocks_are_found_through_the_commit(storage: LocalStorage):
    ledger = Ledger()
    ledger.add(write_blocks(storage, 0, 1, {"a": b"1"}))
    ledger.add(write_blocks(storage, 0, 1, {"b": LARGE, "c": b"3"}))
    reader = BlockReader(storage, committed(storage, ledger))
    assert [reader.block(name).to_pybytes() for name in "abc"] == [b"1", LARGE, b"3"]
    with pytest.raises(StoreError, match="commit 0 names no block 'd'"):
        reader.block("d")


@pytest.mark.parametrize(("old", "new"), [(b"old", LARGE), (LARGE, b"new"), (b"old", b"new"), (LARGE, LARGE + b"2")])
def test_a_name_that_is_used_again_means_the_new_block(storage: LocalStorage, old: bytes, new: bytes):
    ledger = Ledger()
    ledger.add(write_blocks(storage, 0, 1, {"rows": old}))
    ledger = Ledger.of(committed(storage, ledger))
    ledger.add(write_blocks(storage, 1, 1, {"rows": new}))
    ledger.keep(["rows"])
    commit = committed(storage, ledger, 1)
    assert BlockReader(storage, commit).block("rows").to_pybytes() == new
    assert len(commit.files) + len(commit.inline) == 1


def test_a_file_is_named_as_long_as_one_of_its_blocks_lives(storage: LocalStorage):
    ledger = Ledger()
    written = write_blocks(storage, 0, 1, {"a": LARGE, "b": b"2"})
    ledger.add(written)
    ledger.keep(["b"])
    assert list(ledger.files) == [written.file]
    assert BlockReader(storage, committed(storage, ledger)).block("b").to_pybytes() == b"2"
    ledger.keep([])
    assert ledger == Ledger()


def test_many_small_blocks_move_to_a_file(storage: LocalStorage):
    few = Ledger(inline={"a": bytes(MOST_INLINE)})
    few.unload(storage, 0, 1)
    assert storage.keys("data") == []
    many = Ledger(inline={"a": bytes(MOST_INLINE), "b": b"1"})
    many.unload(storage, 0, 1)
    assert many.inline == {}
    assert storage.keys("data") == list(many.files)
    assert BlockReader(storage, committed(storage, many)).block("b").to_pybytes() == b"1"


def damaged(path: Path, how: str) -> None:
    data = path.read_bytes()
    path.unlink()
    if how == "short":
        path.write_bytes(data[:-1])
    elif how == "long":
        path.write_bytes(data + b"\0")
    elif how == "altered":
        path.write_bytes(data.replace(b"l", b"m", 1))
    elif how == "another":
        path.write_bytes(data.replace(b'"meta"', b'"meto"'))


@pytest.mark.parametrize("how", ["missing", "short", "long", "altered", "another"])
def test_a_damaged_file_is_an_error_that_names_it(storage: LocalStorage, how: str):
    ledger = Ledger()
    written = write_blocks(storage, 0, 1, {"b": LARGE})
    ledger.add(written)
    commit = committed(storage, ledger)
    damaged(storage.path / written.file, how)
    with pytest.raises(StoreError, match=written.file):
        BlockReader(storage, commit).block("b")
