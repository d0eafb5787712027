"""Print patterns and the queries of WITH; see `printer` for the rest."""

from __future__ import annotations

from headrace.sql import syntax as s
from headrace.sql.printer.expressions import clause, clauses, indented, lines, listed, text, words, writes, written_name

__all__ = ["named_queries"]

_AS_VARIABLE = frozenset({"PERMUTE"})
_AS_NAMED = frozenset({"RECURSIVE"})
_SIGNS = {(0, None): "*", (1, None): "+", (0, 1): "?"}
_SKIPS = {"past": "PAST LAST ROW", "next": "TO NEXT ROW", "first": "TO FIRST", "last": "TO LAST"}


# ---- WITH


def named_queries(part: s.Query) -> str:
    """WITH and its queries, or nothing if there are none."""
    keywords = "WITH RECURSIVE" if part.recursive else "WITH"
    return f"{keywords} {listed(part.named)}" if part.named else ""


@writes(s.NamedQuery)
def _(part: s.NamedQuery) -> str:
    name = written_name(part.name, _AS_NAMED) + (f"({listed(part.columns)})" if part.columns else "")
    return words(
        f"{name} AS (\n{indented(text(part.query))}\n)",
        "DISTINCT" if part.distinct else "",
        f"PROGRESS {part.progress.upper()}" if part.progress else "",
        f"MAX ROUNDS {part.max_rounds}" if part.max_rounds is not None else "",
    )


# ---- MATCH_RECOGNIZE


@writes(s.MatchRecognize)
def _(part: s.MatchRecognize) -> str:
    matches = {"all": "ALL MATCHES", "partial": "ALL MATCHES WITH PARTIAL", None: ""}[part.matches]
    said = lines(
        clauses("PARTITION BY", part.partition),
        clauses("ORDER BY", part.order),
        clauses("MEASURES", part.measures),
        {"one": "ONE ROW PER MATCH", "all": "ALL ROWS PER MATCH", None: ""}[part.rows],
        clause("AFTER MATCH SKIP", part.skip),
        matches,
        f"PATTERN ({'^ ' * part.anchored}{text(part.shape)})",
        clause("WITHIN", part.within),
        clauses("REGISTERS", part.registers),
        clauses("SUBSET", part.subsets),
        clauses("DEFINE", part.define),
        clause("WHERE", part.where),
    )
    return f"MATCH_RECOGNIZE (\n{indented(said)}\n)"


@writes(s.AfterMatch)
def _(part: s.AfterMatch) -> str:
    return words(_SKIPS[part.to], text(part.variable) if part.variable is not None else "")


@writes(s.Definition)
def _(part: s.Definition) -> str:
    return f"{text(part.variable)} AS {text(part.value)}"


@writes(s.Register)
def _(part: s.Register) -> str:
    return f"{text(part.name)} = {text(part.start)} ({listed(part.updates)})"


@writes(s.Subset)
def _(part: s.Subset) -> str:
    return f"{text(part.name)} = ({listed(part.members)})"


@writes(s.Extent)
def _(part: s.Extent) -> str:
    return f"{part.extent.upper()} {text(part.call)}"


@writes(s.ShapeVariable)
def _(part: s.ShapeVariable) -> str:
    return written_name(part.name, _AS_VARIABLE)


@writes(s.ShapeChain)
def _(part: s.ShapeChain) -> str:
    return " ".join(_enclosed(item, s.ShapeChoice | s.ShapeChain) for item in part.items)


@writes(s.ShapeChoice)
def _(part: s.ShapeChoice) -> str:
    return " | ".join(_enclosed(item, s.ShapeChoice) for item in part.items)


@writes(s.ShapePermute)
def _(part: s.ShapePermute) -> str:
    return f"PERMUTE({listed(part.items)})"


@writes(s.ShapeAbsent)
def _(part: s.ShapeAbsent) -> str:
    return f"!{_enclosed(part.part, s.ShapeChoice | s.ShapeChain | s.ShapeRepeat)}"


@writes(s.ShapeRepeat)
def _(part: s.ShapeRepeat) -> str:
    bounds = (part.least, part.most)
    counted = (
        f"{{{part.least}}}" if part.least == part.most else f"{{{part.least},{'' if part.most is None else part.most}}}"
    )
    inner = _enclosed(part.part, s.ShapeChoice | s.ShapeChain | s.ShapeRepeat)
    return f"{inner}{_SIGNS.get(bounds, counted)}{'' if part.greedy else '?'}"


def _enclosed(part: s.Shape, kinds: object) -> str:
    return f"({text(part)})" if isinstance(part, kinds) else text(part)  # type: ignore[arg-type]
