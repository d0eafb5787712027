"""Files on disk: created whole, once, by one of all who try."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from headrace.errors import StoreError
from headrace.store.objects import ObjectStorage
from headrace.store.storage import LocalStorage, Storage


@pytest.fixture(params=["durable", "quick", "s3"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """What all storages have in common is tested with each."""
    if request.param == "s3":
        return ObjectStorage(request.getfixturevalue("s3"))
    return LocalStorage(tmp_path / "new" / "checkpoint", durable=request.param == "durable")


@pytest.fixture(params=[True, False], ids=["durable", "quick"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "new" / "checkpoint", durable=request.param)


def test_a_file_is_created_once_and_read_again(anywhere: Storage):
    assert anywhere.create("a/1", b"one")
    assert not anywhere.create("a/1", b"two")
    assert anywhere.read("a/1").to_pybytes() == b"one"
    assert anywhere.length("a/1") == 3
    assert anywhere.create("a/2", b"")
    assert anywhere.read("a/2").to_pybytes() == b""
    assert anywhere.keys(".drafts") == []


def test_what_is_to_last_is_flushed_with_its_name_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    storage = LocalStorage(tmp_path)
    storage.create("a/1", b"one")
    flushed.clear()
    storage.create("a/2", b"two", lasting=False)
    assert flushed == []
    storage.create("a/3", b"three")
    content, name = flushed
    assert content.startswith(f"{tmp_path}/.drafts/")
    assert name == f"{tmp_path}/a"


def test_keys_are_in_order_and_those_of_one_folder(anywhere: Storage):
    assert anywhere.keys("a") == []
    for key in ["a/3", "a/1", "a/2", "b/1", "aa/1", "a/b/1"]:
        anywhere.create(key, b"")
    assert anywhere.keys("a") == ["a/1", "a/2", "a/3"]
    assert anywhere.keys("a", after="a/1") == ["a/2", "a/3"]


def test_hidden_files_are_no_files_of_the_store(storage: LocalStorage):
    storage.create("a/1", b"")
    (storage.path / "a" / ".hidden").touch()
    assert storage.keys("a") == ["a/1"]


def test_what_is_removed_is_gone_and_may_be_removed_again(anywhere: Storage):
    anywhere.create("a/1", b"")
    anywhere.remove("a/1")
    anywhere.remove("a/1")
    assert anywhere.keys("a") == []
    for call in (anywhere.read, anywhere.length):
        with pytest.raises(FileNotFoundError):
            call("a/1")


def test_a_file_that_was_read_can_be_removed_and_used_on(anywhere: Storage):
    anywhere.create("a/1", b"one")
    mapped = anywhere.read("a/1")
    anywhere.remove("a/1")
    assert mapped.to_pybytes() == b"one"


def contend(path: Path, who: int, rounds: int) -> list[int]:
    storage = LocalStorage(path, durable=False)
    return [number for number in range(rounds) if storage.create(f"a/{number}", str(who).encode() * 1000)]


def judge(path: Path, won: dict[int, list[int]], rounds: int) -> None:
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(rounds))
    storage = LocalStorage(path)
    for who, numbers in won.items():
        for number in numbers:
            assert storage.read(f"a/{number}").to_pybytes() == str(who).encode() * 1000


def test_of_many_threads_one_creates_a_file(tmp_path: Path):
    won: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda who=who: won.__setitem__(who, contend(tmp_path, who, 100))) for who in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    judge(tmp_path, won, 100)


@pytest.mark.slow
def test_of_many_processes_one_creates_a_file(tmp_path: Path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(contend, [(tmp_path, who, 100) for who in range(4)], chunksize=1)
    judge(tmp_path, dict(enumerate(found)), 100)


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_written_again(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
):
    storage.create("a/1", b"")
    (storage.path / ".drafts" / "left").write_bytes(b"half")
    link, removals = os.link, iter([True, True, False])

    def remove_and_link(draft: Path, target: Path) -> None:
        if next(removals):
            storage.remove_drafts()
        link(draft, target)

    monkeypatch.setattr(os, "link", remove_and_link)
    assert storage.create("a/2", b"whole")
    assert storage.read("a/2").to_pybytes() == b"whole"
    assert list((storage.path / ".drafts").iterdir()) == []


def test_a_draft_that_always_disappears_is_an_error(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch):
    def remove(*_: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(os, "link", remove)
    with pytest.raises(StoreError, match="a/2"):
        storage.create("a/2", b"")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EIO, errno.EPERM])
def test_what_the_system_refuses_is_an_error_that_names_the_file(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int
):
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match=f"a/1.*{os.strerror(code)}"):
        storage.create("a/1", b"")
    assert list((storage.path / ".drafts").iterdir()) == []
    assert storage.keys("a") == []


def test_a_file_where_a_folder_should_be_is_an_error(storage: LocalStorage):
    storage.path.mkdir(parents=True)
    (storage.path / "a").write_bytes(b"")
    for call in (lambda: storage.create("a/1", b""), lambda: storage.keys("a"), lambda: storage.length("a/1")):
        with pytest.raises(StoreError):
            call()


def test_names_are_on_disk_before_create_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also those of new folders, and that of a file which another process has just created."""
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    storage = LocalStorage(tmp_path / "checkpoint")
    storage.create("a/1", b"")
    folders = [str(tmp_path), str(tmp_path / "checkpoint"), str(tmp_path / "checkpoint" / "a")]
    assert [path for path in flushed if path in folders][-1] == folders[-1]
    assert set(folders) <= set(flushed)
    flushed.clear()
    assert not storage.create("a/1", b"")
    assert flushed[-1] == folders[-1]
