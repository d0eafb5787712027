"""From a pattern and the tuples of a batch to the numbers that the machine runs on, and its matches as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Bools, Int64s
from headrace.errors import PatternError
from headrace.expr import evaluate, predicate_mask
from headrace.operators.ordered.tuples import OrderedTuples
from headrace.operators.pattern import machine
from headrace.patterns.nfa import ACCEPT
from headrace.patterns.program import CONSTANT, TEXT, Program
from headrace.patterns.references import START
from headrace.plan.nodes import Match

__all__ = ["FoundMatches", "PatternNumbers", "Searcher", "with_neighbours"]

#: The most runs that a group may have at once; more stop the query.
MOST_RUNS = 100_000
_MOST_NODES = 2**30


@dataclass(frozen=True)
class FoundMatches:
    """Matches: group, first and last tuple each, and the variables of their tuples, one match after the other.

    For each group: the first open tuple (or the first that is not settled), and the time at which the CTI waits.
    """

    group: Int64s
    first: Int64s
    last: Int64s
    complete: Bools
    labels: NDArray[np.int16]
    opened: Int64s
    hold: Int64s
    #: The number of each match in its group; defined only where one match of a first tuple counts.
    number: Int64s
    #: Whether another match with the same first tuple may still replace it; defined only there, too.
    open: Bools

    def with_numbers(self, before: Int64s) -> FoundMatches:
        """The matches with numbers that continue those of each group's earlier matches."""
        place = np.arange(len(self.group)) - np.searchsorted(self.group, self.group)
        return replace(self, number=before[self.group] + place + 1)


def with_neighbours(node: Match, order: OrderedTuples, tuples: pa.Table) -> pa.Table:
    """The tuples with their starts, and with columns of the tuples before and after them."""
    tuples = tuples.append_column(START, pa.array(order.le))
    for name, (expr, back) in node.references.prevs.items():
        rows = np.arange(len(order)) - back
        none = (rows < order.start[order.group]) | (rows >= order.start[order.group + 1])
        tuples = tuples.append_column(name, evaluate(expr, tuples).take(pa.array(rows, mask=none)))
    return tuples


class PatternNumbers:
    """A pattern and its tuples as numbers, for programs; a text is its rank among all texts."""

    def __init__(self, node: Match, program: Program) -> None:
        self.program, self.tables = program, _tables(node, program)

    def of(self, tuples: pa.Table) -> tuple[machine.Tables, Int64s, pa.Array]:
        """The pattern, the columns that programs read, two words each, and all texts in their order."""
        program = self.program
        columns = [evaluate(expr, tuples) for expr, _ in program.columns]
        starts = [str(slot.start) if slot.text and slot.start is not None else None for slot in program.slots]
        constants = pa.array([*program.texts, *starts], pa.string())
        ranks, texts = _ranks([columns[i] for i, (_, kind) in enumerate(program.columns) if kind.is_text], constants)
        words = np.zeros((tuples.num_rows, 2 * len(columns)), np.int64)
        for i, (_, kind) in enumerate(program.columns):
            words[:, 2 * i] = ranks.pop(0) if kind.is_text else _words(columns[i])
            if columns[i].null_count:
                words[:, 2 * i + 1] = columns[i].is_null().to_numpy(zero_copy_only=False)
        tables = self.tables
        if len(constants) and ranks:
            tables = self._with_texts(ranks.pop())
        return tables, words, texts

    def _with_texts(self, ranks: Int64s) -> machine.Tables:
        """The tables with the ranks of the texts in programs and of the initial texts of slots."""
        code, slots, program = self.tables.code.copy(), self.tables.slots.copy(), self.program
        texts = np.flatnonzero(code[::2] == TEXT) * 2
        code[texts + 1] = ranks[code[texts + 1]]
        code[texts] = CONSTANT
        for k, slot in enumerate(program.slots):
            if slot.text:
                slots[2 * k] = ranks[len(program.texts) + k]
        return self.tables._replace(code=code, slots=slots)


class Searcher:
    """The search for one pattern."""

    def __init__(self, node: Match) -> None:
        self.node, self.program = node, node.program
        self.variables = node.pattern.variables
        self.numbers = PatternNumbers(node, node.program)
        self.space = machine.Space(256, 1024, 1024, 1024)

    def search(self, order: OrderedTuples, tuples: pa.Table, begin: Int64s, settle: Int64s, cti: int) -> FoundMatches:
        """The matches that begin at `begin` or later; `settle` is the first tuple of each group that may change."""
        tables, words, _ = self.numbers.of(tuples)
        tables.policy[machine.CTI] = cti
        numbers = machine.PatternTuples(order.le, self._fits(tuples), words)
        groups = machine.SearchBounds(order.start, begin, settle)
        longest, size = int(np.diff(order.start).max(initial=0)), len(order)
        room = machine.Space(256, 4 * longest + 1024, size + 1024, 4 * size + 1024)
        self.space = machine.Space(*(max(a, b) for a, b in zip(self.space, room, strict=True)))
        while True:
            short, out, labels, opened, hold = machine.search(tables, numbers, groups, self.space)
            if short == machine.NOTHING:
                complete, open_ = out[:, 4] != 0, out[:, 5] != 0
                return FoundMatches(out[:, 0], out[:, 1], out[:, 2], complete, labels, opened, hold, out[:, 0], open_)
            self._enlarge(short - 1, order.groups)

    def _enlarge(self, which: int, groups: int) -> None:
        sizes = list(self.space)
        sizes[which] = min(4 * sizes[which], MOST_RUNS) if which == 0 else 4 * sizes[which]
        if (which == 0 and self.space.runs >= MOST_RUNS) or self.space.nodes > _MOST_NODES:
            raise PatternError(
                f"a group has more than {MOST_RUNS} ways to match at once",
                given=f"{self.node.pattern}, over {groups} groups",
                allowed="patterns whose runs end: conditions that exclude each other, within(...), fewer matches",
                instead="within('1 min'), or one match in place of all",
            )
        self.space = machine.Space(*sizes)

    def _fits(self, tuples: pa.Table) -> Bools:
        """By variable and tuple, whether the conditions on the tuple alone hold."""
        fits = np.ones((len(self.variables), tuples.num_rows), bool)
        for i, masks in enumerate(self.program.masks):
            for mask in masks:
                fits[i] &= predicate_mask(mask, tuples).to_numpy(zero_copy_only=False)
        return fits


def _words(column: pa.Array) -> Int64s:
    """Integers, or the bits of floats; 0 for NULL."""
    if pa.types.is_floating(column.type):
        filled = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(filled).view(np.int64)
    kind = pa.int8() if pa.types.is_boolean(column.type) else pa.int64()
    return np.asarray(pc.fill_null(column.cast(kind), 0).to_numpy(zero_copy_only=False), np.int64)


def _ranks(columns: list[pa.Array], constants: pa.Array) -> tuple[list[Int64s], pa.Array]:
    """The ranks of texts, by their bytes, from 1 on; equal for equal texts. The constants come last.

    Also all texts in that order.
    """
    if not columns and not len(constants):
        return [], constants
    all_texts = pa.concat_arrays([*columns, constants])
    ranks = pc.rank(all_texts, tiebreaker="dense").to_numpy().astype(np.int64)
    texts = all_texts.drop_null().unique()
    return np.split(ranks, np.cumsum([len(column) for column in columns])), texts.take(pc.sort_indices(texts))


def _tables(node: Match, program: Program) -> machine.Tables:
    pattern = node.pattern
    nfa, numbers = pattern.automaton, {name: i for i, name in enumerate(pattern.variables)}
    sizes = np.array([len(moves) for moves in nfa.moves], np.int64)
    accept = [moves.index(ACCEPT) if ACCEPT in moves else -1 for moves in nfa.moves]
    labels = [-1, *(numbers[name] for name in nfa.variables)]
    counts = np.cumsum([0, *(len(items) for items in program.updates)])
    guards = np.array([*program.guards, program.accept], np.int64)
    updates = [(u.kind, u.slot, u.column, u.end) for items in program.updates for u in items]
    slots = np.zeros((len(program.slots), 2), np.int64)
    for k, slot in enumerate(program.slots):
        slots[k, 1] = slot.start is None
        if slot.start is not None and not slot.text:
            slots[k, 0] = np.float64(slot.start).view(np.int64) if slot.floating else int(slot.start)
    return machine.Tables(
        policy=_policy(node),
        states=np.c_[labels, np.cumsum(sizes) - sizes, sizes, accept].astype(np.int64),
        moves=np.array([q for moves in nfa.moves for q in moves], np.int64),
        variables=np.c_[guards, counts, np.r_[counts[1:], counts[-1]]].astype(np.int64),
        updates=np.array(updates, np.int64).reshape(-1, 4),
        code=np.array(program.code, np.int64),
        slots=slots.reshape(-1),
        floating=np.array([slot.floating for slot in program.slots], bool),
    )


def _policy(node: Match) -> Int64s:
    pattern = node.pattern
    counts = machine.ONE if pattern.matches == "one" else machine.PARTIAL if pattern.partials else machine.ALL
    skips = {"past": machine.PAST, "next": machine.NEXT, "first": machine.TO_FIRST, "last": machine.TO_LAST}
    variable = -1 if pattern.policy.variable is None else pattern.variables.index(pattern.policy.variable)
    within = -1 if pattern.span is None else pattern.span
    return np.array(
        [within, counts, skips[pattern.policy.to], variable, node.rows == "all", 0, node.numbered], np.int64
    )
