"""The twin of patterns (rule 9.4), from the definition: all ways to map the tuples of a group to variables, by trial.

Ways are tried in the order of preference, one tuple after the other: depth first, with what is still wanted as the rest
of the shape. A way that reaches the end of the tuples while it wants more is *unfinished*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any

from headrace.expr import Expr
from headrace.operators.reference.functions import FUNCTIONS
from headrace.operators.reference.ordered import groups_of
from headrace.operators.reference.rows import Payload, Row, value_of
from headrace.patterns.references import START, Ref
from headrace.patterns.regex import Chain, Choice, Permute, Repeat, Shape, Symbol
from headrace.plan.pattern import COMPLETE, Match
from headrace.progress import Progress
from headrace.schema import Schema, Type
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["found_matches", "furthest_way", "match"]

#: The variables of the tuples from the first on; a match if `done`, unfinished if `open`, else only on the way.
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Way:
    """One way to map tuples to variables, from a first tuple on."""

    labels: Labels
    kind: str  # "match", "unfinished" or "begun"


def match(node: Match, rows: Sequence[Row], now: Progress) -> tuple[list[Row], Progress]:
    """The matches among all tuples, and the promise."""
    out, held = [], []
    for keys, tuples in groups_of(node, rows):  # type: ignore[arg-type]
        trial = _Trial(node, tuples)
        settled = [row for row in tuples if row[0] < now.cti]
        for number, (first, way) in enumerate(trial.matches(), 1):
            if not node.final or _is_final(node, settled, now.cti, first, way):
                out += _outputs(node, trial, keys, first, way, number)
        held += _holding(node, settled, now.cti)
    if now.cti in (INFINITY, NEG_INFINITY):
        return out, now
    return out, Progress(min([now.cti, *held]), now.high)


def found_matches(node: Match, keys: dict[str, Any], tuples: Sequence[Row]) -> Iterator[tuple[range, list[Row]]]:
    """The matches among the tuples of a group: their places, and their outputs, whether final or not."""
    trial = _Trial(node, tuples)
    for number, (first, way) in enumerate(trial.matches(), 1):
        yield range(first, first + len(way.labels)), _outputs(node, trial, keys, first, way, number)


def furthest_way(node: Match, tuples: Sequence[Row], tries: int = 10_000) -> tuple[int, Labels, bool]:
    """The longest way among the first tries: its first tuple, its variables, and whether it wants more tuples."""
    trial = _Trial(node, tuples)
    best: tuple[int, Labels, bool] = (0, (), False)
    for first in range(len(tuples)):
        for way in islice(trial.ways(first), max(1, tries // len(tuples))):
            if (len(way.labels), way.kind == "unfinished") > (len(best[1]), best[2]):
                best = (first, way.labels, way.kind == "unfinished")
    return best


#: How aggregates are computed of the values of some tuples.
_Aggregates = Callable[[Ref, list[Any]], Any]


def _exactly(ref: Ref, values: list[Any]) -> Any:
    return FUNCTIONS[ref.function](list(enumerate(values)), *ref.parameters)


def _in_order(ref: Ref, values: list[Any]) -> Any:
    """As in conditions: floats are added one by one, and rounded each time."""
    known = [value for value in values if value is not None]
    if not known or (ref.function, ref.type) not in (("sum", Type.DOUBLE), ("avg", Type.DOUBLE)):
        return _exactly(ref, values)
    total = 0.0
    for value in known:
        total += float(value)
    return total if ref.function == "sum" else total / len(known)


class _Trial:
    """The tuples of a group in their order, and the ways to match them."""

    def __init__(self, node: Match, tuples: Sequence[Row], until: int | None = None) -> None:
        self.node, self.tuples = node, tuples
        #: Those that may be mapped; what comes behind them is only looked at.
        self.until = len(tuples) if until is None else until
        self.best: dict[int, Way | None] = {}

    # --- ways ---------------------------------------------------------------------------------------------------------

    def ways(self, first: int) -> Iterator[Way]:
        """All ways from a tuple on, the preferred ones first; with possible duplicates."""
        shape = self.node.pattern.shape
        assert shape is not None
        return self._ways(shape, first, (), self._end(first))

    def _end(self, first: int) -> Callable[[Labels], Iterator[Way]]:
        def end(labels: Labels) -> Iterator[Way]:
            guard = self.node.conditions[1]
            if guard is None or self.value(guard, first, labels) is True:
                yield Way(labels, "match")

        return end

    def _ways(self, shape: Shape, first: int, labels: Labels, rest: Callable[[Labels], Iterator[Way]]) -> Iterator[Way]:
        """All ways to continue with a shape, and then with the rest."""
        if isinstance(shape, Symbol):
            yield from self._mapped(shape.name, first, labels, rest)
        elif isinstance(shape, Chain):
            head, *tail = shape.items
            more = Chain(tuple(tail))
            yield from self._ways(
                head, first, labels, (lambda so_far: self._ways(more, first, so_far, rest)) if tail else rest
            )
        elif isinstance(shape, Choice):
            for item in shape.items:
                yield from self._ways(item, first, labels, rest)
        elif isinstance(shape, Permute):
            for order in permutations(shape.items):
                yield from self._ways(Chain(order), first, labels, rest)
        else:
            assert isinstance(shape, Repeat)
            yield from self._repeated(shape, first, labels, rest, 0)

    def _repeated(
        self, shape: Repeat, first: int, labels: Labels, rest: Callable[[Labels], Iterator[Way]], times: int
    ) -> Iterator[Way]:
        def again(so_far: Labels) -> Iterator[Way]:
            if len(so_far) > len(labels) or times < shape.least:  # an empty repetition does not count
                yield from self._repeated(shape, first, so_far, rest, times + 1)

        more = shape.most is None or times < shape.most
        enough = times >= shape.least
        if more and (shape.greedy or not enough):
            yield from self._ways(shape.part, first, labels, again)
        if enough:
            yield from rest(labels)
        if more and enough and not shape.greedy:
            yield from self._ways(shape.part, first, labels, again)

    def _mapped(self, name: str, first: int, labels: Labels, rest: Callable[[Labels], Iterator[Way]]) -> Iterator[Way]:
        """The next tuple mapped to a variable, and then the rest."""
        place = first + len(labels)
        if place == self.until:
            yield Way(labels, "unfinished")
            return
        span = self.node.pattern.span
        if span is not None and self.tuples[place][0] - self.tuples[first][0] > span:
            return
        mapped = (*labels, name)
        condition = self.node.conditions[0].get(name)
        if condition is None or self.value(condition, first, mapped) is True:
            yield Way(mapped, "begun")
            yield from rest(mapped)

    # --- values -------------------------------------------------------------------------------------------------------

    def value(self, expr: Expr, first: int, labels: Labels) -> Any:
        """An expression over a run, at its last tuple."""
        return self._evaluate(expr, self._tuple(first + len(labels) - 1), first, labels, _in_order)

    def measured(self, expr: Expr, first: int, labels: Labels, whole: Labels, number: int) -> Any:
        """The same for a measure, which has exact sums and may refer to the whole match."""
        payload = self._tuple(first + len(labels) - 1)
        refs = self.node.references.refs
        numbers = {name: number for name in refs if refs[name].function == "match_number"}
        return self._evaluate(expr, payload | numbers, first, labels, _exactly, whole)

    def _evaluate(
        self, expr: Expr, payload: Payload, first: int, labels: Labels, by: _Aggregates, whole: Labels = ()
    ) -> Any:
        references = self.node.references
        for name in (expr.columns() & references.refs.keys()) - payload.keys():
            ref = references.refs[name]
            payload[name] = self._reference(ref, first, whole if ref.final else labels, by)
        schema = Schema(tuple(field for field in references.schema if field.name in payload))
        return value_of(expr, {name: payload[name] for name in schema.names}, schema)

    def _tuple(self, at: int) -> dict[str, Any]:
        """The columns of a tuple and of the tuples before it."""
        found = self._start(at)
        for name, (expr, back) in self.node.references.prevs.items():
            there = 0 <= at - back < len(self.tuples)
            found[name] = value_of(expr, self._start(at - back), self.node.references.below) if there else None
        return found

    def _start(self, at: int) -> Payload:
        return self.tuples[at][2] | {START: self.tuples[at][0]}

    def _reference(self, ref: Ref, first: int, labels: Labels, by: _Aggregates) -> Any:
        if ref.function == "classifier":
            return labels[-1]
        if ref.function == "register":
            return self._register(str(ref.variable), first, labels)
        node = self.node
        mine = {None: node.pattern.variables} | {v: (v,) for v in node.pattern.variables} | dict(node.pattern.subsets)
        places = [first + i for i, name in enumerate(labels) if name in mine[ref.variable]]
        if ref.argument is None:
            return len(places)
        values = [value_of(ref.argument, self._tuple(at), self.node.references.of_tuples) for at in places]
        if ref.function in ("first", "last"):
            inward = values if ref.function == "first" else values[::-1]
            return inward[ref.offset] if len(values) > ref.offset else None
        return by(ref, values)

    def _register(self, name: str, first: int, labels: Labels) -> Any:
        """The value of a register; an update sees the value before its tuple."""
        register = next(r for r in self.node.pattern.registers if r.name == name)
        if not labels:
            return register.start.value
        update = self.node.updates.get((name, labels[-1]))
        if update is None:
            return self._register(name, first, labels[:-1])
        return self._evaluate(update, self._tuple(first + len(labels) - 1), first, labels[:-1], _in_order)

    # --- matches ------------------------------------------------------------------------------------------------------

    def preferred(self, first: int) -> Way | None:
        """The match that counts, or None."""
        if first not in self.best:
            self.best[first] = next((way for way in self.ways(first) if way.kind == "match"), None)
        return self.best[first]

    def matches(self) -> Iterator[tuple[int, Way]]:
        """The matches by their first tuples."""
        pattern = self.node.pattern
        if pattern.matches == "all":
            for first in range(len(self.tuples)):
                found = [way for way in self.ways(first) if way.kind != "unfinished"]
                done = {way.labels for way in found if way.kind == "match"}
                every = dict.fromkeys(way.labels for way in found) if pattern.partials else dict.fromkeys(done)
                yield from ((first, Way(labels, "match" if labels in done else "begun")) for labels in every)
            return
        first = 0
        while first < len(self.tuples):
            way = self.preferred(first)
            if way is not None:
                yield first, way
            first = self.after(first, way)

    def after(self, first: int, way: Way | None) -> int:
        """The tuple at which the search continues."""
        skip = self.node.pattern.policy
        if way is None or skip.to == "next":
            return first + 1
        if skip.to == "past":
            return first + len(way.labels)
        places = [first + i for i, name in enumerate(way.labels) if name == skip.variable]
        return max([first + 1, *(places[:1] if skip.to == "first" else places[-1:])])

    def is_open(self, first: int, upcoming: int) -> bool:
        """Whether a way preferred to the best match needs more tuples, from a time on."""
        span = self.node.pattern.span
        if span is not None and self.tuples[first][0] + span < upcoming:
            return False
        for way in self.ways(first):
            if way.kind == "unfinished":
                return True
            if way.kind == "match" and self.node.pattern.matches == "one":
                return False
        return False


def _outputs(node: Match, trial: _Trial, keys: dict[str, Any], first: int, way: Way, number: int) -> list[Row]:
    lengths = range(1, len(way.labels) + 1) if node.rows == "all" else [len(way.labels)]
    out = []
    for length in lengths:
        le, _, payload = trial.tuples[first + length - 1]
        labels = way.labels[:length]
        measured = {name: trial.measured(expr, first, labels, way.labels, number) for name, expr in node.values.items()}
        whole = keys | (payload if node.rows == "all" else {}) | measured | {COMPLETE: way.kind == "match"}
        out.append((le, le + 1, {name: whole[name] for name in node.schema.names}))
    return out


def _is_final(node: Match, settled: list[Row], cti: int, first: int, way: Way) -> bool:
    """Whether no later tuple can change a match of a group."""
    if cti == INFINITY:
        return True
    trial, upcoming, opened = _at(node, settled, cti)
    if first + len(way.labels) > trial.until:
        return False
    if node.pattern.matches == "all":
        return True
    if node.pattern.policy.to == "next" and not node.numbered:  # other matches do not matter
        return not trial.is_open(first, upcoming)
    return first < opened


def _at(node: Match, settled: list[Row], cti: int) -> tuple[_Trial, int, int]:
    """The trial of settled tuples, the earliest time of the next, and the first open tuple."""
    until = max(0, len(settled) - node.references.ahead)
    trial, first = _Trial(node, settled, until), 0
    upcoming = min([cti, *(row[0] for row in settled[until : until + 1])])  # what may be mapped next is there or later
    while first < until and not trial.is_open(first, upcoming):
        first = trial.after(first, trial.preferred(first) if node.pattern.matches == "one" else None)
    return trial, upcoming, first


def _holding(node: Match, settled: list[Row], cti: int) -> list[int]:
    """The times at which the promise waits because of a group."""
    if cti == INFINITY:
        return []
    (trial, upcoming, first), pattern = _at(node, settled, cti), node.pattern
    until = trial.until
    unsettled = [row[0] for row in settled[until : until + 1]]
    later = range(first, until)
    if node.rows == "all":
        return [settled[i][0] for i in later[:1]] + unsettled
    if pattern.matches == "all":
        return unsettled
    if pattern.policy.to == "next" and not node.numbered:
        later = [i for i in later if trial.is_open(i, upcoming)]  # type: ignore[assignment]
    found = [(i, trial.preferred(i)) for i in later]
    return unsettled + [settled[i + len(way.labels) - 1][0] for i, way in found if way is not None]
