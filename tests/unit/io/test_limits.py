"""Limits of what readers take, and the time that bad files cost."""

from __future__ import annotations

import bz2
import gzip
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import SchemaError, SourceError

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

BOMB = b"t,v\n1," + b"0" * (100 << 20) + b"\n"


def counts(stream: hr.Stream) -> dict[str, int]:
    return next(iter(stream.run().counts.values()))


# ---- byte order marks


@pytest.mark.parametrize("header", [True, False])
def test_a_byte_order_mark_is_no_part_of_a_csv_file(tmp_path: Path, header: bool):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (b"a,b\n" if header else b"") + b"x,y\n")
    stream = hr.read_csv(str(path), "a STRING, b STRING", lifetime=hr.by_arrival(), header=header)
    for table in (stream.cht(), stream.history(engine="duckdb").cht()):
        assert table.select(["a", "b"]).to_pylist() == [{"a": "x", "b": "y"}]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_sql_finds_the_header_behind_a_byte_order_mark(tmp_path: Path, name: str):
    text = b"\xef\xbb\xbfa,b\nx,y\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    script = hr.script(
        f"CREATE STREAM s (a STRING, b STRING) SOURCE FILE ('{tmp_path / name}', ','); QUERY q AS SELECT a, b FROM s"
    )
    assert script.queries["q"].cht().select(["a", "b"]).to_pylist() == [{"a": "x", "b": "y"}]


def test_a_byte_order_mark_is_no_part_of_json(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"t": 1, "v": "x"}\n')
    stream = hr.read_json(str(path), lifetime=hr.point("t"))
    assert stream.cht()["v"].to_pylist() == stream.history(engine="duckdb").cht()["v"].to_pylist() == ["x"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("read", [hr.read_csv, hr.read_json])
def test_other_encodings_are_refused_by_their_mark(tmp_path: Path, encoding: str, read: Callable[..., hr.Stream]):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffa,b\nx,y\n".encode(encoding))
    with pytest.raises(SourceError, match=r"a\.txt.*not UTF-8") as raised:
        read(str(path), "a STRING, b STRING", lifetime=hr.by_arrival()).cht()
    assert "iconv" in raised.value.instead


# ---- sizes


def test_a_line_has_a_longest_length(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("t,v\n1,short\n2," + "x" * 1000 + "\n")
    read: Callable[..., hr.Stream] = lambda **options: hr.read_csv(  # noqa: E731
        str(path), "t LONG, v STRING", lifetime=hr.point("t"), **options
    )
    assert read().cht().num_rows == read(max_line=1002).cht().num_rows == 2
    with pytest.raises(SourceError, match=r"a\.csv.*a line is too long") as raised:
        read(max_line=1001).cht()
    assert "max_line=" in raised.value.instead
    with pytest.raises(SourceError, match="too long"):
        read(max_line=1001).history(engine="duckdb").cht()
    for limit in ("max_line", "max_expansion"):
        with pytest.raises(SchemaError, match=f"{limit} is a whole number"):
            read(**{limit: 0})


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_a_small_file_that_becomes_huge_is_refused(tmp_path: Path, ending: str):
    path = tmp_path / f"a.csv.{ending}"
    packed = {"gz": gzip.compress, "bz2": bz2.compress, "zst": pa.Codec("zstd").compress}[ending](BOMB)
    path.write_bytes(bytes(packed))
    stream = hr.read_csv(str(path), "t LONG, v STRING", lifetime=hr.point("t"))
    with pytest.raises(SourceError, match="decompresses to more than 200 times its size") as raised:
        stream.run()
    assert "max_expansion=2000" in raised.value.instead


@pytest.mark.slow
def test_the_limit_of_a_compressed_file_can_be_raised(tmp_path: Path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(BOMB))
    stream = hr.read_csv(
        str(path), "t LONG, v STRING", lifetime=hr.point("t"), max_expansion=100_000, max_line=200 << 20
    )
    assert counts(stream)["accepted"] == 1


def test_limits_in_sql(tmp_path: Path):
    (tmp_path / "a.csv").write_text("t,v\n1,long enough\n")
    create = f"CREATE STREAM s (t LONG, v STRING) ORDER BY t SOURCE FILE ('{tmp_path / 'a.csv'}', max_line => 5);"
    with pytest.raises(SourceError, match="too long"):
        hr.script(create + "QUERY q AS SELECT v FROM s").queries["q"].cht()


# ---- bad rows by the hundred thousand: a second or so each; the bounds leave room for a machine that does much else

MANY = 100_000
BAD: dict[str, Callable[[int], str]] = {
    "text": lambda i: f"{i},x{i}",
    "too large": lambda i: f"{i},{10**19 + i}",
    "no date": lambda i: f"x{i},1",
    "width": lambda i: f"{i},1,2",
    "late": lambda i: f"{MANY - i},1",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD)
def test_many_bad_rows_of_csv(tmp_path: Path, kind: str):
    path = tmp_path / "a.csv"
    path.write_text("t,v\n" + "\n".join(map(BAD[kind], range(MANY))) + "\n")
    stream = hr.read_csv(str(path), "t LONG, v LONG", lifetime=hr.point("t"), progress=hr.ordered())
    assert _in_time(stream) == {"rows": MANY, "diverted": MANY - (kind == "late"), "accepted": int(kind == "late")}


@pytest.mark.slow
@pytest.mark.parametrize("line", ['{{"t": {i}, "v": "x{i}"}}', '{{"t": {i}, "v"', '{{"t": {i}, "v": 1e400}}'])
def test_many_bad_rows_of_json(tmp_path: Path, line: str):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(line.format(i=i) for i in range(MANY)) + "\n")
    stream = hr.read_json(str(path), "t LONG, v LONG", lifetime=hr.point("t"))
    assert _in_time(stream) == {"rows": MANY, "diverted": MANY, "accepted": 0}


@pytest.mark.slow
def test_many_bad_rows_of_parquet(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": range(MANY), "v": [10**12 + i for i in range(MANY)]}), path)
    stream = hr.read_parquet(str(path), "t LONG, v INT", lifetime=hr.point("t"))
    assert _in_time(stream) == {"rows": MANY, "diverted": MANY, "accepted": 0}


def _in_time(stream: hr.Stream, seconds: float = 6) -> dict[str, int]:
    started = time.process_time()
    found = counts(stream)
    assert time.process_time() - started < seconds
    return {name: found[name] for name in ("rows", "diverted", "accepted")}


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3, 1_000_000])
def test_quotes_that_are_never_closed(tmp_path: Path, every: int):
    """A quote costs its own line only, and little time, however many there are."""
    path, rows = tmp_path / "a.csv", 100_000
    path.write_text("t,v\n" + "".join(f'{i},"open {i}\n' if i % every == 0 else f"{i},x\n" for i in range(rows)))
    stream = hr.read_csv(str(path), "t LONG, v STRING", lifetime=hr.point("t"))
    assert _in_time(stream, 8) == {"rows": rows, "diverted": 0, "accepted": rows}


def test_reasons_name_every_column_that_is_wrong(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("t,v,w\n1,x,y\n2,3,4\nz,5,y\n")
    run = hr.read_csv(str(path), "t LONG, v LONG, w LONG", lifetime=hr.point("t")).run()
    reasons: list[Any] = run.diverted()["reason"].to_pylist()
    wrong = "column {!r}: {!r} is not of type LONG"
    expected = [("v", "x"), ("w", "y")], [("t", "z"), ("w", "y")]
    assert sorted(reasons) == sorted("; ".join(wrong.format(*one) for one in row) for row in expected)
