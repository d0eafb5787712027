"""Listing files in the order they arrived."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import SourceError
from headrace.io.files import list_files


def make(path: Path, mtime: int) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    os.utime(path, (mtime, mtime))
    return str(path)


def test_oldest_first_then_by_name_and_only_data(tmp_path: Path):
    late = make(tmp_path / "a.csv", 300)
    second = make(tmp_path / "c.csv", 200)
    first = make(tmp_path / "b.csv", 200)
    for hidden in ("_SUCCESS", ".x.crc", "_staging/e.csv"):
        make(tmp_path / hidden, 100)
    below = make(tmp_path / "sub" / "d.csv", 100)
    assert list_files(str(tmp_path)) == [below, first, second, late]
    assert list_files(f"file://{tmp_path}") == [below, first, second, late]
    assert list_files(str(tmp_path / "*.csv")) == [first, second, late]
    assert list_files(late) == [late]


def test_globs_go_deeper_but_not_into_hidden_folders(tmp_path: Path):
    seen = make(tmp_path / "batch-1" / "x.csv", 100)
    make(tmp_path / "_staging" / "x.csv", 100)
    assert list_files(str(tmp_path / "**" / "*.csv")) == [seen]


def test_nothing_there(tmp_path: Path):
    assert list_files(str(tmp_path)) == []
    assert list_files(str(tmp_path / "*.csv")) == []
    with pytest.raises(SourceError, match="there is no file"):
        list_files(str(tmp_path / "nowhere"))
