"""Build the nodes of patterns and of WITH; see `build` for the other rules and the method."""

from __future__ import annotations

from typing import Any

from headrace.sql import syntax as s
from headrace.sql.build.aggregates import AggregateBuilder
from headrace.sql.build.expressions import Clause, Token, clause, clauses
from headrace.sql.syntax import Span

__all__ = ["PatternBuilder"]

_OFTEN = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class PatternBuilder(AggregateBuilder):
    """Builds the patterns and the named queries of one text."""

    # ---- WITH

    def with_(self, at: Span, *named: s.NamedQuery) -> Clause:
        return Clause("named", named, at)

    def with_recursive(self, at: Span, *named: s.NamedQuery) -> Clause:
        return Clause("both", (Clause("named", named, at), Clause("recursive", value=True, at=at)), at)

    def named_query(self, at: Span, name: s.Name, *parts: Any) -> s.NamedQuery:
        query = next(part for part in parts if isinstance(part, s.Query))
        return self.make(s.NamedQuery, at, [p for p in parts if isinstance(p, Clause)], name=name, query=query)

    renamed = clauses("columns")

    def loop_distinct(self, at: Span) -> Clause:
        return Clause("distinct", value=True, at=at)

    def loop_strategy(self, _: Span, token: Token) -> str:
        return token.text.lower()

    loop_progress = clause("progress")

    def max_rounds(self, at: Span, rounds: Token) -> Clause:
        count = self.whole(rounds)
        if count < 1:
            self.fail("a loop goes round at least once", at, allowed="a number from 1 on", instead="MAX ROUNDS 100")
        return Clause("max_rounds", count, at)

    # ---- MATCH_RECOGNIZE

    def match_recognize(self, at: Span, _: Token, *given: Clause) -> s.MatchRecognize:
        flat = [one for part in given for one in (part.value if part.field == "both" else (part,))]
        if not any(part.field == "shape" for part in flat):
            self.fail("a pattern is missing", at, instead="MATCH_RECOGNIZE (… PATTERN (A B+) DEFINE B AS …)")
        return self.make(s.MatchRecognize, at, flat)

    match_partition = clauses("partition")
    measures = clauses("measures")

    def measured(self, at: Span, value: s.Expression, name: s.Name) -> s.Entry:
        return s.Entry(value, name, at=at)

    def one_row(self, at: Span) -> Clause:
        return Clause("rows", "one", at)

    def all_rows(self, at: Span) -> Clause:
        return Clause("rows", "all", at)

    def empty_matches(self, at: Span) -> Clause:
        self.fail(
            "a match is at the time of its last row, and an empty one has none",
            at,
            allowed="ALL ROWS PER MATCH, with or without OMIT EMPTY MATCHES",
            instead="PATTERN (A+) in place of PATTERN (A*)",
        )

    def unmatched_rows(self, at: Span) -> Clause:
        self.fail(
            "rows that are in no match are not given",
            at,
            allowed="ALL ROWS PER MATCH",
            instead="PATTERN (A B | Other), where a variable that is not defined stands for any row, and CLASSIFIER()",
        )

    def skip_past(self, at: Span) -> Clause:
        return Clause("skip", s.AfterMatch("past", at=at), at)

    def skip_next(self, at: Span) -> Clause:
        return Clause("skip", s.AfterMatch("next", at=at), at)

    def skip_first(self, at: Span, variable: s.Name) -> Clause:
        return Clause("skip", s.AfterMatch("first", variable, at=at), at)

    def skip_last(self, at: Span, variable: s.Name) -> Clause:
        return Clause("skip", s.AfterMatch("last", variable, at=at), at)

    def all_matches(self, at: Span) -> Clause:
        return Clause("matches", "all", at)

    def partial_matches(self, at: Span) -> Clause:
        return Clause("matches", "partial", at)

    within = clause("within")
    subsets = clauses("subsets")
    registers = clauses("registers")

    def subset(self, at: Span, name: s.Name, *members: s.Name) -> s.Subset:
        return s.Subset(name, members, at=at)

    define = clauses("define")

    def register(self, at: Span, name: s.Name, start: s.Expression, *updates: s.Definition) -> s.Register:
        return s.Register(name, start, updates, at=at)

    def negative_start(self, at: Span, number: Token) -> s.Unary:
        return s.Unary("-", self.number((number.start, number.end), number), at=at)

    def definition(self, at: Span, variable: s.Name, value: s.Expression) -> s.Definition:
        return s.Definition(variable, value, at=at)

    def extent(self, at: Span, word: Token, call: s.Call) -> s.Extent:
        return s.Extent(word.text.lower(), call, at=at)  # type: ignore[arg-type]

    # ---- shapes

    def pattern(self, at: Span, *parts: s.Shape | Clause) -> Clause:
        *anchor, shape = parts
        found = Clause("shape", shape, at)
        return Clause("both", (found, *anchor), at) if anchor else found

    def first_row(self, at: Span) -> Clause:
        return Clause("anchored", value=True, at=at)

    def last_row(self, at: Span, _: Token) -> Clause:
        self.fail(
            "which row of a group is the last is not known before its stream ends",
            at,
            allowed="^, for the first row",
            instead="DEFINE B AS … AND NEXT(le) IS NULL, which every row that follows takes back",
        )

    def excluded(self, at: Span, _: s.Shape) -> s.Shape:
        self.fail(
            "all rows of a match are given",
            at,
            allowed="shapes without {- -}",
            instead="MEASURES CLASSIFIER() AS v, and behind the pattern WHERE v <> 'B'",
        )

    def shape(self, at: Span, *items: s.Shape) -> s.Shape:
        return items[0] if len(items) == 1 else s.ShapeChoice(items, at=at)

    def shape_chain(self, at: Span, *items: s.Shape) -> s.Shape:
        return items[0] if len(items) == 1 else s.ShapeChain(items, at=at)

    def shape_item(self, at: Span, part: s.Shape, *often: tuple[int, int | None, bool]) -> s.Shape:
        return s.ShapeRepeat(part, *often[0], at=at) if often else part

    def variable(self, at: Span, name: s.Name) -> s.ShapeVariable:
        return s.ShapeVariable(name, at=at)

    def absent(self, at: Span, part: s.Shape) -> s.ShapeAbsent:
        return s.ShapeAbsent(part, at=at)

    def permute(self, at: Span, _: Token, *items: s.Shape) -> s.ShapePermute:
        return s.ShapePermute(items, at=at)

    def quantifier(self, _: Span, often: tuple[int, int | None], *reluctant: Token) -> tuple[int, int | None, bool]:
        return (*often, not reluctant)

    def often(self, _: Span, sign: Token) -> tuple[int, int | None]:
        return _OFTEN[sign.text]

    def reluctant(self, _: Span, sign: Token) -> Token:
        return sign

    def repeat_exactly(self, _: Span, count: Token) -> tuple[int, int | None]:
        return self.whole(count), self.whole(count)

    def repeat(self, at: Span, *bounds: Clause) -> tuple[int, int | None]:
        if not bounds:
            self.fail("how often?", at, allowed="{n}, {n,}, {,m}, {n,m}")
        found = {bound.field: bound.value for bound in bounds}
        return found.get("least", 0), found.get("most")

    def least(self, at: Span, count: Token) -> Clause:
        return Clause("least", self.whole(count), at)

    def most(self, at: Span, count: Token) -> Clause:
        return Clause("most", self.whole(count), at)
