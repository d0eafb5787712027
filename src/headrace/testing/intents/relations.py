"""Kinds of queries over relations at every instant: streams whose events last, without a window (rule 8.4).

Generated streams may have instants, so that a lifetime is given to them first.
"""

from __future__ import annotations

from headrace.testing.intents.kind import PLAIN, written

__all__ = ["RELATIONS"]

_LASTS = {"longer": ".extend(2)", "short": ".set_duration(4)", "for_ever": ".set_duration(hr.INFINITY)"}
_ANSWERS = {
    "everything": ".aggregate(k=hr.max('k'), i=hr.count(), x=hr.sum('x'))",
    "least": ".aggregate(k=hr.min('k'), i=hr.min('i'), x=hr.max('x'))",
    "different": ".aggregate(k=hr.max('k'), i=hr.distinct_count('x'), x=hr.avg('i'))",
    "text": ".group_by('k').aggregate(i=hr.count(), x=hr.sum('x'))",
    "least_of_text": ".group_by('k').aggregate(i=hr.max('i'), x=hr.min('x'))",
    "two": ".group_by('k', 'i').aggregate(x=hr.median('x'))",
    "computed": ".group_by(up=hr.col('i') > 0).aggregate(k=hr.last('k'), i=hr.sum('i'), x=hr.max('x'))" + PLAIN,
}
_RANKED = {
    "row_number": (
        ".group_by('k').over(by='x').aggregate(place=hr.row_number()).select('k', i=hr.col('place'), x=hr.col('x'))"
    ),
    "rank": (
        ".over(by='i', descending=True).aggregate(place=hr.rank()).select('k', 'i', x=hr.col('place').cast('DOUBLE'))"
    ),
    "dense_rank": (
        ".group_by('i').over(by='k').aggregate(place=hr.dense_rank()).select('k', i=hr.col('place'), x=hr.col('x'))"
    ),
    "first": (
        ".group_by('k').over(by=['x', 'i']).aggregate(place=hr.row_number()).where(hr.col('place') <= 2)" + PLAIN
    ),
    "first_of_all": ".top(2, by=['i', 'x'], skip=1)",
    "first_of_text": ".group_by('k').top(1, by='x', descending=False)",
    "beside": ".group_by('k').with_columns(n=hr.sum('i')).select('k', i=hr.col('n'), x=hr.col('x'))",
}
#: Set operations and sub-queries, in the language that has words for them.
_TEXTS = {
    "except": "SELECT k, i FROM a EXCEPT SELECT k, i FROM b",
    "intersect": "SELECT k, i FROM a INTERSECT SELECT k, i FROM b",
    "union": "SELECT k, i FROM a UNION SELECT k, i FROM b",
    "distinct": "SELECT DISTINCT a.k, b.i FROM a JOIN b ON a.k = b.k",
    "in": "SELECT k, i FROM a WHERE i IN (SELECT i FROM b)",
    "not_in": "SELECT k, i FROM a WHERE i NOT IN (SELECT i FROM b WHERE i > 0)",
    "exists": "SELECT k, i FROM a WHERE EXISTS (SELECT 1 AS one FROM b WHERE b.k = a.k AND b.i >= a.i)",
    "scalar": "SELECT k, i FROM a WHERE i = (SELECT max(i) AS most FROM b)",
    "correlated": "SELECT k, (SELECT count(*) AS n FROM b WHERE b.k = a.k) AS i FROM a",
    "joined_counts": "SELECT a.k AS k, count(*) AS i FROM a JOIN b ON a.i = b.i GROUP BY a.k",
    "full": "SELECT coalesce(a.k, b.k) AS k, b.i AS i FROM a FULL JOIN b ON a.i = b.i",
}
RELATIONS = (
    written("relation", 1, "{a}{lasts}{answers}", lasts=_LASTS, answers=_ANSWERS),
    written("ranked_relation", 1, "{a}{lasts}{ranked}", lasts=_LASTS, ranked=_RANKED),
    written(
        "related",
        2,
        "hr.sql('{text}', a={a}{lasts}, b={b}{others}).select('k', i=hr.col('i').cast('LONG'), x=hr.lit(0.5))",
        lasts=_LASTS,
        others=_LASTS,
        text=_TEXTS,
    ),
)
