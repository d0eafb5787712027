"""What other dialects of SQL call things, for the hints of errors: functions, and names like columns.

A hint is what to write here. It is only given where the word means nothing in this dialect. `forms.py` has the forms
of statements.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FUNCTIONS", "NAMES", "function_hint", "name_hint"]


def _same(hint: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, hint)


#: Functions, and the expression to write: `x` is a number, `name` a text, `ts` a time, `ok` a condition.
FUNCTIONS: Mapping[str, str] = {
    **_same("x IS NULL", "isnull", "isna"),
    **_same("x IS NOT NULL", "isnotnull", "notnull"),
    **_same("coalesce(x, 0)", "zeroifnull", "value", "nvl1"),
    **_same("nullif(x, 0)", "nullifzero"),
    **_same("CASE WHEN x IS NULL THEN 0 ELSE x END", "nvl2"),
    **_same("if(ok, 1, 0)", "iff", "iif", "choose", "multiif"),
    **_same("CASE WHEN name = 'A' THEN 1 ELSE 0 END", "decode"),
    **_same("CAST(CAST(x AS LONG) AS STRING)", "str", "string", "to_string", "tostring", "text"),
    **_same("CAST(name AS DOUBLE)", "to_number", "to_double", "todouble", "float", "double", "val"),
    **_same("CAST(name AS LONG)", "to_int", "toint", "int", "bigint", "integer", "to_long"),
    **_same("CAST(name AS INT)", "convert", "try_cast", "safe_cast", "try_convert"),
    **_same("ts + 10 s", "dateadd", "timestampadd", "adddate", "addtime", "subdate"),
    **_same("time_diff(ts, ts)", "date_diff", "timestampdiff", "timediff", "age"),
    **_same("epoch(ts)", "to_unixtime", "to_unix_timestamp", "unixtime", "unix_seconds"),
    **_same("day_of_week(ts)", "weekday", "dayname"),
    **_same("day_of_year(ts)"),
    **_same("day(ts)", "dayofmonth"),
    **_same("date_trunc('day', ts)", "trunc_date", "tostartofday", "time_bucket", "date_bin", "floor_date"),
    **_same("position('a', name)", "charindex", "locate", "indexof", "index_of", "patindex"),
    **_same("name REGEXP 'a.*'", "regexp_like", "regexp_matches", "regexp_contains", "match"),
    **_same("substring(name, 1, 3)", "mid", "slice"),
    **_same("length(name)", "strlen", "datalength", "octet_length", "size"),
    **_same("code(name)", "ascii", "ord", "unicode"),
    **_same("starts_with(name, 'a')", "startswith"),
    **_same("ends_with(name, 'a')", "endswith"),
    **_same("concat(name, name)", "strconcat", "join"),
    **_same("sqrt(x)", "squareroot"),
    **_same("power(x, 2)", "square", "sqr"),
    **_same("ln(x) / ln(2)", "log2"),
    **_same("floor(x)", "truncate", "int_part"),
    **_same("floor_divide(x, 2)", "div", "intdiv", "quotient"),
    **_same("bit_and(1, 2)", "bitand"),
    **_same("bit_or(1, 2)", "bitor"),
    **_same("bit_xor(1, 2)", "bitxor"),
    **_same("uniform(1)", "rand", "random", "dbms_random"),
    **_same("stddev(x)", "stdev", "std", "stddev_pop", "stdevp"),
    **_same("var(x)", "var_pop", "varp"),
    **_same("sum(if(ok, 1, 0))", "countif", "count_if", "sumif", "sum_if"),
    **_same("first(x)", "any_value", "any", "earliest", "earliest_by_offset"),
    **_same("last(x)", "latest", "latest_by_offset"),
    **_same("collect(x)", "collect_list", "list", "grouparray", "list_agg", "collect_set", "array_concat_agg"),
    **_same("quantile(x, 0.5)", "percentile_cont", "approx_percentile", "percentile_approx", "approx_quantile"),
    **_same("count(DISTINCT x)", "count_distinct", "uniq", "uniqexact"),
    **_same("approx_distinct(x)", "ndv", "hll"),
    **_same("string_agg(name, ',')", "wm_concat", "xmlagg"),
}

_NOW = "le, the time of a row"
#: Words that other dialects use like columns.
NAMES: Mapping[str, str] = {
    **_same(_NOW, "sysdate", "systimestamp", "getdate", "rowtime", "proctime", "event_time", "_rowtime"),
    **_same("window_start", "tumble_start", "hop_start", "session_start", "windowstart"),
    **_same("window_end", "tumble_end", "hop_end", "session_end", "windowend"),
    **_same("ORDER BY … LIMIT n", "rownum", "rowid", "_row_number"),
}


def function_hint(name: str, arguments: int) -> str:
    """What to write in place of a function of another dialect; empty if it is not known."""
    if name.lower() == "isnull" and arguments == 2:
        return "coalesce(x, 0)"
    return FUNCTIONS.get(name.lower().rpartition(".")[2]) or NAMES.get(name.lower(), "")


def name_hint(name: str) -> str:
    """What to write in place of a name that other dialects know; empty if it is not known."""
    return NAMES.get(name.lower(), "")
