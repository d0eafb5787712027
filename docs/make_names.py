"""Writes the page that compares names: `python docs/make_names.py`.

A test runs every line of the table that is Headrace's, and looks up every name of PySpark and Polars in the library.
Names of ibis and PyFlink were looked up by hand, in the versions that the page names.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent / "names.md"

INTRODUCTION = """\
# What it is called elsewhere

<!-- written by docs/make_names.py; a test runs every line of the column Headrace -->

For those who know PySpark, Polars, ibis (12) or Flink's Table API (2.3). `s` and `t` are streams with the columns `k`,
`x` and `at`, and `df`, `pl`, `F` what these libraries' own examples call so. A dash means that there is nothing of the
kind. Names that look alike may mean slightly different things: here every row has a lifetime, and a join, a union or a
filter holds [at every instant](semantics.md).
"""


class Row(NamedTuple):
    """One idea, and how it is written."""

    idea: str
    headrace: str
    pyspark: str
    polars: str
    ibis: str
    flink: str


class Part(NamedTuple):
    """Ideas that belong together."""

    title: str
    rows: tuple[Row, ...]


NONE = "–"

PARTS = (
    Part(
        "Columns",
        (
            Row("keep rows", 's.where(col("x") > 1)', "df.where(...)", "df.filter(...)", "t.filter(...)", "t.where(...)"),
            Row("choose columns", 's.select("k", y=col("x") + 1)', "df.select(...)", "df.select(...)", "t.select(...)", "t.select(...)"),
            Row("add columns", 's.with_columns(y=col("x") + 1)', "df.withColumns({...})", "df.with_columns(...)", "t.mutate(...)", "t.add_or_replace_columns(...)"),
            Row("drop columns", 's.drop("x")', "df.drop(...)", "df.drop(...)", "t.drop(...)", "t.drop_columns(...)"),
            Row("rename columns", 's.rename({"x": "y"})', "df.withColumnsRenamed({...})", "df.rename({...})", "t.rename(...)", "t.rename_columns(...)"),
            Row("a constant", 's.select(y=hr.lit("text"))', "F.lit(...)", "pl.lit(...)", "ibis.literal(...)", "lit(...)"),
            Row("a condition", 's.select(y=hr.when(col("x") > 1).then("high").otherwise("low"))', "F.when(...).otherwise(...)", "pl.when(...).then(...).otherwise(...)", "ibis.cases(...)", "if_then_else(...)"),
            Row("the first value that is not null", 's.select(y=hr.coalesce(col("x"), 0))', "F.coalesce(...)", "pl.coalesce(...)", "ibis.coalesce(...)", "coalesce(...)"),
            Row("least and greatest of columns", 's.select(y=hr.greatest(col("x"), 2))', "F.greatest(...)", "pl.max_horizontal(...)", "ibis.greatest(...)", NONE),
            Row("another type", 's.select(y=col("x").cast("DOUBLE"))', "col.cast(...)", "col.cast(...)", "col.cast(...)", "col.cast(...)"),
            Row("whole division", 's.select(y=col("x") // 2)', "F.floor(a / b)", "a // b", "a // b", "(a / b).floor()"),
            Row("a Python function", 's.select(y=hr.udf(lambda x: x + 1, takes="x LONG", returns="LONG")(col("x")))', "F.udf(...)", "col.map_elements(...)", "ibis.udf.scalar.python(...)", "udf(...)"),
            Row("when a row starts and ends", 's.select("k", start=hr.start(), end=hr.end())', NONE, NONE, NONE, NONE),
        ),
    ),
    Part(
        "Streams together",
        (
            Row("all rows of both", "s.union(t)", "df.unionByName(...)", "pl.concat([...])", "t.union(...)", "t.union_all(...)"),
            Row("each row once", 's.distinct("k")', "df.dropDuplicates([...])", "df.unique(...)", "t.distinct(...)", "t.distinct()"),
            Row("pairs", 's.join(t, on="k")', "df.join(...)", "df.join(...)", "t.join(...)", "t.join(...)"),
            Row("with nulls where nothing fits", 's.join(t, on="k", how="left")', 'df.join(..., how="left")', 'df.join(..., how="left")', 't.join(..., how="left")', "t.left_outer_join(...)"),
            Row("rows that have a match", 's.join(t, on="k", how="semi")', 'df.join(..., how="left_semi")', 'df.join(..., how="semi")', "t.semi_join(...)", NONE),
            Row("rows that have none", 's.join(t, on="k", how="anti")', 'df.join(..., how="left_anti")', 'df.join(..., how="anti")', "t.anti_join(...)", NONE),
            Row("the latest row of the other", 's.point_at_start().join(latest, on="k")', NONE, "df.join_asof(...)", "t.asof_join(...)", "`FOR SYSTEM_TIME AS OF`"),
            Row("a table read once", 's.join_table(codes, on="k")', "df.join(F.broadcast(...))", "df.join(...)", "t.join(...)", "lookup joins"),
        ),
    ),
    Part(
        "Groups and windows",
        (
            Row("fixed windows", 's.group_by("k").window(hr.tumbling("10 s")).aggregate(n=hr.count())', 'df.groupBy(F.window("at", "10 s"), "k").count()', 'df.group_by_dynamic("at", every="10s", group_by="k")', "t.window_by(t.at).tumble(...)", "Tumble.over(...)"),
            Row("overlapping windows", 's.window(hr.hopping("1 min", every="10 s")).aggregate(n=hr.count())', 'F.window("at", "1 min", "10 s")', 'df.group_by_dynamic("at", every="10s", period="1m")', "t.window_by(t.at).hop(...)", "Slide.over(...).every(...)"),
            Row("days of a time zone", 's.window(hr.tumbling("1 day", zone="Europe/Berlin")).aggregate(n=hr.count())', NONE, 'df.group_by_dynamic("at", every="1d")', NONE, NONE),
            Row("sessions", 's.group_by("k").window(hr.session("30 s")).aggregate(n=hr.count())', 'F.session_window("at", "30 s")', NONE, NONE, "Session.with_gap(...)"),
            Row("for each row, those before it", 's.group_by("k").over(rows=9).aggregate(mean=hr.avg("x"))', "F.avg(...).over(Window.partitionBy(...).rowsBetween(-9, 0))", "col.rolling_mean(10)", "t.x.mean().over(ibis.window(preceding=9))", "Over.partition_by(...).order_by(...).preceding(...)"),
            Row("only some rows in an aggregate", 's.window(hr.tumbling("10 s")).aggregate(n=hr.count(where=col("x") > 1))', "F.count_if(...)", "col.filter(...).count()", "t.count(where=...)", "`FILTER (WHERE …)`"),
            Row("the first few", 's.window(hr.tumbling("10 s")).top(3, by="x")', "df.orderBy(...).limit(3)", "df.top_k(3, by=...)", "t.order_by(...).limit(3)", "t.order_by(...).fetch(3)"),
            Row("a window's ends", 's.window(hr.tumbling("10 s")).aggregate(n=hr.count()).select("n", at=hr.window_start())', 'F.window_time(...), "window.start"', "the time column", "`window_start`", 'col("w").start'),
            Row("sequences of rows", 's.group_by("k").match(hr.pattern("A B", define={"A": col("x") > 1, "B": col("x") > 2}))', NONE, NONE, NONE, "`MATCH_RECOGNIZE`"),
        ),
    ),
    Part(
        "In, out and running",
        (
            Row("a frame as an input", 'hr.from_pandas(frame, lifetime=hr.point("at"))', "spark.createDataFrame(...)", "pl.from_pandas(...)", "ibis.memtable(...)", "t_env.from_pandas(...)"),
            Row("how late rows may be", 'hr.from_pandas(frame, lifetime=hr.point("at"), progress=hr.advance("10 s"))', 'df.withWatermark("at", "10 s")', NONE, NONE, "`WATERMARK FOR at AS …`"),
            Row("rows that were too late", "s.diverted()", "dropped", NONE, NONE, "side outputs of a DataStream"),
            Row("the answer as a frame", "s.to_pandas()", "df.toPandas()", "df.to_pandas()", "t.to_pandas()", "t.to_pandas()"),
            Row("a look at the first rows", "s.show(3)", "df.show(3)", "df.head(3)", "t.head(3)", "t.execute().print()"),
            Row("run until stopped", 's.start(hr.memory(), host="local")', "df.writeStream.start()", NONE, NONE, "t.execute_insert(...)"),
            Row("a function for each batch", "s.start(hr.foreach_batch(print), host='local')", "df.writeStream.foreachBatch(...)", NONE, NONE, NONE),
            Row("the plan", "s.explain()", "df.explain()", "lazy.explain()", "ibis.to_sql(...)", "t.explain()"),
        ),
    ),
)  # fmt: skip


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_table(part) for part in PARTS)])


def _table(part: Part) -> str:
    head = "| | Headrace | PySpark | Polars | ibis | Flink |\n|---|---|---|---|---|---|\n"
    lines = (f"| {row.idea} | {' | '.join(_cell(cell) for cell in row[1:])} |\n" for row in part.rows)
    return f"## {part.title}\n\n{head}{''.join(lines)}"


def _cell(text: str) -> str:
    """Code as code; what has no name of its own, as it stands."""
    return f"`{text}`" if "(" in text and "`" not in text else text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
