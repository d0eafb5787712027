"""An output directory belongs to one query: batches of two in one place would hide each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SinkError
from headrace.io.commit import BatchDirectory


def _written(path: Path) -> BatchDirectory:
    directory = BatchDirectory(str(path))
    directory.commit(0, [directory.stage(0, "part.jsonl", b"{}\n")])
    return directory


def test_its_owner_may_come_back(tmp_path: Path):
    BatchDirectory(str(tmp_path)).claim("one", begun=False)
    _written(tmp_path).claim("one", begun=True)


def test_another_query_is_refused(tmp_path: Path):
    BatchDirectory(str(tmp_path)).claim("one", begun=False)
    with pytest.raises(SinkError, match="another query") as caught:
        BatchDirectory(str(tmp_path)).claim("two", begun=False)
    assert "instead" in str(caught.value)


def test_batches_without_an_owner_are_somebody_elses(tmp_path: Path):
    with pytest.raises(SinkError, match="another query"):
        _written(tmp_path).claim("one", begun=False)


def test_a_query_that_has_begun_may_not_go_on_elsewhere(tmp_path: Path):
    with pytest.raises(SinkError, match="earlier output would be missing"):
        BatchDirectory(str(tmp_path)).claim("one", begun=True)
