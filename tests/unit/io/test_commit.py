"""Batches appear whole, once, or not at all, wherever a crash strikes."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.errors import SinkError
from headrace.io import commit as module
from headrace.io.commit import BatchDirectory


class Crash(BaseException):
    """The process dies here."""


def contents(out: BatchDirectory, batch: int) -> dict[str, bytes]:
    return {Path(name).name: Path(name).read_bytes() for name in out.files(batch)}


def staging(out: BatchDirectory) -> list[str]:
    return sorted(entry.name for entry in (out.path / "_staging").iterdir())


def test_a_batch_has_stable_names_in_the_given_order(tmp_path: Path):
    out = BatchDirectory(str(tmp_path / "deep" / "out"))
    second = out.stage(12, "b.jsonl", b"2")
    first = out.stage(12, "a.jsonl", b"1")
    assert out.committed() == []
    assert out.commit(12, [first, second], {"progress.json": b"{}"})
    assert contents(out, 12) == {"part-00000.jsonl": b"1", "part-00001.jsonl": b"2", "progress.json": b"{}"}
    assert (out.path / "batch-00000012").is_dir()
    assert out.committed() == [12]
    assert staging(out) == []


def test_a_batch_is_committed_once(tmp_path: Path):
    out = BatchDirectory(f"file://{tmp_path}")
    assert out.commit(0, [out.stage(0, "x.jsonl", b"first")])
    again = out.stage(0, "x.jsonl", b"second")
    assert not out.commit(0, [again])
    assert contents(out, 0) == {"part-00000.jsonl": b"first"}
    assert not Path(again).exists()
    assert not out.commit(0, [again])


def test_files_of_all_batches_in_order(tmp_path: Path):
    out = BatchDirectory(str(tmp_path))
    for batch in (10, 2, 1):
        out.commit(batch, [out.stage(batch, "x", b"")])
    assert [Path(name).parent.name for name in out.files()] == ["batch-00000001", "batch-00000002", "batch-00000010"]
    assert out.files(7) == []
    assert out.commit(11, [])
    assert out.committed() == [1, 2, 10, 11]


def test_crash_after_staging(tmp_path: Path):
    out = BatchDirectory(str(tmp_path))
    out.stage(3, "x.jsonl", b"dead attempt")
    again = BatchDirectory(str(tmp_path))
    assert again.committed() == []
    assert again.commit(3, [again.stage(3, "x.jsonl", b"alive")])
    assert contents(again, 3) == {"part-00000.jsonl": b"alive"}
    assert staging(again) == []


@pytest.mark.parametrize("same_files", [True, False])
@pytest.mark.parametrize("step", ["_link", "_sync", "_write"])
@pytest.mark.parametrize("after", [0, 1])
def test_crash_while_preparing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: int, same_files: bool
):
    out = BatchDirectory(str(tmp_path))
    staged = [out.stage(3, "x.jsonl", b"0"), out.stage(3, "x.jsonl", b"1")]
    extra = {"a": b"a", "b": b"b"}
    calls = 0

    def dies(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise Crash
        original(*args)

    original = getattr(module, step)
    with monkeypatch.context() as patch, suppress(Crash):
        patch.setattr(module, step, dies)
        out.commit(3, staged, extra)
    restarted = BatchDirectory(str(tmp_path))
    was_there = restarted.committed() == [3]
    if not same_files:
        staged = [restarted.stage(3, "x.jsonl", b"0"), restarted.stage(3, "x.jsonl", b"1")]
    assert restarted.commit(3, staged, extra) is not was_there
    assert contents(restarted, 3) == {"part-00000.jsonl": b"0", "part-00001.jsonl": b"1", "a": b"a", "b": b"b"}
    assert staging(restarted) == []


def test_crash_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = BatchDirectory(str(tmp_path))
    staged = [out.stage(3, "x.jsonl", b"0")]

    def dies(*_: object) -> None:
        raise Crash

    monkeypatch.setattr(BatchDirectory, "_sweep", dies)
    with pytest.raises(Crash):
        out.commit(3, staged)
    monkeypatch.undo()
    restarted = BatchDirectory(str(tmp_path))
    assert restarted.committed() == [3]
    assert not restarted.commit(3, staged)
    assert contents(restarted, 3) == {"part-00000.jsonl": b"0"}
    assert staging(restarted) == []


def test_two_drivers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    slow, fast = BatchDirectory(str(tmp_path)), BatchDirectory(str(tmp_path))
    staged = [slow.stage(0, "x", b"slow")]
    original = BatchDirectory._prepare

    def overtaken(self: BatchDirectory, *args: object) -> Path:
        prepared = original(self, *args)
        monkeypatch.setattr(BatchDirectory, "_prepare", original)
        kept = prepared.rename(tmp_path / "kept")
        assert fast.commit(0, [fast.stage(0, "x", b"fast")])
        return kept.rename(prepared)

    monkeypatch.setattr(BatchDirectory, "_prepare", overtaken)
    assert not slow.commit(0, staged)
    assert contents(slow, 0) == {"part-00000": b"fast"}


def test_staging_of_later_batches_is_kept(tmp_path: Path):
    out = BatchDirectory(str(tmp_path))
    later = out.stage(5, "x", b"")
    out.stage(2, "x", b"")
    out.commit(4, [out.stage(4, "x", b"")])
    assert Path(later).exists()
    assert staging(out) == ["5"]


def test_a_foreign_file_is_not_a_staged_file(tmp_path: Path):
    out = BatchDirectory(str(tmp_path / "out"))
    (tmp_path / "secret").write_bytes(b"")
    with pytest.raises(SinkError, match="not a staged file"):
        out.commit(0, [str(tmp_path / "secret")])
    with pytest.raises(SinkError, match="not a staged file"):
        out.commit(0, [str(out.path / "_staging" / "0" / "gone")])
    assert out.committed() == []
    inside = out.stage(0, "../../escape", b"")
    assert Path(inside).parent == out.path / "_staging" / "0"


def test_who_only_reads_changes_nothing(tmp_path: Path):
    out = BatchDirectory(str(tmp_path / "out"))
    assert (out.committed(), out.files(), out.taken) == ([], [], False)
    assert not out.path.exists()


def test_a_check_leaves_nothing_behind(tmp_path: Path):
    out = BatchDirectory(str(tmp_path))
    out.check_writable()
    out.claim("owner", begun=False)
    assert staging(out) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_owner", "_staging"]


def test_directories_that_cannot_be(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkError, match="cannot write to") as caught:
        BatchDirectory(str(tmp_path / "file" / "out")).check_writable()
    assert "instead" in str(caught.value)
    with pytest.raises(SinkError, match="atomic rename"):
        BatchDirectory("s3://bucket/out")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_directory_without_permission(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(SinkError, match="Permission denied"):
        BatchDirectory(str(tmp_path / "out")).check_writable()


def test_a_batch_that_another_process_publishes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It sweeps away what this one has staged and prepared."""
    directory, other = BatchDirectory(str(tmp_path)), BatchDirectory(str(tmp_path))
    staged = directory.stage(3, "part.jsonl", b"{}")
    prepare = BatchDirectory._prepare

    def others_first(*_: object) -> Path:
        monkeypatch.setattr(BatchDirectory, "_prepare", prepare)
        assert other.commit(3, [staged])
        raise FileNotFoundError(staged)

    monkeypatch.setattr(BatchDirectory, "_prepare", others_first)
    assert not directory.commit(3, [staged])
    assert directory.committed() == [3]
