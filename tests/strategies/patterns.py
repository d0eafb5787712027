"""Random patterns for property tests, over streams with the columns of `strategies.SCHEMA`.

Like `strategies` it needs hypothesis.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headrace.expr import Expr, avg, coalesce, col, collect, count, first, greatest, last, lit, max, min, sum, when
from headrace.patterns import Pattern, classifier, final, match_number, next, offset, prev
from headrace.patterns.regex import Chain, Choice, Permute, Repeat, Shape, Symbol

__all__ = ["measures", "patterns", "shapes"]

_NAMES = ("A", "B", "C")
_SYMBOLS = st.builds(Symbol, st.sampled_from(_NAMES))
#: Of one tuple alone.
_ALONE: tuple[Expr, ...] = (
    col("i") > 0, col("i") <= 1, col("x") >= 0.0, col("k") == "a", col("k").is_null(), lit(True),
    col("i").is_not_null(), col("i") > prev("i"), prev("x", 2).is_null() | (col("x") > prev("x", 2)),
    col("k").isin("a", "b"), next("i") > 0, next("x", 2).is_null() | (col("i") > next("i")),
)  # fmt: skip
#: Of the run.
_RUNNING: tuple[Expr, ...] = (
    col("i") > col("A.i"), col("x") <= col("B.x"), col("k") == col("A.k"), col("k") > first("k"),
    count("B") < 3, count() <= 4, sum("i") > 1, sum("A.i") + 1 >= col("i"), avg("x") < 2.0, avg("i") >= 0.0,
    max("x") > min("x"), min("A.k") == "a", max("k") <= "b", first("A.i") <= col("i"), last("i") > 0,
    coalesce(col("A.i"), 0) <= col("i"), when(count("A") > 1).then("x").otherwise("A.x") > 0.0,
    greatest(col("A.x"), col("x")) > 0.5, col("A.i").is_null() | (col("i") % 2 == col("A.i") % 2),
    (col("x") - col("A.x")) * 2.0 < 3.0, col("i") / count() > 0.3, col("A.k").upper() == "A", prev("A.i") < col("i"),
    ~(count("x") > 2), (col("i") * col("A.i")).isin(0, 1, 14), -col("A.i") < 0, col("A.x").abs() > 1.0,
    col("m") < 4, col("m") % 3 != 1, col("last_k") == col("k"), col("i").cast("DOUBLE") > col("A.x"),
    col("A.x").cast("INT") <= col("i"), (col("A.i") > 0) & (col("x") > 0.0), (col("C.i") > 0) | (col("i") > 0),
    offset(last("A.i"), 1) < col("i"), offset(first("x"), 2).is_null(), next("A.i") >= col("i"),
    col("le") - col("A.le") < 6, prev("le") + 3 >= col("le"), count("S") < 3, col("i") >= col("S.i"),
    first("S.x") <= col("x"), sum("S.i") < 9, offset(first("S.i"), 1).is_null(), offset(last("S.x"), 1) < 2.0,
)  # fmt: skip
_MEASURES: dict[str, Expr] = {
    "n": count(), "a": count("A"), "b": count("B.x"), "s": sum("i"), "t": sum("A.x"), "m": avg("B.i"), "high": max("x"),
    "low": min("C.k"), "f": first("A.i"), "l": last("B.k"), "w": col("A.x"), "v": col("i") - first("i"),
    "c": classifier(), "p": prev("i"), "q": prev("A.x", 2), "all": collect("x"), "mine": collect("A.k"),
    "end": final("i"), "of": final(count("A")) - count("A"), "start": first("le"), "took": col("le") - col("A.le"),
    "nth": offset(first("A.i"), 1), "before": offset(last("k"), 2), "next": next("i"), "behind": final(next("A.x")),
    "as": final(classifier()), "sum": final(sum("A.x")), "number": match_number(),
    "subset": collect("S.i"), "of_subset": first("S.x"), "subsets": count("S"), "register": col("m") + 1,
    "text": col("last_k"), "registers": final("m"),
}  # fmt: skip


def shapes() -> st.SearchStrategy[Shape]:
    """Shapes of all kinds, some of which match nothing at all; half are short chains, which match more often."""
    repeats = st.builds(
        lambda part, greedy: Repeat(part, 1, None, greedy), _SYMBOLS, st.sampled_from([True, True, False])
    )
    chains = st.lists(st.one_of(_SYMBOLS, repeats), min_size=1, max_size=3).map(lambda items: Chain(tuple(items)))
    return st.one_of(chains, st.recursive(_SYMBOLS, _larger, max_leaves=5))


def _larger(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    counts = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None)])
    repeats = st.builds(lambda part, n, greedy: Repeat(part, n[0], n[1], greedy), inner, counts, st.booleans())
    permuted = st.builds(Permute, st.lists(inner, min_size=2, max_size=2).map(tuple))
    return st.one_of(
        st.builds(Chain, several), st.builds(Chain, several), st.builds(Choice, several), repeats, permuted
    )


#: Made once: what makes strategies is looked at when they are, and not again with each example.
_FULL = shapes().filter(lambda shape: not shape.nullable)


def _conditions(draw: Any, variables: tuple[str, ...], known: set[str]) -> dict[str, Expr]:
    found = {}
    for name in variables:
        parts = [draw(st.sampled_from(_ALONE))] if draw(st.booleans()) else []
        if draw(st.integers(0, 3)) == 0:
            parts.append(draw(st.sampled_from([expr for expr in _RUNNING if _named(expr) <= known])))
        if parts:
            found[name] = parts[0] if len(parts) == 1 else parts[0] & parts[1]
    return found


def _named(expr: Expr) -> set[str]:
    """The variables and registers that an expression names."""
    names = {name.partition(".")[0] for name in expr.columns()}
    return names & {*_NAMES, "S", "m", "last_k"}


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """A pattern that matches at least one tuple."""
    shape = draw(_FULL)
    pattern = Pattern(shape)
    known = set(pattern.variables)
    if draw(st.integers(0, 3)) == 0:
        variable = draw(st.sampled_from(pattern.variables))
        pattern = pattern.register("m", 0, {variable: col("m") + count() + col("i")}).register(
            "last_k", "a", {variable: col("k")}
        )
        known |= {"m", "last_k"}
    if draw(st.integers(0, 3)) == 0:
        pattern = pattern.subset(
            "S", *sorted(draw(st.sets(st.sampled_from(pattern.variables), min_size=1, max_size=2)))
        )
        known.add("S")
    pattern = pattern.define(_conditions(draw, pattern.variables, known))
    if draw(st.integers(0, 9)) == 0:
        pattern = pattern.anchored()
    if draw(st.integers(0, 3)) == 0:
        pattern = pattern.where(draw(st.sampled_from([expr for expr in _RUNNING if _named(expr) <= known])))
    if draw(st.booleans()):
        pattern = pattern.within(draw(st.sampled_from([0, 1, 3, 8, 20])))
    kind = draw(st.sampled_from(["one", "one", "one", "all", "partial"]))
    if kind != "one":
        return pattern.all_matches() if kind == "all" else pattern.partial()
    to = draw(st.sampled_from(["past last row", "to next row", "to first {}", "to last {}"]))
    return pattern.skip(to.format(draw(st.sampled_from(pattern.variables))))


@st.composite
def measures(draw: st.DrawFn, pattern: Pattern) -> dict[str, Expr]:
    """A few measures that make sense of a pattern."""
    known = {*pattern.variables, *dict(pattern.subsets), *(register.name for register in pattern.registers)}
    fitting = sorted(name for name, expr in _MEASURES.items() if _named(expr) <= known)
    if pattern.matches == "all":
        fitting.remove("number")  # such matches have no order
    return {name: _MEASURES[name] for name in sorted(draw(st.sets(st.sampled_from(fitting), min_size=1, max_size=4)))}
