"""Kinds of queries that match patterns (rule 9.4)."""

from __future__ import annotations

from headrace.testing.intents.kind import PLAIN, written

__all__ = ["PATTERNS"]

#: Shapes whose number of matches is polynomial in the number of events, also for all matches.
_SHAPES = {
    "pair": "'A B'",
    "greedy": "'A B+'",
    "reluctant": "'A B+? A'",
    "choice": "'A (B | A B)'",
    "permuted": "'PERMUTE(A, B)'",
}
_CONDITIONS = {
    "none": "{{}}",
    "alone": "{{'B': hr.col('i') > 0}}",
    "neighbours": "{{'A': hr.col('i').is_not_null(), 'B': hr.col('x') >= hr.prev('x')}}",
    "runs": "{{'B': (hr.col('x') >= hr.col('A.x')) | (hr.count('B') < 2)}}",
    "sums": "{{'B': hr.sum('i') < 9}}",
}
_POLICIES = {
    "past": ".skip('past last row')",
    "next": ".skip('to next row')",
    "variable": ".skip('to last B')",
    "all": ".all_matches()",
}
_WITHIN = {"ever": "", "instant": ".within(0)", "short": ".within(4)"}
_GROUPS = {"one": "", "text": ".group_by(by=hr.col('k'))", "computed": ".group_by(by=hr.col('i') > 0)"}
_ROWS = {
    "one": "k=hr.last('k'), i=hr.count(), x=hr.sum('B.x')",
    "all": "rows='all', n=hr.count(), m=hr.final(hr.max('x'))",
}
PATTERNS = (
    written(
        "pattern",
        1,
        "{a}{groups}.match(hr.pattern({shape}, define={conditions}){policy}{within}, {rows})" + PLAIN,
        {"policy": ("past",)},
        shape=_SHAPES,
        conditions=_CONDITIONS,
        policy=_POLICIES,
        within=_WITHIN,
        groups=_GROUPS,
        rows=_ROWS,
    ),
    written(
        "absence",
        1,
        "{a}{groups}.match(hr.pattern({shape}, define={conditions}, within={within}){policy}, "
        + _ROWS["one"].replace("B.x", "A.x")
        + ")"
        + PLAIN,
        {"policy": ("past",)},
        shape={"run": "'A B* !C'", "one": "'A B !C'", "choice": "'(A | B) !C'"},
        conditions={
            "alone": "{{'B': hr.col('i') > 0, 'C': hr.col('i') <= 0}}",
            "neighbours": "{{'B': hr.col('x') >= hr.prev('x'), 'C': hr.col('x') <= 0.0}}",
        },
        within={"short": "4", "long": "12"},
        policy={"past": ".skip('past last row')", "next": ".skip('to next row')"},
        groups=_GROUPS,
    ),
)
