"""Loops as SQL: the statements of the body, repeated over the entire history until it stays the same.

A database's own recursion would not do: it can neither join a relation with itself nor retract, and it does not know
lifetimes. A loop is one statement with others inside (`HistoryStatement.again`), which `run_statement` repeats.
"""

# ruff: noqa: S608 - SQL is what is made here, and every name in it is the plan's own, quoted

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.errors import Diverged
from headrace.history.script import HistoryStatement
from headrace.history.translation import Translation
from headrace.plan.nodes import Coalesce, LoopInput, Node, Recurse, Union, walk

__all__ = ["Database", "recurse", "run_statement"]


def recurse(t: Translation, node: Recurse, translate: Callable[[Translation, Iterable[Node]], None]) -> None:
    """Start empty; then repeat: the seed and the body's result over the current rows, until they stay the same."""
    nothing = ", ".join(
        f"CAST(NULL AS {t.dialect.type(kind)}) AS {name}"
        for kind, name in zip([f.type for f in node.schema.arrow], t.columns(t.of(node)), strict=True)
    )
    t.give(node, f"SELECT CAST(0 AS BIGINT) AS le, CAST(0 AS BIGINT) AS re, {nothing} WHERE 1 = 0")
    start = t.script.statements.pop()
    before, relations = t.script.statements, dict(t.relations)
    t.script.statements = []
    for port, child in zip(node.ports, (node, *node.outside), strict=True):
        t.relations[port.fingerprint] = t.relations[child.fingerprint]
        t.highs[port.fingerprint] = t.highs[child.fingerprint]
    translate(t, (part for part in walk(node.body) if not isinstance(part, LoopInput)))
    whole = Union((node.seed, node.body))
    translate(t, (whole, Coalesce(whole)) if node.distinct else (whole,))
    again = tuple(t.script.statements)
    # Relations inside a loop are private: another loop may have equal parts.
    t.script.statements, t.relations = before, relations
    t.script.statements.append(HistoryStatement(start.relation, start.query, start.says, again, node.bound))


class Database(Protocol):
    """The database operations that a loop needs."""

    def create(self, name: str, query: str, *, keep: bool = False) -> None:
        """Define a name for a query, replacing an earlier one; `keep` computes it now."""

    def finds(self, query: str) -> bool:
        """Whether a query returns a row."""


def run_statement(statement: HistoryStatement, database: Database) -> None:
    """Run a statement; repeat a loop until it stays the same."""
    name = statement.relation.name
    database.create(name, statement.query)
    if not statement.again:
        return
    given, after = statement.again[-1].relation.name, f"{name}_next"
    for _ in range(statement.limit + 1):
        for inner in statement.again:
            run_statement(inner, database)
        database.create(after, f"SELECT * FROM {given}", keep=True)
        changed = database.finds(f"{_more(after, name)} UNION ALL {_more(name, after)}")
        database.create(name, f"SELECT * FROM {after}")
        if not changed:
            return
    raise Diverged(
        f"the history of a loop has not come to rest after {statement.limit} rounds",
        given=statement.says,
        instead="distinct=True, a where(...) in the body that ends it, or a larger max_rounds",
    )


def _more(one: str, other: str) -> str:
    return f"SELECT * FROM (SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other}) more_{one}"
