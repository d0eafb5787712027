"""A query that starts while another process upgrades it: the old one does not go on with the state of the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import Superseded
from headrace.host.driving.checkpoint import Checkpoint, read_about
from headrace.host.driving.driver import Driver
from headrace.store.log import Log
from headrace.store.storage import LocalStorage


def test_a_start_that_looked_before_an_upgrade_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("t,v\n1,1\n2,2\n12,3\n")
    state = str(tmp_path / "state")
    rows = hr.read_csv(str(tmp_path / "in"), "t LONG, v LONG", lifetime=hr.point("t"), progress=hr.ordered())
    old = rows.window(hr.tumbling(10)).aggregate(n=hr.count())

    def begin(stream: hr.Stream, place: str, **options: Any) -> None:
        query = stream.start(hr.files(str(tmp_path / place)), host="local", checkpoint=state, **options)
        query.process_all_available()
        query.stop()

    monkeypatch.setattr(Checkpoint, "lock", lambda _: None)  # an object store has no lock
    begin(old, "old")
    opened = Driver.open

    def open_after_upgrade(driver: Driver) -> None:
        """Another process upgrades the query after this one has looked at the checkpoint."""
        monkeypatch.setattr(Driver, "open", opened)
        begin(old.where(col("n") > 1), "new", upgrade="keep")
        opened(driver)

    monkeypatch.setattr(Driver, "open", open_after_upgrade)
    with pytest.raises(Superseded, match="was upgraded to another one"):
        begin(old, "old")
    last = Log(LocalStorage(tmp_path / "state" / "store")).last()
    assert last is not None
    assert last.record["query"] == (read_about(LocalStorage(tmp_path / "state")) or {})["fingerprint"]
