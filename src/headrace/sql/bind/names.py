"""The names of functions and aggregates in SQL, also those of other dialects."""

from __future__ import annotations

from headrace.expr.aggregates import AGGREGATES
from headrace.expr.signatures import FUNCTIONS
from headrace.sql.bind.expanded import EXPANDED

__all__ = ["AGGREGATE_SYNONYMS", "SQL_AGGREGATES", "SQL_FUNCTIONS", "SYNONYMS"]

#: Functions that SQL writes as operators, or that only the binder inserts.
_UNSPOKEN = frozenset(
    ("add", "subtract", "multiply", "divide", "negate", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "isin",
     "is_null", "is_not_null", "is_json", "like", "rlike", "shift_time", "shift_date", "shift_months", "days_between",
     "struct", "field")
)  # fmt: skip
SYNONYMS = {
    "ceiling": "ceil", "char_length": "length", "len": "length", "substr": "substring", "pow": "power", "log": "ln",
    "mod": "modulo", "ifnull": "coalesce", "nvl": "coalesce", "ucase": "upper", "lcase": "lower",
    "dayofweek": "day_of_week", "isodow": "day_of_week", "doy": "day_of_year", "dayofyear": "day_of_year",
    "strpos": "position", "instr": "position", "unix_timestamp": "epoch",
    "array_length": "cardinality", "array_size": "cardinality",
    "json_extract": "json_get", "json_extract_string": "json_text", "get_json_object": "json_text",
}  # fmt: skip
AGGREGATE_SYNONYMS = {
    "ave": "avg", "mean": "avg", "average": "avg", "variance": "var", "var_samp": "var", "stddev_samp": "stddev",
    "first_value": "first", "last_value": "last", "array_agg": "collect", "string_agg": "concat", "listagg": "concat",
    "group_concat": "concat", "percentile": "quantile", "approx_count_distinct": "approx_distinct",
}  # fmt: skip
#: Functions that expand to others.
_EXPANDED = ("nullif", "if", "hash", "uniform", "struct_pack", "row")
#: The functions and aggregates with a name. `concat` of one row takes precedence over the aggregate.
SQL_FUNCTIONS = tuple(
    sorted({*(name for name in FUNCTIONS if name not in _UNSPOKEN), *SYNONYMS, *_EXPANDED, *EXPANDED})
)
SQL_AGGREGATES = tuple(sorted({*(name for name in AGGREGATES if name != "concat"), *AGGREGATE_SYNONYMS}))
