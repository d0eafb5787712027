"""Structs: made and taken apart in both languages, as keys, in lists, through files and in DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import headrace as hr
from headrace import col
from headrace.columnar import factorize, hash_rows, sortable
from headrace.errors import ExpressionError, SchemaError, SqlError
from headrace.io.encode import csv_lines, json_objects
from headrace.operators.reference.rows import identity
from headrace.schema import Schema, Type
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.testing.strategies import values

COLUMNS = "ts LONG, place STRUCT<street STRING, number INT>, lines ARRAY<STRUCT<item STRING, prices ARRAY<DOUBLE>>>"
ROWS = [
    {"ts": 1, "place": {"street": "Ash", "number": 5}, "lines": [{"item": "ham", "prices": [1.5, None]}, None]},
    {"ts": 2, "place": {"street": None, "number": None}, "lines": []},
    {"ts": 3, "place": None, "lines": None},
]


def shops() -> hr.Stream:
    return hr.events(
        """
        le | re | k | s
        1  | 5  | x | {"a": 1, "b": "p"}
        2  | 7  | y | {"a": null, "b": "q"}
        3  | 9  | z |
        4  | 9  | w | {"a": 1, "b": "p"}
        """,
        "k STRING, s ROW(a LONG, b STRING)",
    )


ONE, TWO = {"a": 1, "b": "p"}, {"a": None, "b": "q"}


@pytest.mark.parametrize(
    ("text", "kind", "answers"),
    [
        ("s", "STRUCT<a LONG, b STRING>", [ONE, TWO, None, ONE]),
        ("s.a", "LONG", [1, None, None, 1]),
        ("(s).b", "STRING", ["p", "q", None, "p"]),
        ("shops.s.B", "STRING", ["p", "q", None, "p"]),
        ("{'n': 1, \"a b\": k}", 'STRUCT<n INT, "a b" STRING>', [{"n": 1, "a b": k} for k in "xyzw"]),
        ("(ROW(k, 2)).f1 || '!'", "STRING", ["x!", "y!", "z!", "w!"]),
        ("s = ROW(1, 'p')::ROW(a LONG, b STRING)", "BOOLEAN", [True, False, None, True]),
        ("s <> {'a': NULL::LONG, 'b': 'q'}", "BOOLEAN", [True, False, None, True]),
        ("s IS NOT DISTINCT FROM NULL", "BOOLEAN", [False, False, True, False]),
        ("(coalesce(s, {'a': 7::LONG, 'b': k})).a", "LONG", [1, None, 7, 1]),
        ("ARRAY[s, s][2].b", "STRING", ["p", "q", None, "p"]),
        ("CAST(s AS STRUCT<x INT, y STRING>)", "STRUCT<x INT, y STRING>",
         [{"x": 1, "y": "p"}, {"x": None, "y": "q"}, None, {"x": 1, "y": "p"}]),
    ],
)  # fmt: skip
def test_in_sql(text: str, kind: str, answers: list[object]):
    stream = hr.sql(f"SELECT {text} AS x FROM shops", shops=shops())
    assert stream.schema["x"].type.value == kind
    assert stream.cht()["x"].to_pylist() == answers
    assert stream.history("duckdb").cht()["x"].to_pylist() == answers
    tree = parse(f"SELECT {text} AS x FROM shops")
    assert parse(to_sql(tree)) == tree


@pytest.mark.parametrize(
    "text",
    [
        "SELECT s, count(*) AS n FROM shops [TUMBLING 10 ticks] GROUP BY s",
        "SELECT s.b AS b, count(s) AS n FROM shops [TUMBLING 10 ticks] GROUP BY s.b",
        "SELECT x.k AS k, y.k AS other, x.s AS s FROM shops x JOIN shops y ON x.s = y.s",
        "SELECT x.k AS k, y.k AS other FROM shops x JOIN shops y ON x.s.a = y.s.a",
        "SELECT DISTINCT s FROM shops",
        "SELECT k, s FROM shops [SNAPSHOT] ORDER BY s.a, k LIMIT 1",
        "SELECT t.one.a AS a FROM shops, UNNEST(ARRAY[s, {'a': 9::LONG, 'b': k}]) AS t(one)",
        "SELECT s, count(*) AS n FROM shops GROUP BY s",
    ],
)
def test_keys_and_lists(text: str):
    stream = hr.sql(text, shops=shops())
    answer = stream.run(finish=True).cht()
    assert answer.num_rows
    batch = stream.history("duckdb").cht()
    assert sorted(map(repr, batch.to_pylist())) == sorted(map(repr, answer.to_pylist()))


def test_python_means_the_same():
    a = col("s").field("a")
    named = shops().select(x=hr.struct(n=1, k="k"), a=a, e=col("s") == hr.struct(a=a, b="k"))
    text = "SELECT {'n': 1, 'k': k} AS x, s.a AS a, s = {'a': s.a, 'b': k} AS e FROM shops"
    assert named.cht() == hr.sql(text, shops=shops()).cht()


def test_files_hold_structs(tmp_path: Path):
    table = pa.Table.from_pylist(ROWS, schema=Schema.of(COLUMNS).arrow)
    pq.write_table(table, tmp_path / "a.parquet")
    read = hr.read_parquet(str(tmp_path / "a.parquet"), lifetime=hr.point("ts"))
    assert str(read.schema) == COLUMNS
    (tmp_path / "a.json").write_text("\n".join(json_objects(table.to_batches()[0]).to_pylist()))
    written = hr.read_json(str(tmp_path / "a.json"), COLUMNS, lifetime=hr.point("ts"))
    for stream in (read, written):
        assert stream.cht().select(["ts", "place", "lines"]).to_pylist() == ROWS
    with pytest.raises(SchemaError, match="CSV has none"):
        csv_lines(table.to_batches()[0], ",")
    (tmp_path / "a.csv").write_text("ts,s\n1,2\n")
    with pytest.raises(SchemaError, match="CSV has no lists or structs"):
        hr.read_csv(str(tmp_path / "a.csv"), "ts LONG, s ROW(a INT)", lifetime=hr.point("ts"))


@pytest.mark.filterwarnings("ignore::headrace.errors.RowsNotUsed")
def test_json_fields_are_found_by_name(tmp_path: Path):
    lines = ['{"ts": 1, "s": {"more": 0, "a": 1}}', '{"ts": 2, "s": {"a": "x"}}', '{"ts": 3, "s": 5}', '{"ts": 4}']
    for some in (lines[:1] + lines[3:], lines):  # a row that is refused sends its neighbours another way
        (tmp_path / "a.json").write_text("\n".join(some))
        read = hr.read_json(str(tmp_path / "a.json"), "ts LONG, s ROW(a INT, b STRING)", lifetime=hr.point("ts"))
        assert read.cht()["s"].to_pylist() == [{"a": 1, "b": None}, None]


NESTED = Type("STRUCT<f DOUBLE, l ARRAY<ARRAY<INT>>, s STRUCT<t STRING, d DATE>>")


@given(rows=values(NESTED.array))
def test_codes_hashes_and_orders_are_those_of_the_data(rows: list[object] | None):
    table = pa.table({"s": pa.array(rows or [], NESTED.arrow)})
    codes, first = factorize(table)
    same = [identity(value) for value in table["s"].to_pylist()]
    assert [same.index(one) for one in same] == [int(first[code]) for code in codes]
    hashes = hash_rows(table).tolist()
    assert len({*zip(same, hashes, strict=True)}) == len(set(same))
    assert sortable(table).schema.types == [pa.large_binary()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s.zz", "the struct has no field 'zz'"),
        ("k.a", "cannot take STRING"),
        ("q.a", "there is no stream 'q'"),
        ("s < s", "structs are equal or not"),
        ("s + 1", "cannot take STRUCT"),
        ("{'a': 1, 'a': 2}", "a name of its own"),
        ("s = {'a': 1}", "structs of one type"),
        ("CAST(s AS STRING)", "has no one meaning"),
    ],
)
def test_refused(text: str, message: str):
    with pytest.raises((SqlError, ExpressionError, SchemaError)) as error:
        hr.sql(f"SELECT {text} AS x FROM shops", shops=shops())
    assert message in str(error.value)


def test_a_function_of_structs():
    @hr.udf(takes=["STRUCT<a LONG, b STRING>"], returns="STRUCT<a LONG, n INT>")
    def counted(s: dict[str, Any] | None) -> dict[str, Any] | None:
        return {"a": s["a"], "n": len(s["b"])} if s else None

    found = shops().select(x=counted(col("s"))).cht()["x"].to_pylist()
    assert found == [{"a": 1, "n": 1}, {"a": None, "n": 1}, None, {"a": 1, "n": 1}]
