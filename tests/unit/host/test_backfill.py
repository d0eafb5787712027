"""A changed query with the checkpoint of an earlier one: `upgrade="backfill"`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.host.test_upgrades import Died, arrive, folder, highest, out, step, trades, written

import headrace as hr
from headrace import Stream, col
from headrace.changes import Changes
from headrace.errors import CheckpointError, SchemaDrift, SinkError
from headrace.events import history
from headrace.host.driving import backfill as backfilling
from headrace.host.driving.checkpoint import Checkpoint
from headrace.host.driving.corrections import rows_of_files
from headrace.io.sinks import Memory
from headrace.io.upserts import fold
from headrace.store.log import Log
from headrace.store.storage import LocalStorage
from headrace.testing.same import assert_same_history

__all__ = ["folder"]


def lowest(below: Stream, size: int = 7) -> Stream:
    return below.group_by("symbol").window(hr.tumbling(size)).aggregate(high=hr.min("price"))


def changes(name: str) -> Any:
    return out(name, encoding="changes")


def content(stream: Stream, place: str) -> pa.Table:
    return history(rows_of_files(place, stream.node.schema))


def fresh(stream: Stream) -> pa.Table:
    name = f"fresh {stream.node.fingerprint}"
    step((stream, changes(f"{name} out")), checkpoint=name)
    return content(stream, f"{name} out")


def test_another_window_corrects_what_is_there(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    before = len(list(Path("one").glob("batch-*")))
    step((lowest(trades()), changes("one")), upgrade="backfill")
    assert len(list(Path("one").glob("batch-*"))) == before + 1  # the corrections are one batch
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))
    arrive(folder, "3.csv")
    step((lowest(trades()), changes("one")))
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))
    assert not Path("state/upgrade").exists()


def test_a_new_output_gets_the_past(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), out("one")))
    arrive(folder, "3.csv")  # the old query has not read it
    step((highest(trades()), out("one")), (lowest(trades()), out("two")), upgrade="backfill")
    assert_same_history(written(highest(trades()), "one"), fresh(highest(trades())))
    assert_same_history(written(lowest(trades()), "two"), fresh(lowest(trades())))


def test_only_the_input_of_the_old_query(folder: Path):
    arrive(folder, "1.csv")
    step((trades(), changes("one")))
    seen = [*rows_of_files("one", trades().node.schema).payload["ts"].to_pylist()]
    doubled = trades().select("symbol", "ts", "size", price=col("price") * 2)
    arrive(folder, "2.csv")

    def stop(*_: Any) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Checkpoint, "claim", _after(2, Checkpoint.claim, stop))  # the backfill claims its own
        with pytest.raises(Died):
            step((doubled.select(*trades().node.schema.names), changes("one")), upgrade="backfill")
    record = Log(LocalStorage("state/store")).last()
    assert record is not None
    assert [about["scalars"]["read"] for about in record.record["positions"].values()] == [1]
    assert len(seen) == 3


def _after(calls: int, call: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """A function that works so many times less one, and then does something else."""
    made = 0

    def called(*args: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        return call(*args, **options) if made < calls else then()

    return called


def test_a_memory_has_what_it_lacked(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    kept = Memory("changes")
    step((highest(trades()), kept))
    step((lowest(trades()), kept), upgrade="backfill")
    assert_same_history(kept.cht(), fresh(lowest(trades())))
    again = Memory("changes")
    step((lowest(trades(), 5), again), upgrade="backfill")  # another process has an empty one
    arrive(folder, "3.csv")
    step((lowest(trades(), 5), again))
    assert_same_history(again.cht(), fresh(lowest(trades(), 5)))


def test_upserts_into_a_new_place(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    latest = lowest(trades())
    sink = out("two", encoding="upsert", key="symbol")
    step((latest, sink), upgrade="backfill")
    with pytest.raises(CheckpointError, match="cannot be read back"):
        step((lowest(trades(), 5), sink), upgrade="backfill")
    arrive(folder, "3.csv")
    step((latest, sink))
    step((latest, out("three", encoding="upsert", key="symbol")), checkpoint="fresh")
    rows = [fold(pq.read_table(place), ("symbol",)).sort_by("symbol") for place in ("two", "three")]
    assert rows[0].to_pylist() == rows[1].to_pylist()


def test_an_upgraded_checkpoint_is_like_others(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    step((lowest(trades()), changes("one")), upgrade="backfill")
    step((lowest(trades()).where(col("high") > 6), changes("two")), upgrade="keep")
    saved = hr.checkpoint("state")
    assert "tumbling(7 ticks)" in str(saved.show())
    assert saved.verify()["problems"] == []
    saved.rescale(3)
    saved.copy("copy")
    arrive(folder, "3.csv")
    step((lowest(trades()).where(col("high") > 6), changes("two")))
    assert saved.verify()["problems"] == []


@pytest.mark.parametrize("upgrade", ["backfill", "side by side"])
def test_a_copy_is_upgraded_before_it_has_run(folder: Path, upgrade: Any):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    hr.checkpoint("state").copy("copy")
    step((lowest(trades()), changes("two")), checkpoint="copy", upgrade=upgrade)
    arrive(folder, "3.csv")
    step((lowest(trades(), 5), changes("two")), checkpoint="copy", upgrade=upgrade)
    step((highest(trades()), changes("one")))
    assert_same_history(content(lowest(trades(), 5), "two"), fresh(lowest(trades(), 5)))
    assert_same_history(content(highest(trades()), "one"), fresh(highest(trades())))
    assert hr.checkpoint("copy").verify()["problems"] == []


def test_a_copy_is_kept_before_it_has_run(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    hr.checkpoint("state").copy("copy")
    some = highest(trades()).where(col("high") > 0)
    step((some, changes("two")), checkpoint="copy", upgrade="keep")
    arrive(folder, "3.csv")
    step((some, changes("two")), checkpoint="copy")
    both = Changes.concat([rows_of_files(place, some.node.schema) for place in ("one", "two")])
    assert_same_history(history(both), fresh(some))


@pytest.mark.parametrize("upgrade", ["keep", "backfill"])
def test_more_columns_of_an_input(folder: Path, upgrade: Any):
    def stream(schema: str) -> Stream:
        return hr.read_json("in", schema, lifetime=hr.point("ts"), progress=hr.advance(delay=5)).select("price")

    (folder / "in" / "1.jsonl").write_text('{"ts": 1, "price": 2.0}\n')
    step((stream("ts LONG, price DOUBLE"), changes("one")))
    (folder / "in" / "2.jsonl").write_text('{"ts": 2, "price": 3.0, "note": "new"}\n')
    changed = stream("ts LONG, price DOUBLE, note STRING")
    with pytest.raises(CheckpointError, match="sources have other columns"):
        step((changed, changes("one")))
    step((changed, changes("one")), upgrade=upgrade)
    assert content(changed, "one")["price"].to_pylist() == [2.0, 3.0]


def named(**options: Any) -> Stream:
    """The rows of files whose headers name the columns."""
    schema, progress = "symbol STRING, ts LONG, price DOUBLE", hr.advance(delay=5)
    return hr.read_csv("in", schema, lifetime=hr.point("ts"), progress=progress, order="name", **options)


@pytest.mark.parametrize("upgrade", ["backfill", "side by side"])
def test_a_column_of_an_input_that_was_renamed(folder: Path, upgrade: Any):
    """The error for a renamed column says `rename=`: the same files, read in another way."""
    (folder / "in" / "1.csv").write_text("symbol,ts,price\nA,1,10\nB,13,20\nB,31,5\n")
    step((highest(named(on_drift="raise")), changes("one")))
    (folder / "in" / "2.csv").write_text("symbol,ts,cost\nA,32,40\nA,55,1\n")
    with pytest.raises(SchemaDrift, match="'price' is missing"):
        step((highest(named(on_drift="raise")), changes("one")))
    renamed = highest(named(on_drift="raise", rename={"cost": "price"}))
    with pytest.raises(CheckpointError, match="belongs to another query"):
        step((renamed, changes("one")))
    step((renamed, changes("one")), upgrade=upgrade)
    assert_same_history(content(renamed, "one"), fresh(renamed))
    rows = pa.concat_tables(pq.ParquetFile(file).read() for file in sorted(Path("one").glob("batch-*/*.parquet")))
    assert "delete" not in rows["_change_type"].to_pylist(), "no answer has changed"


def test_files_that_are_read_with_other_options_are_the_same_files(folder: Path):
    """As another source they would begin anew, and what is gone would be missing without a word."""
    for number in (1, 2):
        (folder / "in" / f"{number}.csv").write_text(f"symbol,ts,price\nA,{number},10\n")
    step((highest(named()), changes("one")))
    (folder / "in" / "1.csv").unlink()
    with pytest.raises(CheckpointError, match="has read 2 files, of which 1 still exist"):
        step((highest(named(rename={"cost": "price"})), changes("one")), upgrade="backfill")
    with pytest.raises(CheckpointError, match="the checkpoint lacks its state"):
        step((highest(named(rename={"cost": "price"})), changes("two")), upgrade="keep")
    step((highest(named()), changes("one")))


def test_rows_in_the_order_of_their_arrival(folder: Path):
    """Files keep their times, so a pattern finds the same order again."""
    rising = hr.pattern("A B", define={"B": col("price") > hr.prev("price")})
    matched = trades().group_by(by=col("symbol")).match(rising, high=hr.max("B.price"), symbol=hr.last("A.symbol"))
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    step((matched, changes("two")), upgrade="backfill")
    arrive(folder, "3.csv")
    step((matched, changes("two")))
    assert fresh(matched).num_rows
    assert_same_history(content(matched, "two"), fresh(matched))


def test_another_table_that_is_joined(folder: Path):
    def named(name: str) -> Stream:
        names = pa.table({"symbol": ["A", "B"], "name": [name, "b"]})
        return trades().join_table(names, on="symbol").select("ts", "name")

    arrive(folder, "1.csv")
    step((named("a"), changes("one")))
    step((named("other"), changes("one")), upgrade="backfill")
    arrive(folder, "2.csv")
    step((named("other"), changes("one")))
    assert_same_history(content(named("other"), "one"), fresh(named("other")))


# --- late rows --------------------------------------------------------------------------------------------------------


def write(folder: Path, rows: dict[str, str]) -> None:
    """Write files, each newer than those before."""
    for time, (name, row) in enumerate(rows.items()):
        (folder / "in" / name).write_text(row)
        os.utime(folder / "in" / name, (time, time))


def run(stream: Stream, place: str, files: int, state: str = "state", **options: Any) -> list[dict[str, int]]:
    """Process what is there with so many files in a batch; return what was counted of each source."""
    query = stream.start(changes(place), host="local", checkpoint=state, files_per_batch=files, **options)
    query.process_all_available()
    query.stop()
    assert query.driver.last is not None
    return list(query.driver.last.record["counts"].values())


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_the_rows_are_late_that_were_late(folder: Path, before: int, after: int):
    """Those of the later files are late unless all files are read together."""
    below = trades(delay=0)
    write(folder, {"1.csv": "A,20,1.0,1\n", "2.csv": "A,1,2.0,2\n", "3.csv": "A,2,3.0,3\n"})
    counts = run(highest(below), "one", before)
    assert counts[0]["late"] == (2 if before == 1 else 0)
    assert run(lowest(below), "two", after, upgrade="backfill") == counts
    assert run(lowest(below), "fresh", before, state="fresh") == counts
    assert_same_history(content(lowest(below), "two"), content(lowest(below), "fresh"))


def test_a_backfill_hands_on_which_files_were_read_together(folder: Path):
    below = trades(delay=0)
    write(folder, {"2.csv": "A,20,1.0,1\n", "3.csv": "A,1,2.0,2\n"})
    run(highest(below), "one", 2)
    run(lowest(below), "two", 1, upgrade="backfill")
    write(folder, {"1.csv": "A,3,4.0,4\n"})  # older than those that were read
    counts = run(lowest(below), "two", 1)
    assert counts[0]["late"] == 1
    assert run(lowest(below, 5), "three", 9, upgrade="backfill") == counts


def test_files_of_two_sources_are_read_as_before(folder: Path):
    below, other = trades(delay=0), trades(delay=0, read="other")
    (folder / "other").mkdir()
    write(folder, {"1.csv": "A,20,1.0,1\n"})
    run(highest(below.union(other)), "one", 1)
    write(folder, {"2.csv": "A,1,2.0,2\n", "3.csv": "A,25,3.0,3\n"})
    write(folder, {"../other/1.csv": "A,30,1.0,1\n", "../other/2.csv": "A,22,2.0,2\n"})
    counts = run(highest(below.union(other)), "one", 2)
    assert [source["late"] for source in counts] == [1, 0]
    assert run(lowest(below.union(other)), "two", 1, upgrade="backfill") == counts


# --- promises ---------------------------------------------------------------------------------------------------------


def test_events_before_the_cti_are_not_corrected(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), out("one")))
    with pytest.raises(CheckpointError, match="promised that nothing changes before 20") as caught:
        step((lowest(trades()), out("one")), upgrade="backfill")
    assert "the first correction: [" in str(caught.value)
    arrive(folder, "3.csv")
    step((highest(trades()), out("one")))  # the old query goes on
    assert_same_history(written(highest(trades()), "one"), fresh(highest(trades())))


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_events_after_the_cti_are_corrected(folder: Path, kind: Any):
    arrive(folder, "1.csv", "2.csv")
    late, sink = highest(trades(delay=1000)), hr.files("one", format=kind)
    step((late, sink))
    changed = lowest(trades(delay=1000), 10)
    with pytest.raises(CheckpointError, match="have other columns"):
        step((changed.select("symbol"), sink), upgrade="backfill")
    step((changed, sink), upgrade="backfill")
    arrive(folder, "3.csv")
    step((changed, sink))
    assert_same_history(written(changed, "one"), fresh(changed))


def test_final_rows_are_not_taken_back(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    final = out("one", encoding="final")
    step((highest(trades()), final))
    with pytest.raises(CheckpointError, match="final rows are never taken back"):
        step((lowest(trades()), final), upgrade="backfill")
    more = highest(trades()).where(col("high") > 0)  # it takes nothing back
    step((more, final), upgrade="backfill")


def test_a_function_gets_no_second_copy(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), hr.foreach_batch(lambda *_: None)))
    with pytest.raises(CheckpointError, match=r"the output into the function has changed, and .* cannot be read back"):
        step((lowest(trades()), hr.foreach_batch(lambda *_: None)), upgrade="backfill")
    seen: list[int] = []
    step(
        (highest(trades()), hr.foreach_batch(lambda rows, _: seen.append(rows.num_rows))),
        (lowest(trades()), changes("two")),
        upgrade="backfill",
    )
    assert seen == []  # it has them
    assert_same_history(content(lowest(trades()), "two"), fresh(lowest(trades())))


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_history_that_is_gone(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    (folder / "in" / "1.csv").unlink()
    with pytest.raises(CheckpointError, match="has read 2 files, of which 1 still exist"):
        step((lowest(trades()), changes("one")), upgrade="backfill")
    arrive(folder, "3.csv")
    step((highest(trades()), changes("one")))


@pytest.mark.parametrize("upgrade", ["backfill", "side by side"])
def test_a_refused_upgrade_leaves_a_new_directory_to_other_queries(folder: Path, upgrade: Any):
    arrive(folder, "1.csv", "2.csv")
    old = hr.start_all([(highest(trades()), changes("one"))], host="local", checkpoint="state")
    old.process_all_available()
    if upgrade == "backfill":
        old.stop()
    (folder / "in" / "1.csv").unlink()
    with pytest.raises(CheckpointError, match="the history is gone"):
        step((lowest(trades()), changes("two")), upgrade=upgrade)
    step((highest(trades()), changes("two")), checkpoint="another")
    old.stop()


def test_a_refused_upgrade_keeps_the_directories_of_the_old_query(folder: Path):
    """Also those without a batch."""
    nothing = highest(trades()).where(hr.col("high") > 999)
    arrive(folder, "1.csv")
    step((highest(trades()), changes("one")), (nothing, changes("none")))
    arrive(folder, "2.csv")
    (folder / "in" / "1.csv").unlink()
    with pytest.raises(CheckpointError, match="the history is gone"):
        step((lowest(trades()), changes("one")), (nothing, changes("none")), upgrade="backfill")
    with pytest.raises(SinkError, match="holds the output of another query"):
        step((highest(trades()), changes("none")), checkpoint="another")
    step((highest(trades()), changes("one")), (nothing, changes("none")))


def test_a_history_that_has_changed(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))
    (folder / "in" / "1.csv").write_text("A,1,10.0,1\n")
    with pytest.raises(CheckpointError, match=r"1\.csv' is not as it was"):
        step((lowest(trades()), changes("one")), upgrade="backfill")


def test_sources_that_cannot_be_repeated(folder: Path):
    arrive(folder, "1.csv")
    ticking = hr.read_csv("in", "symbol STRING, ts LONG, price DOUBLE, size LONG", lifetime=hr.point("ts"),
                          progress=hr.heartbeat(delay=5), header=False)  # fmt: skip
    step((highest(ticking), changes("one")))
    with pytest.raises(CheckpointError, match="promises that follow a clock"):
        step((lowest(ticking), changes("one")), upgrade="backfill")


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 5, 6, 7, 8, 9, "about", "swap"])
def test_a_crash_at_any_moment(folder: Path, writes: Any):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), changes("one")))

    def die(*_: Any, **__: Any) -> None:
        raise Died

    with pytest.MonkeyPatch.context() as patched:
        if writes == "about":
            patched.setattr(backfilling, "replace_about", die)
        elif writes == "swap":
            patched.setattr(Checkpoint, "remove_scratch", die)
        else:
            patched.setattr(LocalStorage, "create", _after(writes, LocalStorage.create, die))
        with pytest.raises(Died):
            step((lowest(trades()), changes("one")), upgrade="backfill")
    last = Log(LocalStorage("state/store")).last()
    assert last is not None
    if "about" not in last.record:
        arrive(folder, "3.csv")
        step((highest(trades()), changes("one")))  # the old query goes on until the upgrade is committed
        assert_same_history(content(highest(trades()), "one"), fresh(highest(trades())))
        step((lowest(trades()), changes("one")), upgrade="backfill")
    else:
        with pytest.raises(CheckpointError, match="belongs to another query"):
            step((highest(trades()), changes("one")))
        arrive(folder, "3.csv")
        step((lowest(trades()), changes("one")))
    assert not Path("state/upgrade").exists()
    assert_same_history(content(lowest(trades()), "one"), fresh(lowest(trades())))
