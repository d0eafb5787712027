"""Mutual recursion: one loop over several relations (rule 9.1).

One stream holds the rows of all relations: it has the columns of all, null where a relation lacks them, and a column
that names the row's relation. Each relation, inside the loop and in the result, is a part of that stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from headrace.errors import PlanError
from headrace.expr import Expr, col, lit
from headrace.plan.base import Node
from headrace.plan.recurse import LoopProgress, recursion
from headrace.plan.span import Select, Union, Where
from headrace.schema import Schema, Type

__all__ = ["mutual_recursion"]


def mutual_recursion(
    seeds: Mapping[str, Node],
    body: Callable[[dict[str, Node]], Mapping[str, Node]],
    *,
    distinct: bool = True,
    max_rounds: int | None = None,
    strategy: LoopProgress = "hybrid",
) -> dict[str, Node]:
    """The relations by name, each the limit of its seed and the body's result for all of them."""
    if not seeds:
        raise PlanError(
            "a loop needs a seed", given="none", allowed="streams by name", instead="recurse({'a': a}, ...)"
        )
    wide = _Wide.of({name: seed.schema for name, seed in seeds.items()})

    def once(found: Node) -> Node:
        results = body({name: wide.part(name, found) for name in seeds})
        if set(results) != set(seeds):
            raise PlanError(
                "the body of a loop gives as many relations as there are seeds, by the same names",
                given=", ".join(results) or "none",
                allowed=", ".join(seeds),
                instead="recurse({'a': a, 'b': b}, lambda a, b: {'a': ..., 'b': ...})",
            )
        return wide.united(results)

    whole = recursion(wide.united(seeds), once, distinct=distinct, max_rounds=max_rounds, strategy=strategy)
    return {name: wide.part(name, whole) for name in seeds}


@dataclass(frozen=True)
class _Wide:
    """The columns of several relations as columns of one."""

    #: For each relation, its columns and their names in the common stream.
    columns: Mapping[str, Mapping[str, str]]
    types: Mapping[str, Type]
    tag: str

    @classmethod
    def of(cls, schemas: Mapping[str, Schema]) -> _Wide:
        """The common columns; columns of equal names and types are shared."""
        columns: dict[str, dict[str, str]] = {}
        types: dict[str, Type] = {}
        for relation, schema in schemas.items():
            columns[relation] = {}
            for field in schema:
                names = (field.name if i == 1 else f"{field.name}_{i}" for i in count(1))
                # Two columns of one relation never share a common column.
                used = columns[relation].values()
                common = next(n for n in names if types.get(n, field.type) is field.type and n not in used)
                columns[relation][field.name] = common
                types[common] = field.type
        tag = next(name for i in count(1) if (name := "relation" if i == 1 else f"relation_{i}") not in types)
        return cls(columns, types, tag)

    def part(self, relation: str, all_rows: Node) -> Node:
        """The rows of one relation."""
        outputs = tuple((name, col(wide)) for name, wide in self.columns[relation].items())
        return Select(Where(all_rows, col(self.tag) == relation), outputs)

    def united(self, parts: Mapping[str, Node]) -> Node:
        """The rows of all."""
        nodes = tuple(self._widened(relation, parts[relation]) for relation in self.columns)
        return Union(nodes) if len(nodes) > 1 else nodes[0]

    def _widened(self, relation: str, part: Node) -> Node:
        own = {wide: name for name, wide in self.columns[relation].items()}
        self._check(relation, part.schema)
        outputs: list[tuple[str, Expr]] = [(self.tag, lit(relation))]
        for wide, kind in self.types.items():
            outputs.append((wide, col(own[wide]) if wide in own else lit(None).cast(kind)))
        return Select(part, tuple(outputs))

    def _check(self, relation: str, schema: Schema) -> None:
        wanted = {name: self.types[wide] for name, wide in self.columns[relation].items()}
        if {field.name: field.type for field in schema} != wanted:
            raise PlanError(
                f"the body of a loop returns, for {relation!r}, the columns of its seed",
                given=str(schema),
                allowed=", ".join(f"{name} {kind.value}" for name, kind in wanted.items()),
                instead=f"select({', '.join(map(repr, wanted))}) at its end",
            )
