"""Kinds of queries that process one event at a time, or equal events (rule 4)."""

from __future__ import annotations

from headrace.testing.intents.kind import written

__all__ = ["SPANS"]

_PREDICATES = {
    "number": "hr.col('i') > 0",
    "float": "hr.col('x') >= 0.0",
    "text": "hr.col('k') == 'a'",
    "null": "hr.col('x').is_null()",
    "not_null": "hr.col('k').is_not_null()",
    "negated": "~(hr.col('i') > 0)",
    "either": "(hr.col('i') > 0) | (hr.col('x') < 1.0)",
    "one_of": "hr.col('k').isin('a', 'c')",
    "between": "hr.col('i').between(0, 2)",
    "always": "hr.lit(True)",
}
_COLUMNS = {
    "computed": "'k', i=hr.col('i') + 1, x=-hr.col('x')",
    "filled": "k=hr.col('k').coalesce('z'), i=hr.col('i').coalesce(1), x=hr.col('x').coalesce(0.5)",
    "case": "k=hr.when(hr.col('i') > 1).then(hr.lit('a')).otherwise('k'), i=hr.col('i'), x=hr.col('x')",
    "constant": "k=hr.lit('a'), i=hr.col('i'), x=hr.lit(0.5)",
    "text": "k=hr.col('k').upper(), i=hr.col('k').length().cast('LONG'), x=hr.col('x')",
    "cast": "k=hr.col('i').cast('STRING'), i=hr.col('i'), x=hr.col('i').cast('DOUBLE')",
}
FEW = ".select('k', i=hr.lit(1).cast('LONG'), x=hr.lit(0.5))"
SPANS = (
    written("where", 1, "{a}.where({predicate})", predicate=_PREDICATES),
    written("select", 1, "{a}.select({columns})", columns=_COLUMNS),
    written("shift", 1, "{a}.shift({by})", by={"back": "-3", "one_on": "1", "on": "4", "nowhere": "0"}),
    written("set_duration", 1, "{a}.set_duration({to})", to={"1": "1", "short": "3", "long": "12"}),
    written(
        "extend",
        1,
        "{a}.extend({by})",
        by={"one_longer": "1", "longer": "5", "one_shorter": "-1", "shorter": "-4", "nothing": "0"},
    ),
    written("point_at_start", 1, "{a}.point_at_start()"),
    written("point_at_end", 1, "{a}.point_at_end()"),
    written("cap_duration", 1, "{a}.cap_duration({to})", to={"1": "1", "short": "3", "long": "12"}),
    written("coalesce", 1, "{a}{payloads}.coalesce()", payloads={"all": "", "few": FEW}),
    written(
        "distinct",
        1,
        "{columns}",
        columns={
            "all": "{a}.distinct()",
            "text": "{a}.distinct('k')" + FEW,
            "two": "{a}.distinct('k', 'i').select('k', 'i', x=hr.lit(0.5))",
            "computed": (
                "{a}.distinct('k', (hr.col('i') > 0).alias('up'))"
                ".select('k', i=hr.col('up').cast('LONG'), x=hr.lit(0.5))"
            ),
        },
    ),
    written(
        "union", 2, "{a}.union({streams})", streams={"two": "{b}", "three": "{b}, {a}", "shifted": "{b}.shift(2), {b}"}
    ),
    written("final", 1, "{a}.final()"),
)
