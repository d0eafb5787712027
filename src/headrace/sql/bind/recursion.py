"""WITH: named queries, and loops of queries that name themselves (rules 9.1 and 9.3).

A query of WITH RECURSIVE that is made from itself is a UNION: the SELECTs that do not name it are the seed, the others
the body. Queries that are made from each other are one loop; those of them that have no seed of their own are no
relations of the loop, but views over it. UNION is a loop of distinct rows, UNION ALL one of all derivations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.api.stream import Stream
from headrace.expr import Expr, col
from headrace.expr.signatures import common
from headrace.plan.mutual import mutual_recursion
from headrace.plan.nodes import Node, Select
from headrace.plan.recurse import LoopInput, recursion
from headrace.schema import Field, Schema
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import StreamEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.relations import plain
from headrace.sql.bind.windows import Tick
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.queries import Queries

__all__ = ["with_named"]


def with_named(queries: Queries, part: s.Query) -> Queries:
    """The binder for a query, with the names of its WITH."""
    context = queries.context
    seen: set[str] = set()
    for one in part.named:
        if one.name.text.lower() in seen:
            raise context.error(one.name, f"two queries of WITH are named {one.name.text!r}", given=one.name.text)
        seen.add(one.name.text.lower())
        if one.query.into is not None:
            raise context.error(one.query.into, "INTO stands behind the whole query, not inside WITH")
    groups = _groups(part.named) if part.recursive else [(one,) for one in part.named]
    for group in groups:
        if len(group) > 1 or (part.recursive and _key(group[0]) in _mentioned(group[0].query)):
            queries = _Loop.of(queries, group).done()
        else:
            queries = _plain(queries, group[0], recursive=part.recursive)
    return queries


def _plain(queries: Queries, part: s.NamedQuery, *, recursive: bool) -> Queries:
    """A query that is not recursive."""
    if part.distinct or part.progress is not None or part.max_rounds is not None:
        raise queries.context.error(
            part.name,
            f"{part.name.text} is not a loop: it cannot have DISTINCT, PROGRESS or MAX ROUNDS",
            given=part.name.text,
            instead=f"WITH RECURSIVE {part.name.text} AS (SELECT … UNION SELECT … FROM {part.name.text} …)",
        )
    known = {name.lower() for name in (*queries.catalog.streams, *queries.catalog.tables)}
    if not recursive and _key(part) in _mentioned(part.query) - known:
        raise queries.context.error(
            part.name,
            f"{part.name.text} reads itself, and this WITH is not RECURSIVE",
            given=part.name.text,
            instead=f"WITH RECURSIVE {part.name.text} …",
        )
    return _knowing(queries, {part.name.text: _renamed(queries, part)})


def _knowing(queries: Queries, streams: Mapping[str, Stream]) -> Queries:
    """The same with these streams under these names, in place of earlier ones."""
    hidden = {name.lower() for name in streams}
    catalog = queries.catalog
    before = {name: entry for name, entry in catalog.streams.items() if name.lower() not in hidden}
    tables = {name: entry for name, entry in catalog.tables.items() if name.lower() not in hidden}
    entries = {name: StreamEntry(name, stream.schema, stream.node) for name, stream in streams.items()}
    return replace(queries, catalog=replace(catalog, streams=before | entries, tables=tables))


# --- dependencies ----------------------------------------------------------------------------------------------------


def _key(part: s.NamedQuery) -> str:
    return part.name.text.lower()


def _mentioned(part: s.Part, hidden: frozenset[str] = frozenset()) -> set[str]:
    """The streams in FROM anywhere in a part, in lower case, without those that a WITH inside it names."""
    if isinstance(part, s.Query):
        hidden = hidden | {_key(one) for one in part.named}
    own = {part.stream.text.lower()} if isinstance(part, s.FromItem) and isinstance(part.stream, s.Name) else set()
    return (own - hidden).union(*(_mentioned(child, hidden) for child in part.parts()))


def _groups(named: Sequence[s.NamedQuery]) -> list[tuple[s.NamedQuery, ...]]:
    """Groups of queries that read each other; a group comes after those that it reads."""
    names = {_key(one): one for one in named}
    made_from = {key: _mentioned(one.query) & set(names) for key, one in names.items()}
    for middle in names:
        for found in made_from.values():
            found |= made_from[middle] if middle in found else set()
    groups: dict[str, tuple[s.NamedQuery, ...]] = {}
    for key in sorted(names, key=lambda key: len(made_from[key] | {key})):
        together = [other for other in names if other == key or (other in made_from[key] and key in made_from[other])]
        groups.setdefault(together[0], tuple(names[other] for other in together))
    return list(groups.values())


# --- loops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Relation:
    """A query of a loop that has a seed: its initial SELECTs, and its recursive ones."""

    part: s.NamedQuery
    seeds: tuple[s.Select, ...]
    steps: tuple[s.Select, ...]
    distinct: bool


@dataclass(frozen=True)
class _Loop:
    """A loop: queries that read each other."""

    queries: Queries
    relations: tuple[_Relation, ...]
    views: tuple[s.NamedQuery, ...]

    @classmethod
    def of(cls, queries: Queries, group: Sequence[s.NamedQuery]) -> _Loop:
        names = {_key(one) for one in group}
        relations: list[_Relation] = []
        views: list[s.NamedQuery] = []
        for one in group:
            _check_whole(queries.context, one)
            selects, kinds = _united(queries.context, one)
            seeds = tuple(select for select in selects if not _mentioned(select) & names)
            steps = tuple(select for select in selects if select not in seeds)
            if seeds:
                relations.append(_Relation(one, seeds, steps, one.distinct or _distinct(queries.context, one, kinds)))
            else:
                views.append(one)
        loop = cls(queries, tuple(relations), tuple(views))
        loop.check()
        return loop

    @property
    def context(self) -> Context:
        return self.queries.context

    def check(self) -> None:
        """Refuse loops without a seed, and contradictory options of one loop."""
        left = {_key(one): one for one in self.views}
        while left:
            ready = [key for key, one in left.items() if not _mentioned(one.query) & set(left)]
            if not ready:
                one = next(iter(left.values()))
                raise self.context.error(
                    one.name,
                    f"the loop of {one.name.text} has no seed",
                    given=one.name.text,
                    allowed=f"a SELECT that does not name {one.name.text}, UNION, one that does",
                    instead=f"SELECT … FROM stream UNION {to_sql(one.query.body).partition(chr(10))[0]} …",
                )
            left = {key: one for key, one in left.items() if key not in ready}
        for what in ("distinct", "progress", "max_rounds"):
            self._agreed(what)

    def _agreed(self, what: str) -> Any:
        """The value of an option of the loop, which its queries must agree on."""
        if what == "distinct":
            options = [(one.part, one.distinct) for one in self.relations]
        else:
            every = (*(one.part for one in self.relations), *self.views)
            options = [(part, getattr(part, what)) for part in every if getattr(part, what) is not None]
        other = next((part for part, value in options if value != options[0][1]), None)
        if other is not None:
            raise self.context.error(
                other.name,
                f"{other.name.text} and {options[0][0].name.text} are one loop, and have different options",
                given=f"{what.replace('_', ' ')}: {', '.join(str(value) for _, value in options)}",
                instead="the same for both: UNION or UNION ALL, PROGRESS, MAX ROUNDS",
            )
        return options[0][1] if options else None

    def done(self) -> Queries:
        """The binder for queries after the loop."""
        seeds = {one.part.name.text: self._seed(one) for one in self.relations}
        seeds = self._widened(seeds)
        schemas = {name: seed.schema for name, seed in seeds.items()}
        options: dict[str, Any] = {
            "distinct": self._agreed("distinct"),
            "max_rounds": self._agreed("max_rounds"),
            "strategy": self._agreed("progress") or "hybrid",
        }

        def body(found: Mapping[str, Node]) -> dict[str, Node]:
            steps = self._steps({name: Stream(node) for name, node in found.items()})
            return {name: _as(step, schemas[name]).node for name, step in steps.items()}

        nodes = {name: seed.node for name, seed in seeds.items()}
        results: dict[str, Node] = {}
        first = self.relations[0]
        alone = len(self.relations) == len(first.steps) == 1 and not self.views
        with self.context.at(first.steps[0] if alone else first.part):
            if len(nodes) > 1:
                results |= mutual_recursion(nodes, body, **options)
            else:
                name, node = next(iter(nodes.items()))
                results[name] = recursion(node, lambda found: body({name: found})[name], **options)
        return self._beside({name: Stream(node) for name, node in results.items()})

    def _seed(self, relation: _Relation) -> Stream:
        renames = bool(relation.part.columns)
        return _as_named(
            self.context, relation.part, self._bound(replace(self.queries, renames=renames), relation.seeds)
        )

    def _steps(self, found: Mapping[str, Stream]) -> dict[str, Stream]:
        """The result of the queries over the relations of a round."""
        queries = self._beside(found)
        return {
            one.part.name.text: self._bound(replace(queries, renames=bool(one.part.columns)), one.steps)
            for one in self.relations
        }

    def _beside(self, found: Mapping[str, Stream]) -> Queries:
        """The binder for queries over these relations, and the views over them."""
        queries = _knowing(self.queries, found)
        left = list(self.views)
        while left:
            names = {_key(one) for one in left}
            ready = next(one for one in left if not _mentioned(one.query) & names)
            queries = _knowing(queries, {ready.name.text: _renamed(queries, ready)})
            left.remove(ready)
        return queries

    def _bound(self, queries: Queries, selects: Sequence[s.Select]) -> Stream:
        whole: s.Body = selects[0]
        for select in selects[1:]:
            whole = s.SetOperation("union", whole, select, all=True, at=(whole.at[0], select.at[1]))
        return plain(queries.body(whole, Tick(self.queries.catalog.settings["tick"])))

    def _widened(self, seeds: dict[str, Stream]) -> dict[str, Stream]:
        """The seeds, with types wide enough for the loop's results: counting from an INT may give LONGs."""
        dates = any(seed.node.dates for seed in seeds.values())
        while True:
            found = {name: Stream(LoopInput.fresh(seed.schema, dates=dates)) for name, seed in seeds.items()}
            steps = self._steps(found)
            if not dates and any(step.node.dates for step in steps.values()):
                dates = True  # of streams from outside the loop
                continue
            wider = {name: self._wider(name, seed.schema, steps[name].schema) for name, seed in seeds.items()}
            if all(seed.schema == wider[name] for name, seed in seeds.items()):
                return seeds
            seeds = {name: _as(seed, wider[name]) for name, seed in seeds.items()}

    def _wider(self, name: str, own_schema: Schema, recursive_schema: Schema) -> Schema:
        relation = next(one for one in self.relations if one.part.name.text == name)
        with self.context.at(relation.steps[0]):
            if len(own_schema) != len(recursive_schema):
                raise self.context.error(
                    relation.steps[0],
                    f"the recursive part of {name} must have as many columns as its seed",
                    given=f"{len(own_schema)} and {len(recursive_schema)}: {own_schema} | {recursive_schema}",
                )
            pairs = zip(own_schema, recursive_schema, strict=True)
            return Schema(
                tuple(Field(a.name, common(f"{a.name} and {b.name}", [a.type, b.type]) or a.type) for a, b in pairs)
            )


def _check_whole(context: Context, part: s.NamedQuery) -> None:
    query = part.query
    if query.emit is not None or query.tick is not None or query.named:
        raise context.error(
            query.named[0] if query.named else query,
            f"EMIT, TICK and WITH must be outside of {part.name.text}, which is recursive",
            given=part.name.text,
            allowed="SELECT … UNION [ALL] SELECT …",
            instead="WITH in front of all, EMIT and TICK behind the whole query",
        )


def _united(context: Context, part: s.NamedQuery) -> tuple[list[s.Select], set[bool]]:
    """The SELECTs of a UNION, and whether it keeps duplicates."""
    selects: list[s.Select] = []
    kinds: set[bool] = set()
    waiting = [part.query.body]
    while waiting:
        one = waiting.pop()
        if isinstance(one, s.Select) and one.limit is None and not one.order:
            selects.insert(0, one)
        elif isinstance(one, s.SetOperation) and one.kind == "union":
            waiting += [one.left, one.right]
            kinds.add(one.all)
        else:
            raise context.error(
                one,
                f"{part.name.text}, which is recursive, is a UNION of SELECTs",
                given=to_sql(one),
                allowed="SELECT … UNION [ALL] SELECT …",
                instead="a sub-select in FROM",
            )
    return selects, kinds


def _distinct(context: Context, part: s.NamedQuery, kinds: Iterable[bool]) -> bool:
    found = set(kinds)
    if len(found) > 1:
        raise context.error(
            part.query,
            "a loop has either distinct rows or all rows",
            given="UNION and UNION ALL",
            allowed="one of them throughout",
        )
    return found != {True}


def _renamed(queries: Queries, part: s.NamedQuery) -> Stream:
    """The stream of a query, with the columns that WITH names."""
    made = replace(queries, renames=bool(part.columns)).query(part.query)
    return _as_named(queries.context, part, made)


def _as_named(context: Context, part: s.NamedQuery, stream: Stream) -> Stream:
    if not part.columns:
        return stream
    names = [name.text for name in part.columns]
    if len(names) != len(stream.schema):
        raise context.error(
            part.columns[0],
            f"{part.name.text} has {len(stream.schema)} columns",
            given=", ".join(names),
            allowed=str(stream.schema),
        )
    twice = next((name for name in part.columns if names.count(name.text) > 1), None)
    if twice is not None:
        raise context.error(twice, f"two columns have the name {twice.text!r}", given=", ".join(names))
    fields = zip(names, stream.schema, strict=True)
    return _as(stream, Schema(tuple(Field(name, field.type) for name, field in fields)))


def _as(stream: Stream, schema: Schema) -> Stream:
    """The stream with other names and types for its columns, by position."""
    fields = stream.schema.fields
    if [(f.name, f.type) for f in fields] == [(f.name, f.type) for f in schema]:
        return stream
    # A SELECT renames its own outputs, which saves an operator in every round of a loop.
    node, below = stream.node, stream.node
    values: dict[str, Expr] = {field.name: col(field.name) for field in fields}
    if isinstance(node, Select):
        below, values = node.input, dict(node.outputs)
    outputs = tuple(
        (wanted.name, values[field.name] if field.type is wanted.type else values[field.name].cast(wanted.type))
        for wanted, field in zip(schema, fields, strict=True)
    )
    return Stream(Select(below, outputs))
