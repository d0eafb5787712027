"""A changed query with the checkpoint of an earlier one: `upgrade="keep"`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import Stream, col
from headrace.errors import CheckpointError, PlanError, SinkError
from headrace.events import history, to_changes
from headrace.host.driving import upgrade as upgrading
from headrace.host.driving.checkpoint import Checkpoint
from headrace.host.driving.query import Query
from headrace.io.sinks import read_events_output
from headrace.store.log import Log
from headrace.testing import check_output
from headrace.testing.same import assert_same_history

SCHEMA = "symbol STRING, ts LONG, price DOUBLE, size LONG"
FILES = {
    "1.csv": "A,1,10.0,1\nB,2,50.0,2\nA,12,11.0,3\n",
    "2.csv": "A,13,30.0,4\nB,14,5.0,5\nA,25,12.0,6\n",
    "3.csv": "B,26,7.0,7\nA,31,20.0,8\nA,45,1.0,9\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def arrive(folder: Path, *names: str, into: str = "in") -> None:
    for name in names:
        (folder / into).mkdir(exist_ok=True)
        (folder / into / name).write_text(FILES[name])


def trades(delay: int = 5, late: Any = "divert", read: str = "in") -> Stream:
    progress = hr.advance(delay=delay, late=late)
    return hr.read_csv(read, SCHEMA, lifetime=hr.point("ts"), progress=progress, header=False)


def highest(below: Stream) -> Stream:
    return below.group_by("symbol").window(hr.tumbling(10)).aggregate(high=hr.max("price"))


def step(*pairs: tuple[Stream, Any], checkpoint: str = "state", **options: Any) -> Query:
    """Process what is there, and stop."""
    query = hr.start_all(pairs, host="local", checkpoint=checkpoint, files_per_batch=1, **options)
    query.process_all_available()
    query.stop()
    return query


def out(name: str, **options: Any) -> Any:
    return hr.files(name, format="parquet", **options)


def written(stream: Stream, *places: str) -> pa.Table:
    """The history in the directories of an output, one after the other."""
    schema = stream.node.schema
    events = pa.concat_tables([read_events_output(place, schema) for place in places])
    return history(to_changes(events, schema))


def fresh(stream: Stream) -> pa.Table:
    """The answer of a query that has run from the start."""
    step((stream, out("fresh out")), checkpoint="fresh")
    return written(stream, "fresh out")


# --- what is allowed --------------------------------------------------------------------------------------------------


def test_another_sink_gets_the_rest(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    before = highest(trades())
    step((before, out("one")))
    arrive(folder, "3.csv")
    step((before, out("two")), upgrade="keep")
    step((before, out("two")))  # it is the query of the checkpoint now
    assert_same_history(written(before, "one", "two"), fresh(before))


def test_a_new_output_begins_now(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), out("one")))
    arrive(folder, "3.csv")
    filtered = highest(trades()).where(col("high") > 6).select("symbol", top=col("high"))
    step((highest(trades()), out("one")), (filtered, out("two")), upgrade="keep")
    assert_same_history(written(highest(trades()), "one"), fresh(highest(trades())))
    new = written(filtered, "two").to_pylist()
    assert min(row["le"] for row in new) >= 20  # windows that had ended are not in it


def test_outputs_may_go_and_change_places(folder: Path):
    arrive(folder, "1.csv")
    low = trades().group_by("symbol").window(hr.tumbling(7)).aggregate(low=hr.min("price"))
    step((low, out("low")), (highest(trades()), out("high")))
    arrive(folder, "2.csv", "3.csv")
    step((highest(trades()), out("high")), upgrade="keep")
    assert_same_history(written(highest(trades()), "high"), fresh(highest(trades())))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.where(col("symbol") == "A"),  # the optimizer would move it below the window
        lambda s: s.where(col("high") > 6),
        lambda s: s.select("symbol", renamed=col("high")),
        lambda s: s.select(key=col("symbol"), twice=col("high") * 2),
    ],
)
def test_filters_and_projections_above_a_window(folder: Path, change: Any):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), out("one")))
    arrive(folder, "3.csv")
    changed = change(highest(trades()))
    query = step((changed, out("two")), upgrade="keep")
    again = step((changed, out("two")))
    assert again.line.fingerprint == query.line.fingerprint
    assert {row["le"] for row in written(changed, "two").to_pylist()} <= {20, 30, 40}
    rest = [row for row in fresh(changed).to_pylist() if row["le"] >= 20]
    assert written(changed, "two").to_pylist() == rest


@pytest.mark.parametrize(("delay", "late"), [(20, "divert"), (0, "divert"), (5, "drop")])
def test_another_delay_and_late_policy(folder: Path, delay: int, late: str):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), out("one")))
    arrive(folder, "3.csv")
    changed = highest(trades(delay, late))
    step((changed, out("one")), upgrade="keep")
    assert_same_history(written(changed, "one"), fresh(changed))
    check_output(read_events_output("one", changed.node.schema))  # promises that were made hold


def test_a_new_source_begins_at_its_start(folder: Path):
    arrive(folder, "1.csv")
    arrive(folder, "1.csv", "2.csv", into="other")
    step((highest(trades()), out("one")))
    arrive(folder, "2.csv", "3.csv")
    other = highest(trades(read="other"))
    step((highest(trades()), out("one")), (other, out("two")), upgrade="keep")
    assert_same_history(written(other, "two"), fresh(other))
    step((other, out("two")), upgrade="keep")  # and the first one is gone
    (origin,) = json.loads(Path("state/headrace.json").read_text())["origins"].values()
    assert "other" in origin


def test_a_filter_of_rows_continues_where_the_source_was(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((trades().where(col("price") > 6), out("one")))
    arrive(folder, "3.csv")
    changed = trades().where(col("price") > 10)
    step((changed, out("two")), upgrade="keep")
    assert [row["ts"] for row in written(changed, "two").to_pylist()] == [31]


def test_other_columns_of_a_source_for_a_new_output(folder: Path):
    arrive(folder, "1.csv", "2.csv")
    step((highest(trades()), out("one")))
    arrive(folder, "3.csv")
    sizes = trades().select("size")
    step((highest(trades()), out("one")), (sizes, out("two")), upgrade="keep")
    assert json.loads(Path("state/headrace.json").read_text())["left_out"] == ["together"]
    step((highest(trades()), out("one")), (sizes, out("two")))
    assert written(sizes, "two")["size"].to_pylist() == [7, 8, 9]
    assert_same_history(written(highest(trades()), "one"), fresh(highest(trades())))


def test_the_option_may_stay(folder: Path):
    for name in FILES:
        arrive(folder, name)
        step((highest(trades()), out("one")), upgrade="keep")
    assert_same_history(written(highest(trades()), "one"), fresh(highest(trades())))


# --- what is refused --------------------------------------------------------------------------------------------------


def test_an_upgrade_of_nothing_is_a_message(folder: Path, caplog: pytest.LogCaptureFixture):
    """The checkpoint may be another one than its user thinks."""
    arrive(folder, "1.csv")
    for _ in range(2):
        step((highest(trades()), out("one")), upgrade="keep")
    messages = [record.getMessage() for record in caplog.records if "upgrade" in record.getMessage()]
    assert messages == [f"query headrace: there is nothing to upgrade in {folder / 'state'}: a new checkpoint begins"]


def test_columns_that_no_operator_shows_are_in_the_difference(folder: Path):
    def every(schema: str) -> Stream:
        return hr.read_csv("in", schema, lifetime=hr.point("ts"), header=False)

    arrive(folder, "1.csv")
    step((every(SCHEMA), out("one")))
    with pytest.raises(CheckpointError) as caught:
        step((every(SCHEMA.replace("size LONG", "size INT")), out("one")))
    assert "- csv(header=False) in (symbol STRING, ts LONG, price DOUBLE, size LONG)" in str(caught.value)
    assert "+ csv(header=False) in (symbol STRING, ts LONG, price DOUBLE, size INT)" in str(caught.value)


def test_without_an_upgrade_the_error_says_what_is_possible(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), out("one")))
    with pytest.raises(CheckpointError, match="belongs to another query") as caught:
        step((highest(trades()).select("symbol"), out("two")))
    assert caught.value.allowed.startswith("upgrade='keep' (--upgrade keep)")
    with pytest.raises(CheckpointError, match="belongs to another query") as caught:
        step((highest(trades()).where(col("symbol") == "A"), out("two")))  # with other rules of the optimizer
    assert caught.value.allowed.startswith("upgrade='keep' (--upgrade keep)")
    with pytest.raises(CheckpointError, match="belongs to another query") as caught:
        step((trades().group_by("symbol").window(hr.tumbling(20)).aggregate(high=hr.max("price")), out("two")))
    assert "not upgrade='keep', because the checkpoint lacks the state of" in str(caught.value)


def test_an_operator_without_state_in_the_checkpoint(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), out("one")))
    before = Path("state/headrace.json").read_bytes()
    lowest = trades().group_by("symbol").window(hr.tumbling(10)).aggregate(low=hr.min("price"))
    with pytest.raises(CheckpointError, match="the checkpoint lacks the state of") as caught:
        step((lowest, out("two")), upgrade="keep")
    text = str(caught.value)
    assert all(part in text for part in ("kept  Source", "gone  ", "new   ", "upgrade='backfill'"))
    assert Path("state/headrace.json").read_bytes() == before
    arrive(folder, "2.csv", "3.csv")
    step((highest(trades()), out("one")))  # nothing has happened to it
    assert_same_history(written(highest(trades()), "one"), fresh(highest(trades())))


def test_other_types_of_an_input_are_in_the_list(folder: Path):
    """Texts of operators do not have them: a source that is new reads like the one that is gone."""
    arrive(folder, "1.csv")
    step((highest(trades()), out("one")))
    schema = SCHEMA.replace("price DOUBLE", "price LONG")
    progress = hr.advance(delay=5, late="divert")
    other = hr.read_csv("in", schema, lifetime=hr.point("ts"), progress=progress, header=False)
    with pytest.raises(CheckpointError, match="lacks the state") as caught:
        step((highest(other), out("one")), upgrade="keep")
    lines = [line.strip() for line in caught.value.message.splitlines()]
    assert [line for line in lines if "columns of" in line] == [
        f"new   columns of csv(header=False) in ({schema})",
        f"gone  columns of csv(header=False) in ({SCHEMA})",
    ]


def test_what_is_offered_can_be_written_on_the_command_line(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), out("one")))
    with pytest.raises(CheckpointError, match="belongs to another query") as caught:
        step((highest(trades()).where(hr.col("high") > 0), out("one")))
    assert "--upgrade backfill" in caught.value.allowed
    assert "(side-by-side)" in caught.value.allowed


def test_another_stream_into_the_same_place(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), out("one")))
    with pytest.raises(CheckpointError, match=r"the stream into .*one has changed") as caught:
        step((highest(trades()).where(col("high") > 6), out("one")), upgrade="keep")
    assert "another directory" in caught.value.instead
    with pytest.raises(CheckpointError, match=r"the stream into .*one has changed"):
        step((highest(trades()), out("one", encoding="changes")), upgrade="keep")


def test_a_directory_that_was_left_is_refused(folder: Path):
    """It lacks what has changed since."""
    arrive(folder, "1.csv")
    step((highest(trades()), out("one")))
    arrive(folder, "2.csv")
    step((highest(trades()), out("two")), upgrade="keep")
    with pytest.raises(CheckpointError, match="the directory of an output has rows already"):
        step((highest(trades()), out("one")), upgrade="keep")
    with pytest.raises(SinkError, match="one' has other batches than the query has written"):
        step((highest(trades()), out("one")))
    arrive(folder, "3.csv")
    step((highest(trades()), out("two")))
    assert_same_history(written(highest(trades()), "one", "two"), fresh(highest(trades())))


def test_a_refused_upgrade_leaves_a_new_directory_to_other_queries(folder: Path):
    arrive(folder, "1.csv")
    step((highest(trades()), out("one")))
    nothing = highest(trades()).where(col("high") > 999)
    step((nothing, out("taken", encoding="changes")), checkpoint="taken state")
    with pytest.raises(SinkError, match="taken' holds the output of another query"):
        step((highest(trades()), out("new")), (highest(trades()), out("taken")), upgrade="keep")
    step((highest(trades()), out("new")), checkpoint="another")


@pytest.mark.parametrize("upgrade", ["kept", "side_by_side", ""])
def test_upgrades_that_do_not_exist(folder: Path, upgrade: Any):
    arrive(folder, "1.csv")
    with pytest.raises(PlanError, match="no such upgrade"):
        step((highest(trades()), out("one")), upgrade=upgrade)
    with pytest.raises(PlanError, match="continues a checkpoint"):
        highest(trades()).start(hr.memory(), host="local", upgrade="keep")


# --- crashes ----------------------------------------------------------------------------------------------------------


class Died(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("where", ["before the commit", "after it", "after the description"])
def test_a_crash_during_an_upgrade(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str):
    arrive(folder, "1.csv", "2.csv")
    old, new = highest(trades()), highest(trades()).select("symbol", top=col("high"))
    step((old, out("one")))

    def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as dying:
        if where == "before the commit":
            dying.setattr(Log, "commit", die)
        elif where == "after it":
            dying.setattr(upgrading, "replace_about", die)
        else:
            dying.setattr(Checkpoint, "claim", die)
        with pytest.raises(Died):
            step((new, out("two")), upgrade="keep")
    arrive(folder, "3.csv")
    if where == "before the commit":
        step((old, out("one")))
        assert_same_history(written(old, "one"), fresh(old))
        return
    with pytest.raises(CheckpointError, match="belongs to another query"):
        step((old, out("one")))
    step((new, out("two")))
    rest = [row for row in fresh(new).to_pylist() if row["le"] >= 20]
    assert written(new, "two").to_pylist() == rest


def test_a_crash_while_an_output_moves(folder: Path, monkeypatch: pytest.MonkeyPatch):
    arrive(folder, "1.csv", "2.csv")
    stream = highest(trades())
    step((stream, out("one")))

    def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr(upgrading, "replace_about", die)
        with pytest.raises(Died):
            step((stream, out("two")), upgrade="keep")
    arrive(folder, "3.csv")
    step((stream, out("two")))
    assert_same_history(written(stream, "one", "two"), fresh(stream))
