"""Names that other libraries have and Headrace writes another way: what the errors about unknown names propose.

A hint that begins with a dot goes on after the same object; any other is written for itself. `k` and `x` stand for
columns, `stream` and `other` for streams. `docs/names.md` compares more than names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from headrace.errors import UnknownMethod

__all__ = ["EXPRESSION", "FRAMED", "GROUPED", "JOINS", "MEMORY", "PACKAGE", "STREAM", "WINDOWED", "Hinting"]


def _same(hint: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, hint)


_X = "'x'"
_AGGREGATES = {
    "avg": "avg", "average": "avg", "mean": "avg", "sum": "sum", "min": "min", "max": "max", "first": "first",
    "last": "last", "median": "median", "std": "stddev", "stddev": "stddev", "var": "var", "count": "count",
    "n_unique": "distinct_count", "nunique": "distinct_count", "count_distinct": "distinct_count",
    "countDistinct": "distinct_count", "quantile": "quantile",
}  # fmt: skip


def _calls(form: str) -> dict[str, str]:
    """A hint for each name of an aggregate; `{}` in `form` stands for the call of Headrace's."""
    given = {"count": "", "quantile": "'x', 0.5"}
    return {name: form.format(f"hr.{ours}({given.get(ours, _X)})") for name, ours in _AGGREGATES.items()}


_COUNTED = "aggregate(n=hr.count())"
_WINDOWED = f".window(hr.tumbling('10 s')).{_COUNTED}"
_OVER = ".over(rows=9).aggregate(mean=hr.avg('x'))"
_ASOF = ".point_at_start().join(other, on='k'), where other was read with lifetime=hr.edge('at', key='k')"

GROUPED = {
    **_calls(".window(hr.tumbling('10 s')).aggregate(y={})"),
    **_same(_WINDOWED, "agg", "size", "window_by", "resample", "group_by_dynamic"),
    **_same(_OVER, "rolling", "transform", "with_columns", "withColumn"),
    **_same(".top(3, by='x')", "head", "limit", "sort", "order_by", "orderBy", "top_k", "nlargest"),
    **_same(".apply(lambda group: group.where(col('x') > 1))", "filter", "where", "map_groups", "applyInPandas"),
}

STREAM = {
    **{name: hint for name, hint in GROUPED.items() if not hint.startswith(".apply")},
    **_same(".where(col('x') > 1)", "filter", "query"),
    **_same(".with_columns(y=col('x') + 1)", "withColumn", "withColumns", "mutate", "assign", "transform"),
    **_same(".rename({'x': 'y'})", "withColumnRenamed", "withColumnsRenamed", "rename_columns"),
    **_same(".group_by('k')", "groupBy", "groupby", "keyBy", "key_by", "partitionBy", "partition_by"),
    **_same(".show(3)", "head", "limit", "take", "tail", "fetch", "print", "display"),
    **_same(".to_pandas().sort_values('x')", "sort", "orderBy", "order_by", "sort_values"),
    **_same(".top(3, by='x')", "top_k", "nlargest"),
    **_same(".to_pandas()", "collect", "toPandas", "execute"),
    **_same(".to_polars()", "toPolars", "pl"),
    **_same(".cht()", "to_arrow", "toArrow", "to_pyarrow"),
    **_same(".distinct('k')", "drop_duplicates", "dropDuplicates", "unique", "deduplicate"),
    **_same(".where(col('x').is_not_null())", "dropna", "drop_nulls"),
    **_same(".with_columns(x=col('x').coalesce(0))", "fillna", "fill_null"),
    **_same(".union(other)", "unionAll", "unionByName", "union_all", "concat", "append", "vstack"),
    **_same(".join(other, on='k')", "merge", "inner_join"),
    **_same(".full_join(other, on='k')", "outer_join", "full_outer_join"),
    **_same(".left_join(other, on='k')", "left_outer_join"),
    **_same(".join(other)", "crossJoin", "cross_join"),
    **_same(_ASOF, "join_asof", "asof_join", "joinAsOf", "merge_asof"),
    **_same(".schema", "columns", "dtypes", "printSchema", "print_schema"),
    **_same(".start(hr.console())", "writeStream", "write", "execute_insert", "sink"),
    **_same(".start(hr.foreach_batch(print))", "foreachBatch", "foreach_batch"),
    **_same("progress=hr.advance('10 s') where the stream is read", "withWatermark", "with_watermark"),
}

WINDOWED = {**_calls(".aggregate(y={})"), **_same(f".{_COUNTED}", "agg", "size")}
FRAMED = {**WINDOWED, **_same(f".{_COUNTED}, which keeps the columns", "with_columns", "withColumn", "mutate")}
MEMORY = _same(".cht().to_pandas()", "to_pandas", "toPandas", "collect", "show", "head", "df")

EXPRESSION = {
    **_calls("{} in aggregate(...)"),
    **_same(".abs()", "absolute"),
    **_same(".cast('LONG')", "astype", "try_cast"),
    **_same(".cast('STRING')", "strftime", "date_format", "to_string"),
    **_same(".cast('DATETIME')", "to_timestamp", "to_datetime", "strptime"),
    **_same(".coalesce(0)", "fill_null", "fillna", "ifnull", "nvl"),
    **_same(".date_trunc('day')", "date", "to_date", "normalize"),
    **_same(".date_trunc('hour')", "truncate", "trunc"),
    **_same(".day_of_week()", "weekday", "dayofweek"),
    **_same(".year(), without .dt", "dt"),
    **_same(".upper(), without .str", "str"),
    **_same(".is_null()", "isna", "isNull", "isnull"),
    **_same(".is_not_null()", "notna", "notnull", "isNotNull"),
    **_same(".length()", "len", "len_chars", "char_length"),
    **_same(".ln()", "log"),
    **_same(".power(2)", "pow"),
    **_same(".lower()", "to_lowercase"),
    **_same(".upper()", "to_uppercase"),
    **_same(".substring(1, 3)", "substr", "slice"),
    **_same("hr.when(col('x') > 1).then(2).otherwise('x')", "when", "otherwise", "if_else", "ifelse"),
    **_same("hr.udf(lambda x: x + 1, takes=['LONG'], returns='LONG')(col('x'))", "apply", "map", "map_elements"),
    **_same(f"stream{_OVER}", "over", "rolling", "rolling_mean"),
    **_same("stream.top(3, by='x', descending=True)", "desc"),
    **_same("stream.top(3, by='x', descending=False)", "asc"),
}

PACKAGE = {
    **_calls("{}"),
    **_same("hr.approx_distinct('x')", "approx_count_distinct", "approx_n_unique"),
    **_same("hr.quantile('x', 0.5)", "percentile", "percentile_approx", "approx_quantile", "percentile_cont"),
    **_same("hr.count(where=col('x') > 1)", "count_if"),
    **_same("hr.stddev('x')", "stdev", "stddev_samp"),
    **_same("hr.var('x')", "variance", "var_samp"),
    **_same("hr.collect('x')", "collect_list", "array_agg"),
    **_same("hr.lit(1)", "literal"),
    **_same("hr.when(col('x') > 1).then(2).otherwise('x')", "if_else", "ifelse", "case", "cases"),
    **_same("hr.tumbling('10 s')", "window", "tumble", "Tumble", "tumbling_window"),
    **_same("hr.hopping('1 min', every='10 s')", "hop", "slide", "Slide", "hopping_window", "sliding_window"),
    **_same("hr.session('30 s')", "session_window", "Session"),
    **_same("hr.advance('10 s')", "watermark"),
    **_same("hr.read_json", "read_ndjson", "read_jsonl", "scan_ndjson"),
    **_same("hr.read_csv", "scan_csv", "read", "readStream"),
    **_same("hr.read_parquet", "scan_parquet"),
    **_same("hr.from_pandas", "DataFrame", "createDataFrame", "memtable"),
    **_same("stream.join_table(table, on='k')", "broadcast"),
}

#: What other libraries call the kinds of joins.
JOINS = {
    **_same("full", "outer", "full_outer", "fullouter"),
    **_same("left", "left_outer", "leftouter"),
    **_same("right", "right_outer", "rightouter"),
    **_same("semi", "left_semi", "leftsemi"),
    **_same("anti", "left_anti", "leftanti"),
    **_same("inner", "cross"),
}


class Hinting:
    """A class whose error about an unknown name says what to write; the names stay unknown."""

    if not TYPE_CHECKING:  # for a type checker an unknown name is an error, as in every class

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # copy, pickle and notebooks look these up and expect an AttributeError
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            kind = type(self)
            methods = [known for known in dir(kind) if known[0] != "_" and callable(getattr(kind, known))]
            known = [method for method in methods if method not in _INTERNAL]
            raise UnknownMethod.of(name, kind.__name__, known, _HINTS[kind.__name__])


_INTERNAL = ("add", "showing")  # of `Memory`: for the driver
_HINTS: dict[str, Mapping[str, str]] = {
    "Framed": FRAMED, "Grouped": GROUPED, "MaterializedView": STREAM, "Memory": MEMORY, "Stream": STREAM,
    "Table": STREAM, "Windowed": WINDOWED,
}  # fmt: skip
