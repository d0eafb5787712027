"""Ingress on Spark is ingress in process: the same rows are accepted, diverted and counted, for the same reasons."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import headrace as hr
from headrace import col

pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed"),
]  # rows are lost here on purpose


def written(folder: Path, *files: bytes | str) -> str:
    """Files in a folder, each modified a second after the one before it."""
    folder.mkdir()
    for number, data in enumerate(files):
        path = folder / f"{number}.csv"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        os.utime(path, (1_700_000_000 + number,) * 2)
    return str(folder)


def bad_files(seed: int) -> list[bytes]:
    """Files of rows of all kinds: good, late, without a time, of the wrong width or type, not UTF-8, odd quotes."""
    draw = random.Random(seed)
    kinds = (
        lambda t: f"{t},{t + draw.randrange(1, 9)},{draw.choice('ab')},{draw.randrange(9)}",
        lambda t: f",{t},a,1",
        lambda t: f"{t},{t},a,1",
        lambda t: f"{t},{t + 1},a",
        lambda t: f"{t},{t + 1},a,x{draw.randrange(3)}",
        lambda t: f"x,{t},a,{2**40}",
        lambda t: f'{t},{t + 1},"a,1',
    )
    files = []
    for _ in range(3):
        rows = [draw.choice(kinds if draw.random() < 0.5 else kinds[:1])(draw.randrange(60)) for _ in range(40)]
        lines = [row.encode() if draw.random() < 0.95 else row.encode() + b"\xff" for row in rows]
        files.append(b"t,u,k,v\n" + b"\n".join(lines) + b"\n")
    return files


def inputs(tmp_path: Path) -> dict[str, hr.Stream]:
    """Streams by name; each reads what no other reads, so that each has its own counts."""
    schema = "t LONG, u LONG, k STRING, v INT"
    lasting = hr.interval("t", "u")
    found = {
        f"bad {late}": hr.read_csv(
            written(tmp_path / f"bad {late}", *bad_files(number)), schema, lifetime=lasting,
            progress=hr.advance(10, late=late),  # type: ignore[arg-type]
        )
        for number, late in enumerate(("divert", "drop", "adjust"))
    }  # fmt: skip
    found["mark"] = hr.read_csv(
        written(tmp_path / "mark", b"\xef\xbb\xbfk,t\nx,1\n", b"\xef\xbb\xbfk,t\ny,2\n"),
        "k STRING, t LONG",
        lifetime=hr.point("t"),
    )
    found["renamed"] = hr.read_csv(
        written(tmp_path / "renamed", "t,kind,weight,re\n1,a,1.5,9\n"), lifetime=hr.point("t"),
        rename={"kind": "sort", "re": "until"},
    )  # fmt: skip
    found["promises"] = hr.read_events(
        written(
            tmp_path / "promises",
            "kind,le,re,re_new,k\ninsert,1,2,,a\ncti,50,,,\ninsert,20,21,,late\n",
            "kind,le,re,re_new,k\ninsert,30,31,,late\ninsert,60,61,,b\n",
        ),
        "k STRING", format="csv", progress=hr.advance(100),
    )  # fmt: skip
    found["skew"] = hr.read_csv(
        written(tmp_path / "skew", *(f"t\n{t}\n" for t in (100, 110, 10**9, 120, 105, 10**9 + 1, 130))), "t LONG",
        lifetime=hr.point("t"), progress=hr.advance(0, max_skew=50),
    )  # fmt: skip
    found["edges"] = hr.read_csv(
        written(
            tmp_path / "edges",
            "t,id,what\n1,a,start\n2,b,start\n5,a,end\n",
            "t,id,what\n4,b,end\n7,a,start\n9,c,end\n",
        ),
        "t LONG, id STRING, what STRING", lifetime=hr.edge("t", key="id", closes=col("what") == "end"),
        progress=hr.advance(100),
    )  # fmt: skip
    return found


def test_both_hosts_and_histories_take_the_same_rows(tmp_path: Path):
    streams = inputs(tmp_path)
    local = hr.run(streams)
    spark = hr.run(streams, host="spark", buckets=2, files_per_batch=1)
    assert spark.counts == local.counts
    reported = [sorted(run.diverted().to_pylist(), key=str) for run in (local, spark)]
    assert reported[0] == reported[1]
    for name, stream in streams.items():
        used = local.cht(name)
        assert hr.history_diff(used, spark.cht(name), names=("local", "spark")) == "", name
        if name != "skew":  # the first median is not stored
            assert hr.history_diff(used, stream.history(engine="duckdb").cht(), names=("live", "batch")) == "", name
    diverted = [row["source"] for row in reported[0]]
    for source, counts in local.counts.items():
        assert counts["rows"] == counts["accepted"] + counts["diverted"] + counts["dropped"]
        assert counts["diverted"] == diverted.count(source)
    for late in ("divert", "drop", "adjust"):
        (counts,) = (counts for source, counts in local.counts.items() if f"bad {late}" in source)
        assert counts["rows"] == 120
        assert counts["late"] > 5
        assert counts["rows"] - local.cht(f"bad {late}").num_rows == counts["diverted"] + counts["dropped"]
        assert (counts["dropped"] > 0) == (late == "drop")
    assert local.cht("mark")["k"].to_pylist() == ["x", "y"]
    assert local.cht("renamed")["until"].to_pylist() == [9]
    assert local.cht("promises")["k"].to_pylist() == ["a", "b"]
    assert local.cht("skew")["t"].to_pylist() == [100, 110, 120, 130, 10**9, 10**9 + 1]
    assert [(row["le"], row["re"], row["id"]) for row in local.cht("edges").to_pylist()] == [
        (1, 5, "a"), (2, 4, "b"), (7, hr.INFINITY, "a"),
    ]  # fmt: skip
