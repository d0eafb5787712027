from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.expr import Expr, col, lit, predicate_mask, split_pushdown, to_arrow_filter
from headrace.schema import Schema

NAN = math.nan
SCHEMA = Schema.of("b BYTE, i INT, m LONG, f FLOAT, d DOUBLE, s STRING, p BOOLEAN")
b, i, m, f, d, s, p = map(col, "bimfdsp")


@pytest.mark.parametrize(
    "expr", [i + 1 > 2, d < col("f"), m > 2.5, s.upper() == "A", d == NAN, s.like("a%"), ~(s.length() > 1), i]
)
def test_what_is_not_plain_stays(expr: Expr):
    assert to_arrow_filter(expr, SCHEMA) is None


def test_a_predicate_is_cut_at_its_ands():
    pushed, rest = split_pushdown(((i > 1) & s.like("a%") & (d <= 2)).alias("x"), SCHEMA)
    assert str(pushed) == str(to_arrow_filter((i > 1) & (d <= 2), SCHEMA))
    assert str(rest) == "like(s, 'a%')"
    assert split_pushdown((i > 1) & (b > 1.5), SCHEMA)[1] is None
    assert split_pushdown(s.like("a"), SCHEMA)[0] is None
    assert str(split_pushdown((s.like("a") & p) & s.like("b"), SCHEMA)[1]) == "like(s, 'a') AND like(s, 'b')"


def test_row_groups_with_nan_are_neither_skipped_nor_kept_by_their_limits(tmp_path: Path):
    table = pa.table({"d": [1.0, 2.0, NAN, None]})
    pq.write_table(table, tmp_path / "x.parquet")
    files = ds.dataset(tmp_path)
    for expr in (d < 3, d > 5, d >= 1, d == 1.0, d != 9, d <= 2, ~(d < 3), ~(d > 5), d.between(0, 9)):
        pushed = to_arrow_filter(expr, Schema.of(table.schema))
        assert repr(files.to_table(filter=pushed)["d"].to_pylist()) == repr(
            table.filter(predicate_mask(expr, table))["d"].to_pylist()
        ), str(expr)


INTS = st.sampled_from([None, 0, 1, -1, 100])
FLOATS = st.sampled_from([None, NAN, math.inf, -math.inf, 0.0, -0.0, 1.5])
TEXTS = st.sampled_from([None, "", "a", "b"])
BOOLEANS = st.sampled_from([None, True, False])
COLUMNS = {"b": INTS, "i": INTS, "m": INTS, "f": FLOATS, "d": FLOATS, "s": TEXTS, "p": BOOLEANS}
COMPARE = [Expr.__eq__, Expr.__ne__, Expr.__lt__, Expr.__le__, Expr.__gt__, Expr.__ge__]


@st.composite
def comparisons(draw: st.DrawFn) -> Expr:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    column, value, other = col(name), draw(COLUMNS[name]), draw(COLUMNS[name])
    kind = draw(st.sampled_from(["compare", "mirror", "in", "between", "null", "bare"]))
    if kind == "in":
        return column.isin(value, other)
    if kind == "between":
        return column.between(value, other)
    if kind == "null":
        return draw(st.sampled_from([column.is_null(), column.is_not_null()]))
    if kind == "bare":
        return draw(st.sampled_from([p, lit(True), lit(None).cast("BOOLEAN")]))
    compare = draw(st.sampled_from(COMPARE))
    return compare(column, value) if kind == "compare" else compare(lit(value), column)


PREDICATES = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda e: ~e),
        st.builds(lambda x, y: x & y, inner, inner),
        st.builds(lambda x, y: x | y, inner, inner),
    ),
)
TABLES = st.lists(st.fixed_dictionaries(COLUMNS), max_size=8).map(
    lambda rows: pa.Table.from_pylist(rows, schema=SCHEMA.arrow)
)


@given(PREDICATES, TABLES)
def test_differential_pushdown_keeps_the_rows_that_evaluation_keeps(expr: Expr, table: pa.Table):
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    expected = numbered.filter(predicate_mask(expr, table))["row"].to_pylist()
    pushed, rest = split_pushdown(expr, SCHEMA)
    kept = ds.dataset(numbered).to_table(filter=pushed) if pushed is not None else numbered
    if rest is not None:
        kept = kept.filter(predicate_mask(rest, kept))
    assert kept["row"].to_pylist() == expected
