"""Several relations that are made from each other: one loop over all of them (rule 9.1).

The relations go round as one stream that has the columns of all, those that a relation lacks null, and a column that
says whose row it is. A relation inside the loop, and the answer, is a part of that stream.
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
    """The relations of these names, each the limit of its seed and what the body makes of all of them."""
    if not seeds:
        raise PlanError(
            "a loop needs a seed", given="none", allowed="streams by name", instead="recurse({'a': a}, ...)"
        )
    wide = _Wide.of({name: seed.schema for name, seed in seeds.items()})

    def once(found: Node) -> Node:
        made = body({name: wide.part(name, found) for name in seeds})
        if set(made) != set(seeds):
            raise PlanError(
                "the body of a loop gives as many relations as there are seeds, by the same names",
                given=", ".join(made) or "none",
                allowed=", ".join(seeds),
                instead="recurse({'a': a, 'b': b}, lambda a, b: {'a': ..., 'b': ...})",
            )
        return wide.united(made)

    whole = recursion(wide.united(seeds), once, distinct=distinct, max_rounds=max_rounds, strategy=strategy)
    return {name: wide.part(name, whole) for name in seeds}


@dataclass(frozen=True)
class _Wide:
    """How rows of several relations are told as rows of one."""

    #: Of each relation: its columns, and what they are called among those of all.
    columns: Mapping[str, Mapping[str, str]]
    types: Mapping[str, Type]
    tag: str

    @classmethod
    def of(cls, schemas: Mapping[str, Schema]) -> _Wide:
        """Columns of equal names and types are one."""
        columns: dict[str, dict[str, str]] = {}
        types: dict[str, Type] = {}
        for relation, schema in schemas.items():
            columns[relation] = {}
            for field in schema:
                names = (field.name if i == 1 else f"{field.name}_{i}" for i in count(1))
                # A relation's own columns stay apart, whatever they are called among those of all.
                mine = columns[relation].values()
                found = next(n for n in names if types.get(n, field.type) is field.type and n not in mine)
                columns[relation][field.name] = found
                types[found] = field.type
        tag = next(name for i in count(1) if (name := "relation" if i == 1 else f"relation_{i}") not in types)
        return cls(columns, types, tag)

    def part(self, relation: str, whole: Node) -> Node:
        """The rows of one relation."""
        outputs = tuple((name, col(wide)) for name, wide in self.columns[relation].items())
        return Select(Where(whole, col(self.tag) == relation), outputs)

    def united(self, parts: Mapping[str, Node]) -> Node:
        """The rows of all."""
        nodes = tuple(self._widened(relation, parts[relation]) for relation in self.columns)
        return Union(nodes) if len(nodes) > 1 else nodes[0]

    def _widened(self, relation: str, part: Node) -> Node:
        mine = {wide: name for name, wide in self.columns[relation].items()}
        self._check(relation, part.schema)
        outputs: list[tuple[str, Expr]] = [(self.tag, lit(relation))]
        for wide, kind in self.types.items():
            outputs.append((wide, col(mine[wide]) if wide in mine else lit(None).cast(kind)))
        return Select(part, tuple(outputs))

    def _check(self, relation: str, schema: Schema) -> None:
        wanted = {name: self.types[wide] for name, wide in self.columns[relation].items()}
        if {field.name: field.type for field in schema} != wanted:
            raise PlanError(
                f"the body of a loop gives what it is given: for {relation!r}, columns equal to its seed's",
                given=str(schema),
                allowed=", ".join(f"{name} {kind.value}" for name, kind in wanted.items()),
                instead=f"select({', '.join(map(repr, wanted))}) at its end",
            )
