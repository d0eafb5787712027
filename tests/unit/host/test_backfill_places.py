"""A changed query writes to a place that an earlier query has written to: `upgrade="backfill"`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.host.test_backfill import changes, content, fresh, lowest, write
from tests.unit.host.test_upgrades import FILES, arrive, folder, highest, out, step, trades, written

import headrace as hr
from headrace import col
from headrace.errors import CheckpointError
from headrace.store.storage import LocalStorage
from headrace.testing.same import assert_same_history

__all__ = ["folder"]


@pytest.mark.parametrize("way", [{"encoding": "changes"}, {"encoding": "final"}, {}])
def test_a_directory_that_was_left_is_corrected(folder: Path, way: dict[str, Any]):
    arrive(folder, "1.csv")
    step((highest(trades()), out("one", **way)))
    arrive(folder, "2.csv")
    step((highest(trades()), out("two", **way)), upgrade="backfill")
    step((highest(trades()), out("one", **way)), upgrade="backfill")
    arrive(folder, "3.csv")
    step((highest(trades()), out("one", **way)))
    found = content(highest(trades()), "one") if way else written(highest(trades()), "one")
    assert_same_history(found, fresh(highest(trades())))


def test_a_promise_in_a_directory_that_was_left_holds(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), out("one")))
    step((highest(trades()), out("two")), upgrade="backfill")
    with pytest.raises(CheckpointError, match="promised that nothing changes before 20"):
        step((lowest(trades()), out("one")), upgrade="backfill")
    with pytest.raises(CheckpointError, match="have other columns"):
        step((highest(trades()).select("symbol"), out("one")), upgrade="backfill")
    step((highest(trades()), out("two")))


def test_a_directory_that_was_left_and_cannot_be_read_back(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), hr.files("one", encoding="changes")))
    step((highest(trades()), changes("two")), upgrade="backfill")
    with pytest.raises(CheckpointError, match="one' has changed, and what it has cannot be read back"):
        step((highest(trades()), hr.files("one", encoding="changes")), upgrade="backfill")
    step((highest(trades()), changes("two")))


def test_a_directory_without_its_first_batches(folder: Path):
    """What was removed on purpose was not taken back: it is no correction."""
    few = out("one", encoding="changes", keep="1 B")
    for name in FILES:
        arrive(folder, name)
        step((highest(trades()), few))
    assert list(Path("one/_removed").iterdir())
    with pytest.raises(CheckpointError, match="cannot be read back to be corrected"):
        step((lowest(trades()), few), upgrade="backfill")
    step((highest(trades()), few), (lowest(trades()), changes("two")), upgrade="backfill")  # unchanged, it continues
    assert_same_history(content(lowest(trades()), "two"), fresh(lowest(trades())))


def test_diverted_rows_of_a_source_that_comes_back(folder: Path):
    late = "A,45,1.0,9\nB,1,2.0,3\n"
    for place in (folder / "in", folder / "other"):
        place.mkdir(exist_ok=True)
        (place / "1.csv").write_text(late)
    for read in ("in", "other", "in"):
        step((trades(read=read), changes(f"{read} out")), upgrade="backfill")
    held = {path.name: len(list(path.glob("batch-*"))) for path in Path("state/diverted").iterdir()}
    assert set(held.values()) == {1}
    assert len(held) == 3


def test_a_checkpoint_whose_path_has_dots(folder: Path):
    """Its diverted rows are below it all the same."""
    place = str(folder / "in" / ".." / "state")
    arrive(folder, *FILES)
    (folder / "in" / "4.csv").write_text("A,1,3.0,2\n")  # late
    step((highest(trades()), changes("one")), checkpoint=place)
    about = Path("state/headrace.json")
    assert [output["place"] for output in json.loads(about.read_text())["outputs"]][1:] == ["diverted/0"]
    old = about.read_text().replace('"diverted/0"', f'"{folder}/state/diverted/0"')  # as an earlier Headrace wrote it
    about.write_text(old)
    step((highest(trades()), changes("one")), checkpoint=place)
    step((lowest(trades()), changes("one")), checkpoint=place, upgrade="backfill")
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))
    assert [path.name for path in Path("state/diverted").iterdir()] == ["0"]


@pytest.mark.parametrize("change", ["keep", "backfill", "rescale"])
def test_a_checkpoint_that_was_moved_with_diverted_rows(folder: Path, change: str):
    arrive(folder, "1.csv")
    write(folder, {"4.csv": "A,45,3.0,2\n", "5.csv": "A,1,3.0,2\n"})  # the last batch has a late row and nothing else
    step((highest(trades()), changes("one")), checkpoint="before")
    assert list(Path("before/diverted/0").glob("batch-*"))
    Path("before").rename("state")
    if change == "rescale":
        hr.checkpoint("state").rescale(2)
    else:
        step((highest(trades()), changes("two")), upgrade=change)
    assert not Path("before").exists()


def test_what_a_refused_backfill_has_left_is_removed_by_hand(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), changes("one")))
    (folder / "in" / "1.csv").unlink()
    with pytest.raises(CheckpointError, match="the history is gone"):
        step((lowest(trades()), changes("one")), upgrade="backfill")
    left = LocalStorage("state").sizes("upgrade")
    expected = {"files": len(left), "bytes": sum(left.values())}
    assert hr.checkpoint("state").gc(dry_run=True)["removed"]["unfinished upgrades"] == expected
    assert LocalStorage("state").sizes("upgrade") == left
    assert hr.checkpoint("state").gc()["removed"]["unfinished upgrades"] == expected
    assert not Path("state/upgrade").exists()


def test_other_columns_into_the_same_place(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), changes("one")))
    renamed = highest(trades()).select("symbol", top=col("high"))
    with pytest.raises(CheckpointError, match="have other columns"):
        step((renamed, changes("one")), upgrade="backfill")
    step((renamed, changes("two")), upgrade="backfill")
    assert_same_history(content(renamed, "two"), fresh(renamed))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"encoding": "events"}, {"encoding": "changes"}),
        ({"encoding": "events"}, {"encoding": "final"}),
        ({"encoding": "changes"}, {"encoding": "events"}),
        ({"encoding": "changes"}, {"encoding": "final"}),
        ({"encoding": "final"}, {"encoding": "changes"}),
        ({"encoding": "events"}, {"encoding": "events", "format": "jsonl"}),
        ({"encoding": "events", "format": "jsonl"}, {"encoding": "events"}),
    ],
)
def test_another_form_into_the_same_place(folder: Path, before: dict[str, Any], after: dict[str, Any]):
    """A directory whose files have several forms cannot be read."""
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), hr.files("one", **{"format": "parquet", **before})))
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"have other columns|have another format"):
            step((highest(trades()), hr.files("one", **{"format": "parquet", **after})), upgrade="backfill")
        step((highest(trades()), changes("two")), upgrade="backfill")  # from now on the place is one that was left


@pytest.mark.parametrize(("kind", "value"), [("LONG", col("high").cast("LONG")), ("STRING", col("symbol"))])
def test_another_type_into_the_same_place(folder: Path, kind: str, value: Any):
    """Readers of the directory take the type of one file for that of all."""
    arrive(folder, "1.csv")
    step((highest(trades()), changes("one")))
    other = highest(trades()).select("symbol", high=value)
    with pytest.raises(CheckpointError, match="have other columns") as error:
        step((other, changes("one")), upgrade="backfill")
    assert "high DOUBLE" in str(error.value)
    assert f"high {kind}" in str(error.value)
    step((other, changes("two")), upgrade="backfill")
