"""Files in, files out: directories that grow, every format and encoding, several of each in one query.

Queries are started, fed between two waits, and ended; each costs seconds, so each test looks at many things.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fixtures.waiting import appear

import headrace as hr
from headrace import col, errors
from headrace.events import history, to_changes
from headrace.io.commit import BatchDirectory
from headrace.io.sinks import read_events_output
from headrace.testing import check_output

pytestmark = pytest.mark.usefixtures("spark")
SCHEMA = "k STRING, t LONG, v INT"
Rows = list[tuple[str, int, int]]
MORNING: Rows = [("a", 1, 1), ("b", 4, 2), ("a", 12, 3)]
NOON: Rows = [("b", 8, 5), ("c", 23, 1), ("a", 27, 2)]
EVENING: Rows = [("c", 21, 4), ("a", 44, 1)]
LIFETIME: dict[str, Any] = {"lifetime": hr.point("t"), "progress": hr.advance(delay=20)}


def write(path: Path, rows: Rows) -> None:
    """A file that appears whole."""
    draft = path.with_name(f"_{path.name}")
    if path.suffix == ".csv":
        draft.write_text("k,t,v\n" + "".join(f"{k},{t},{v}\n" for k, t, v in rows))
    elif path.suffix == ".json":
        draft.write_text("".join(json.dumps({"k": k, "t": t, "v": v}) + "\n" for k, t, v in rows))
    else:
        columns = list(zip(*rows, strict=True))
        pq.write_table(pa.table({"k": columns[0], "t": columns[1], "v": pa.array(columns[2], pa.int32())}), draft)
    draft.rename(path)


def windows(stream: hr.Stream) -> hr.Stream:
    return stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("v"))


def same(expected: pa.Table, found: pa.Table) -> None:
    diff = hr.history_diff(expected, found, names=("expected", "found"))
    assert not diff, diff


def history_in(path: Path, stream: hr.Stream) -> pa.Table:
    """The history that a sink of physical events has written; the events must keep their promises."""
    events = read_events_output(str(path), stream.schema)
    check_output(events)
    return history(to_changes(events, stream.schema))


def json_rows(path: Path) -> list[dict[str, Any]]:
    files = BatchDirectory(str(path)).files()
    return [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]


@pytest.fixture
def arriving(tmp_path: Path) -> dict[str, Path]:
    """A folder for each format, whose name needs care in a URI, with a first file in it."""
    folders = {name: tmp_path / f"in {name} 100%" for name in ("csv", "json", "parquet")}
    for name, folder in folders.items():
        folder.mkdir()
        write(folder / f"morning.{name}", MORNING)
    return folders


def test_directories_that_grow_into_every_kind_of_sink(arriving: dict[str, Path], tmp_path: Path):
    csv = hr.read_csv(str(arriving["csv"]), SCHEMA, **LIFETIME)
    jsons = hr.read_json(str(arriving["json"]), SCHEMA, **LIFETIME)
    parquet = hr.read_parquet(f"{arriving['parquet']}/*.parquet", SCHEMA, **LIFETIME)
    counts, both = windows(csv), jsons.union(parquet)
    total = parquet.window(hr.hopping(20, every=10)).aggregate(n=hr.count())
    memory = hr.memory()
    assert memory.cht().num_rows == 0, "before the first batch nothing is known"
    names = ("jsonl", "parquet", "final", "final parquet", "upsert", "hopping")
    out = {name: tmp_path / "out" / name for name in names}
    query = hr.start_all(
        [
            (counts, hr.files(str(out["jsonl"]))),
            (both, hr.files(str(out["parquet"]), format="parquet")),
            (counts, hr.files(str(out["final"]), encoding="final")),
            (total, hr.files(str(out["final parquet"]), encoding="final", format="parquet")),
            (counts, hr.files(str(out["upsert"]), encoding="upsert", key="k")),
            (total, hr.files(str(out["hopping"]))),
            (counts, memory),
        ],
        buckets=2,
    )
    try:
        for name, rows in (("noon", NOON), ("evening", EVENING)):
            query.process_all_available()
            for format, folder in arriving.items():
                write(folder / f"{name}.{format}", rows)
            write(arriving["parquet"] / "ignored.csv", EVENING)  # the pattern does not fit
        query.process_all_available()
        assert query.progress()["cti"] == 24
        same(history_in(out["jsonl"], counts), memory.cht())
        # Windows that the CTI has closed, and no other, have left for good.
        assert {row["re"] for row in json_rows(out["final"])} == {10, 20}
        # The latest window of each key that has been answered: those that end by 44, the highest time seen.
        latest = {row["k"]: row for row in json_rows(out["upsert"])}
        assert {k: (row["op"], row["le"], row["n"]) for k, row in latest.items()} == {
            "a": ("upsert", 20, 1),
            "b": ("upsert", 0, 2),
            "c": ("upsert", 20, 2),
        }
        query.finish()
    finally:
        query.stop()

    local = hr.run({"counts": counts, "both": both, "total": total})
    same(local.cht("counts"), history_in(out["jsonl"], counts))
    same(local.cht("counts"), memory.cht())
    same(local.cht("both"), history_in(out["parquet"], both))
    same(local.cht("total"), history_in(out["hopping"], total))
    final = pa.Table.from_pylist(json_rows(out["final"]), schema=local.cht("counts").schema)
    same(local.cht("counts"), final)
    tables = [pq.read_table(file) for file in BatchDirectory(str(out["final parquet"])).files()]
    same(local.cht("total"), pa.concat_tables(tables))
    latest = {row["k"]: (row["op"], row["le"]) for row in json_rows(out["upsert"])}
    assert latest == {"a": ("upsert", 40), "b": ("upsert", 0), "c": ("upsert", 20)}
    assert query.counts == local.counts


def test_one_file_its_diverted_rows_and_what_is_remembered(tmp_path: Path):
    path, state = tmp_path / "ticks.csv", tmp_path / "state"
    path.write_text("k,t,v\na,1,1\na,x,1\nb,50,2\nb,9,1\na,51,\nc,52\n")
    (tmp_path / "other.csv").write_text("k,t,v\nz,1,1\n")
    stream = hr.read_csv(str(path), SCHEMA, lifetime=hr.point("t"), progress=hr.advance(delay=10))
    query = windows(stream).start(hr.memory(), checkpoint=str(state), buckets=2)
    try:
        query.process_all_available()
        (counts,) = query.counts.values()
        assert {n: counts[n] for n in ("rows", "accepted", "diverted", "dropped", "late", "malformed")} == {
            "rows": 6, "accepted": 3, "diverted": 3, "dropped": 0, "late": 1, "malformed": 2,
        }  # fmt: skip
        diverted = json_rows(state / "diverted" / "0")
        assert len(diverted) == 3, "they are there at once"
        operators = query.progress()["operators"]
        assert sum(operator["rows"] for operator in operators) > 0
        assert all(operator["bytes"] > 0 for operator in operators if operator["rows"])
        assert any("windows from 40 on: CTI 41" in operator["held_by"] for operator in operators)
        assert query.progress()["cti"] == 41
        query.finish()
    finally:
        query.stop()
    assert json_rows(state / "diverted" / "0") == diverted
    reasons = {row["row"]: row["reason"] for row in diverted}
    assert len(reasons) == 3
    assert reasons["a,x,1"] == "column 't': 'x' is not of type LONG"
    assert reasons["c,52"] == "the row has 2 fields, expected 3"
    assert any(reason == "late: its sync time 9 is before the CTI 40" for reason in reasons.values())
    assert {row["source"] for row in diverted} == {f"csv {path}"}


def test_a_clock_drives_an_idle_input(tmp_path: Path):
    (tmp_path / "in").mkdir()
    now = int(time.time() * 1_000_000)
    (tmp_path / "in" / "1.csv").write_text(f"k,t,v\na,{now},1\n")
    stream = hr.read_csv(str(tmp_path / "in"), SCHEMA, lifetime=hr.point("t"), progress=hr.heartbeat("1 s"))
    kept = hr.memory(encoding="final")
    query = windows(stream).where(col("n") > 0).start(kept, buckets=1)
    try:
        deadline = time.monotonic() + 60
        seen: list[int] = []
        while time.monotonic() < deadline and not (len(set(seen)) > 2 and kept.batches and kept.cht().num_rows):
            time.sleep(0.2)
            seen.append(query.progress().get("cti", hr.NEG_INFINITY))
        assert sorted(seen) == seen
        assert len(set(seen)) > 2, "the CTI follows the clock"
        assert kept.cht().column("n").to_pylist() == [1], "the window was closed by the clock alone"
        appear(tmp_path / "in" / "2.csv", f"k,t,v\na,{now + 3_600_000_000},1\n")
        query.process_all_available()  # comes back although the clock goes on
        assert query.counts[f"csv {tmp_path / 'in'}"]["accepted"] == 2
        query.finish()
        assert kept.cht().column("n").to_pylist() == [1, 1]
    finally:
        query.stop()


def test_sources_that_are_not_there_are_typed_errors(tmp_path: Path):
    missing = hr.read_csv(str(tmp_path / "none"), SCHEMA, **LIFETIME)
    with pytest.raises(errors.SourceError, match="none"):
        missing.start(hr.memory())
    path = tmp_path / "torn.parquet"
    path.write_bytes(b"no parquet")
    torn = hr.read_parquet(str(path), SCHEMA, **LIFETIME)
    query = torn.start(hr.memory())
    try:
        with pytest.raises(errors.SourceError, match=r"torn\.parquet"):
            query.process_all_available()
        assert isinstance(query.exception(), errors.SourceError)
    finally:
        query.stop()
