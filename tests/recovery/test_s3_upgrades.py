"""Upgrades of a query whose checkpoint is on S3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Stream, col
from headrace.errors import CheckpointError, Superseded
from headrace.events import history
from headrace.host.driving import backfill, upgrade
from headrace.host.driving.corrections import rows_of_files
from headrace.io.sinks import FileSink
from headrace.store.objects import ObjectStorage
from headrace.testing.same import assert_same_history


class Died(BaseException):
    """The process ends here."""


def stream(folder: Path, size: int) -> Stream:
    rows = hr.read_csv(f"{folder}/in", "k STRING, ts LONG, x LONG", lifetime=hr.point("ts"), header=False,
                       progress=hr.advance(delay=2), order="name")  # fmt: skip
    return rows.group_by("k").window(hr.tumbling(size)).aggregate(x=hr.sum("x"))


def step(node: Stream, out: Path, s3: str, **options: Any) -> None:
    sink = FileSink("changes", (), str(out), "parquet")
    query = node.start(sink, host="local", checkpoint=f"{s3}/state", files_per_batch=1, **options)
    query.process_all_available()
    query.stop()


@pytest.mark.parametrize("dies", [False, True])
def test_keep_and_backfill(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch, dies: bool):
    (tmp_path / "in").mkdir()
    for number in range(3):
        rows = [f"{'ab'[i % 2]},{10 * number + i},{i}\n" for i in range(10)]
        (tmp_path / "in" / f"{number}.csv").write_text("".join(rows))
    step(stream(tmp_path, 5), tmp_path / "one", s3)

    def die(*_: Any) -> None:
        raise Died

    for module, way, size in ((backfill, "backfill", 7), (upgrade, "keep", 7)):
        changed = stream(tmp_path, size) if way == "backfill" else stream(tmp_path, size).where(col("x") > 5)
        place = tmp_path / ("one" if way == "backfill" else "two")
        if dies:
            with monkeypatch.context() as dying:
                dying.setattr(module, "replace_about", die)
                with pytest.raises(Died):
                    step(changed, place, s3, upgrade=way)
            with pytest.raises(CheckpointError, match="belongs to another query"):
                step(stream(tmp_path, 5), tmp_path / "one", s3)
        step(changed, place, s3, upgrade=way)
        step(changed, place, s3)
    found = rows_of_files(str(tmp_path / "one"), stream(tmp_path, 7).node.schema)
    assert_same_history(history(found), hr.run({"x": stream(tmp_path, 7)}, finish=False).cht("x"))
    assert ObjectStorage(f"{s3}/state").sizes("upgrade") == {}


def test_side_by_side(tmp_path: Path, s3: str):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("a,1,1\nb,2,2\na,9,3\n")
    sink = FileSink("changes", (), str(tmp_path / "one"), "parquet")
    old = stream(tmp_path, 5).start(sink, host="local", checkpoint=f"{s3}/state", files_per_batch=1)
    old.process_all_available()
    new = stream(tmp_path, 7).start(sink, host="local", checkpoint=f"{s3}/state", upgrade="side by side")
    (tmp_path / "in" / "1.csv").write_text("b,11,4\na,19,5\n")
    new.process_all_available()
    with pytest.raises(Superseded):
        old.await_termination(60)
    old.stop()
    new.stop()
    found = rows_of_files(str(tmp_path / "one"), stream(tmp_path, 7).node.schema)
    assert_same_history(history(found), hr.run({"x": stream(tmp_path, 7)}, finish=False).cht("x"))
