"""Turn an intent into queries: fill in everything that it leaves open, in many ways.

All open options of the queries and all open traits of the streams form one space; `pairwise` chooses points of it. The
differences between the streams of one query, and the queries of `any` below its first two, are random. The same intent
and seed give the same queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from headrace.api.stream import Stream
from headrace.errors import IntentError
from headrace.testing.generators.traits import DIMENSIONS, Setting, Traits, anything
from headrace.testing.intents import samples
from headrace.testing.intents.catalogue import KINDS, OPERATORS, Kind
from headrace.testing.intents.pairwise import pairwise
from headrace.testing.intents.tree import STREAM, Intent

__all__ = ["Concrete", "concrete"]

#: The most sources that `any` may read, besides its inputs.
_MOST_SOURCES = 3
_POLICIES = ("clipping", "timestamping")


@dataclass(frozen=True)
class Concrete:
    """A query with nothing left open. An input is another query, or the number of a source.

    The outermost query has one setting for the stream of each source.
    """

    kind: str
    inputs: tuple[Concrete | int, ...]
    options: Mapping[str, str]
    settings: tuple[Setting, ...] = ()

    @property
    def sources(self) -> int:
        """The number of streams that it reads; some may be read several times."""
        below = [one.sources if isinstance(one, Concrete) else one + 1 for one in self.inputs]
        return max(below, default=0)

    def walk(self) -> Iterator[Concrete]:
        """All queries of the tree, in preorder."""
        yield self
        for one in self.inputs:
            if isinstance(one, Concrete):
                yield from one.walk()

    def build(self, streams: Sequence[Stream]) -> Stream:
        """The query over these streams, each with the columns `k STRING, i LONG, x DOUBLE`."""
        inputs = tuple(one.build(streams) if isinstance(one, Concrete) else streams[one] for one in self.inputs)
        return KINDS[self.kind].build(inputs, self.options)

    def python(self) -> str:
        """The query as a program over `s0`, `s1`, ...; its answer is `out`."""
        lines: list[str] = []
        _write(self, lines, "out")
        body = "\n".join(lines)
        used = [name for name in sorted(samples.__all__) if re.search(rf"\b{name}\b", body)]
        imports = [f"from {samples.__name__} import {', '.join(used)}"] if used else []
        return "\n".join(["import headrace as hr", *imports, "", *lines]) + "\n"

    def describe(self) -> str:
        """Query and streams in one line."""
        settings = [f"s{number}: {' '.join(setting.values())}" for number, setting in enumerate(self.settings)]
        return f"{self} over {'; '.join(settings)}" if settings else str(self)

    def __str__(self) -> str:
        inputs = [str(one) if isinstance(one, Concrete) else f"s{one}" for one in self.inputs]
        return f"{self.kind}({', '.join([*inputs, *(f'{name}={value}' for name, value in self.options.items())])})"

    def covers(self) -> dict[str, str]:
        """The covered values, by dimension: `operator`, `window`, `policy`, each option, and each trait of its streams.

        Where its queries or its streams have several values of a dimension, all of them are joined by ` + `.
        """
        found: dict[str, list[str]] = {}
        for one in self.walk():
            values = {"operator": one.kind, **{k: v for k, v in one.options.items() if k not in _POLICIES}}
            if _POLICIES[0] in one.options:
                values["policy"] = " ".join(one.options[name] for name in _POLICIES)
            for name, value in [*values.items()]:
                found.setdefault(name, []).append(value)
        for setting in self.settings:
            for name, value in setting.items():
                found.setdefault(name, []).append(value)
        return {name: " + ".join(dict.fromkeys(values)) for name, values in found.items()}


def _write(query: Concrete, lines: list[str], name: str = "") -> str:
    """Add the text lines of a query; return the name of its result."""
    names = tuple(_write(one, lines) if isinstance(one, Concrete) else f"s{one}" for one in query.inputs)
    name = name or f"q{len(lines)}"
    lines.append(f"{name} = {KINDS[query.kind].python(names, query.options)}")
    return name


def concrete(intent: Intent, seed: int) -> Iterator[Concrete]:
    """Queries of an intent, without end; the first ones cover all pairs of the open values."""
    return _IntentFiller(intent, seed).queries()


class _IntentFiller:
    """Fills in one intent."""

    def __init__(self, intent: Intent, seed: int) -> None:
        # An intent for a stream alone gets the plainest query.
        self._root = Intent.of("where", intent, predicate="always") if intent.kind == STREAM else intent
        self._seed = seed
        self._random = Random(f"{seed} filling")  # noqa: S311 - nothing secret
        self._nodes = [node for node in self._root.walk() if node.kind != STREAM]
        self._options: dict[tuple[str, bool], Iterator[dict[str, str]]] = {}
        for node in self._nodes:
            _check(node)
        self._rows = pairwise(self._dimensions(), seed, allowed=self._allowed)

    def queries(self) -> Iterator[Concrete]:
        for row in self._rows:
            traits: list[Traits] = []
            query = self._fill(self._root, self._by_node(row), anything, traits)
            assert isinstance(query, Concrete)
            settings = tuple(self._setting(row, number, one) for number, one in enumerate(traits))
            yield replace(query, settings=settings)

    # --- the space ---------------------------------------------------------------------------------------------------

    def _dimensions(self) -> dict[str, tuple[str, ...]]:
        """The open dimensions: the options of each query, by its number, and the traits of streams."""
        found = {
            f"{number} {name}": values
            for number, node in enumerate(self._nodes)
            for name, values in _open(node).items()
        }
        sources = list(_sources(self._root, anything))
        for name, values in DIMENSIONS.items():
            found[f"over {name}"] = tuple(value for value in values if any(value in one.open(name) for one in sources))
        return found

    def _by_node(self, row: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """The options of each query, in the order of their numbers."""
        for number in range(len(self._nodes)):
            yield _with_prefix(row, f"{number} ")

    def _allowed(self, row: Mapping[str, str]) -> bool:
        return all(KINDS[node.kind].allowed(_with_prefix(row, f"{number} ")) for number, node in enumerate(self._nodes))

    # --- streams -----------------------------------------------------------------------------------------------------

    def _setting(self, row: Mapping[str, str], number: int, traits: Traits) -> Setting:
        """The first stream has the traits of the row; others differ from it in about half of the dimensions."""
        setting = {}
        for name in DIMENSIONS:
            value, possible = row[f"over {name}"], traits.open(name)
            differs = number > 0 and self._random.random() < 0.5
            setting[name] = self._random.choice(possible) if differs or value not in possible else value
        return setting

    # --- queries -----------------------------------------------------------------------------------------------------

    def _fill(
        self, intent: Intent, rows: Iterator[dict[str, str]], over: Traits, traits: list[Traits]
    ) -> Concrete | int:
        over &= intent.over
        if intent.kind == STREAM:
            traits.append(over)
            return len(traits) - 1
        options = next(rows)
        # `_composed` fills in the omitted inputs of `any`.
        default = None if intent.kind == "any" else Intent(STREAM)
        nodes = [one or default for one in intent.inputs]
        inputs = [self._fill(one, rows, over, traits) for one in nodes if one is not None]
        if intent.kind == "any":
            return self._composed(options, inputs, over, traits)
        return Concrete(intent.kind, tuple(inputs), options)

    def _composed(
        self, options: Mapping[str, str], inputs: list[Concrete | int], over: Traits, traits: list[Traits]
    ) -> Concrete:
        """A chain of queries, each reading the one before; second inputs are sources or small queries."""
        kinds = [options["below"], options["operator"]]
        while len(kinds) < int(options["depth"]):
            kinds.insert(0, self._random.choice(list(OPERATORS)))
        own: list[int] = []
        # Only one of them may give an event for every pair: otherwise answers grow with every query.
        large = self._random.randrange(len(kinds))

        def source() -> int:
            if not own or (len(own) < _MOST_SOURCES and self._random.random() < 0.6):
                traits.append(over)
                own.append(len(traits) - 1)
                return own[-1]
            return self._random.choice(own)

        def other() -> Concrete | int:
            if self._random.random() < 0.7:
                return source()
            kind = self._random.choice([kind for kind in OPERATORS.values() if kind.arity == 1])
            return Concrete(kind.name, (source(),), self._next_options(kind, small=True))

        current = inputs[0] if inputs else source()
        for place, name in enumerate(kinds):
            kind = OPERATORS[name]
            second = [other() for _ in range(kind.arity - 1)]
            current = Concrete(name, (current, *second), self._next_options(kind, small=place != large))
        assert isinstance(current, Concrete)
        return current

    def _next_options(self, kind: Kind, *, small: bool) -> dict[str, str]:
        """Options of a query that `any` adds; the options of each kind cover its pairs as well."""
        small = small and bool(kind.small)
        if (kind.name, small) not in self._options:
            values = {**kind.dimensions, **kind.small} if small else kind.dimensions
            self._options[kind.name, small] = pairwise(
                values, f"{self._seed} {kind.name} {small}", allowed=kind.allowed
            )
        return next(self._options[kind.name, small])


def _open(node: Intent) -> dict[str, tuple[str, ...]]:
    return {name: node.open(name) for name in KINDS[node.kind].dimensions}


def _check(node: Intent) -> None:
    """Refuse options that cannot be combined."""
    try:
        pairwise(_open(node), 0, allowed=KINDS[node.kind].allowed)
    except IntentError:
        raise IntentError(
            f"these options of {node.kind} cannot be combined",
            given=", ".join(f"{name}={'|'.join(node.open(name))}" for name in node.options),
            allowed="options of a valid query",
            instead="leave one of them open",
        ) from None


def _with_prefix(row: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def _sources(intent: Intent, over: Traits) -> Iterator[Traits]:
    """The traits of each stream of an intent: its own, and those of all intents above it."""
    over &= intent.over
    for one in intent.inputs:
        yield from [over] if one is None else _sources(one, over)
    if not intent.inputs:
        yield over
    if intent.kind == "any":
        yield over
