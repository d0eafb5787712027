"""The search for matches, compiled: all runs of all groups, tuple by tuple, in one call.

Runs stand in the order of their first tuples, and those of one first tuple in the order of preference. With each tuple
every run makes all its moves, in order; a new run may begin with the tuple. Where one match counts, a run that is
accepted ends all that are less preferred; and of runs in the same state with equal slots only the first is kept, since
whatever the others come to, it comes to as well. Which tuples were mapped to what is a tree of nodes, each with the
node before it; a match is its last node.

Runs are kept twice, on two `side`s: those before a tuple and those after it. What does not fit in the space that was
given ends the search with what was short; it is then begun again with more.
"""

# ruff: noqa: C901 - the two loops that all the time is spent in are each one piece

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.operators.pattern.stack import DEPTH, Floats, Int, Ints, called_from_python, holds, less, native, run
from headrace.patterns import program as op
from headrace.time import INFINITY

__all__ = [
    "ALL",
    "NEXT",
    "NOTHING",
    "ONE",
    "PARTIAL",
    "PAST",
    "TO_FIRST",
    "TO_LAST",
    "PatternTuples",
    "SearchBounds",
    "Space",
    "Tables",
    "replayed",
    "search",
]  # fmt: skip

#: What counts: one match of a first tuple, all, or partial ones as well.
ONE, ALL, PARTIAL = range(3)
#: Where the search goes on after a match.
PAST, NEXT, TO_FIRST, TO_LAST = range(4)
#: What was short.
NOTHING, RUNS, NODES, MATCHES, LABELS = range(5)
# Columns of `policy`: at most so long (-1 for any time), what counts, where to go on and at which variable, whether
# each tuple of a match is given, the CTI, whether matches have numbers.
WITHIN, COUNTS, SKIP, VARIABLE, ROWS, CTI, NUMBERED = range(7)
# Columns of `states`: the variable, the first of its moves, how many there are, and the place of acceptance among them
# (-1 if it is not there).
LABEL, BEGIN, MOVES, ACCEPT = range(4)
# Columns of `head`: the state of a run, how many of its moves are open to it, its first tuple, its last node, and the
# variables that have had tuples, as bits.
STATE, OPEN_MOVES, FIRST, NODE, SEEN = range(5)
# Columns of `best`, by first tuple: the last node and tuple of the best match so far, and whether it is open.
LAST, OPEN = 1, 2

TAKE, FIRST_OF, COUNT, SUM_I, SUM_F, LEAST, GREATEST, RUN = (
    op.TAKE, op.FIRST, op.COUNT, op.SUM_I, op.SUM_F, op.LEAST, op.GREATEST, op.RUN
)  # fmt: skip


class Tables(NamedTuple):
    """A pattern as numbers."""

    policy: Ints
    states: Ints
    moves: Ints
    #: Of each variable where its condition's program begins and ends, and its updates; the last row is the whole match.
    variables: Ints
    #: A kind, a slot, a column (or where a program begins), and where it ends (or the variables not to have been seen).
    updates: Ints
    code: Ints
    #: What slots are at first, two words each, and which are floating.
    slots: Ints
    floating: NDArray[np.bool_]


class PatternTuples(NamedTuple):
    """The tuples: when they are, what fits them (by variable), and their columns, two words each."""

    le: Ints
    fits: NDArray[np.bool_]
    columns: Ints


class SearchBounds(NamedTuple):
    """Of each group: its tuples, where the search begins, and the first tuple that is not settled."""

    start: Ints
    begin: Ints
    settle: Ints


class Space(NamedTuple):
    """How many runs of a group, nodes of a group, matches, and tuples of matches there is room for."""

    runs: int
    nodes: int
    matches: int
    labels: int


Found = tuple[int, Ints, NDArray[np.int16], Ints, Ints]


def search(tables: Tables, tuples: PatternTuples, groups: SearchBounds, space: Space) -> Found:
    """What was short, and all matches of all groups: group, first and last tuple, node, whether it is complete, and
    whether a run that is preferred to it is open (meant only where one match of a first tuple counts); the variables
    of their tuples, one match after the other. Then, of each group, the first open tuple (or the first that
    is not settled), and where the CTI must wait.
    """
    found: Found = _search(
        *tables, *tuples, tuples.columns.view(np.float64), *groups, np.array(space, np.int64),
    )  # fmt: skip
    return found


@called_from_python
def _search(
    policy: Ints, states: Ints, moves: Ints, variables: Ints, updates: Ints, code: Ints, init: Ints,
    floating: NDArray[np.bool_], le: Ints, fits: NDArray[np.bool_], columns: Ints, columns_f: Floats, start: Ints,
    begin: Ints, settle: Ints, space: Ints,
) -> Found:  # fmt: skip
    groups = len(begin)
    head = np.empty((2, space[0] + 1, 5), np.int64)
    slots = np.empty((2, space[0] + 1, len(init)), np.int64)
    stack = np.empty(DEPTH, np.int64)
    slots_f, stack_f = slots.view(np.float64), stack.view(np.float64)
    nodes, out = np.empty((space[1], 2), np.int64), np.empty((space[2], 6), np.int64)
    labels = np.empty(space[3], np.int16)
    longest = 0
    for g in range(groups):
        longest = max(longest, start[g + 1] - begin[g])
    best = np.empty((longest, 3), np.int64)
    opened, hold = np.empty(groups, np.int64), np.empty(groups, np.int64)
    sizes = np.zeros(3, np.int64)  # nodes of the group, matches, labels
    short = NOTHING
    for g in range(groups):
        done = sizes[1]
        sizes[0] = 0
        best[: start[g + 1] - begin[g], 0] = -1
        best[: start[g + 1] - begin[g], OPEN] = 1
        count, side = np.int64(0), np.int64(0)  # a plain 0 has a type of its own: all would be compiled once more
        for i in range(begin[g], start[g + 1]):
            if i == settle[g]:
                next_ = min(policy[CTI], le[i])
                _settled(policy, le, g, begin[g], i, next_, head, side, count, nodes, best, opened, hold)
            count = _step(
                policy, states, moves, variables, updates, code, init, floating, le, fits, columns, columns_f, g,
                begin[g], i, head, slots, slots_f, side, count, stack, stack_f, nodes, best, out, sizes,
            )  # fmt: skip
            if count < 0:
                short = -count
                break
            side = 1 - side
        if short == NOTHING:
            if settle[g] == start[g + 1]:
                next_ = policy[CTI]
                _settled(policy, le, g, begin[g], settle[g], next_, head, side, count, nodes, best, opened, hold)
            short = _chosen(policy, g, begin[g], start[g + 1], nodes, best, out, sizes)
        if short == NOTHING:
            short = _labelled(nodes, out, labels, sizes, done)
        if short != NOTHING:
            break
    return short, out[: sizes[1]], labels[: sizes[2]], opened, hold


def replayed(tables: Tables, tuples: PatternTuples, first: Ints, length: Ints, labels: NDArray[np.int16]) -> Ints:
    """What the slots are after each tuple of each match, one match after the other."""
    found: Ints = _replayed(
        tables.variables, tables.updates, tables.code, tables.slots, tables.floating, tuples.columns,
        tuples.columns.view(np.float64), first, length, labels.astype(np.int64),
    )  # fmt: skip
    return found


@called_from_python
def _replayed(
    variables: Ints, updates: Ints, code: Ints, init: Ints, floating: NDArray[np.bool_], columns: Ints,
    columns_f: Floats, first: Ints, length: Ints, labels: Ints,
) -> Ints:  # fmt: skip
    slots, kept = np.empty((2, 1, len(init)), np.int64), np.empty((len(labels), len(init)), np.int64)
    stack = np.empty(DEPTH, np.int64)
    slots_f, stack_f = slots.view(np.float64), stack.view(np.float64)
    at, side, run_ = np.int64(0), np.int64(0), np.int64(0)
    for n in range(len(first)):
        slots[side, 0] = init
        seen = np.int64(0)
        for i in range(first[n], first[n] + length[n]):
            _carried(
                variables, updates, code, floating, columns, columns_f, i, labels[at], seen, slots, slots_f, side,
                run_, 1 - side, run_, stack, stack_f,
            )  # fmt: skip
            seen |= np.int64(1) << labels[at]
            side = 1 - side
            kept[at] = slots[side, 0]
            at += 1
    return kept


@native
def _chosen(policy: Ints, g: Int, begin: Int, end: Int, nodes: Ints, best: Ints, out: Ints, sizes: Ints) -> Int:
    """Where one match of a first tuple counts: those that the search comes upon."""
    if policy[COUNTS] != ONE:
        return NOTHING
    first = begin
    while first < end:
        node, open_ = best[first - begin, 0], best[first - begin, OPEN]
        if node >= 0 and not _put(out, sizes, g, first, best[first - begin, LAST], node, 1, open_):
            return MATCHES
        first = _after(policy, nodes, best, first, begin)
    return NOTHING


@native
def _put(out: Ints, sizes: Ints, g: Int, first: Int, last: Int, node: Int, complete: Int, open_: Int) -> Int:
    n = sizes[1]
    if n == len(out):
        return False
    out[n, 0], out[n, 1], out[n, 2], out[n, 3], out[n, 4], out[n, 5] = g, first, last, node, complete, open_
    sizes[1] = n + 1
    return True


@native
def _labelled(nodes: Ints, out: Ints, labels: NDArray[np.int16], sizes: Ints, done: Int) -> Int:
    """The variables of the tuples of the matches of a group."""
    at = sizes[2]
    for n in range(done, sizes[1]):
        length = out[n, 2] - out[n, 1] + 1
        if at + length > len(labels):
            return LABELS
        node = out[n, 3]
        for k in range(length - 1, -1, -1):
            labels[at + k] = nodes[node, 1]
            node = nodes[node, 0]
        at += length
    sizes[2] = at
    return NOTHING


@native
def _after(policy: Ints, nodes: Ints, best: Ints, first: Int, begin: Int) -> Int:
    """Where the search goes on behind a first tuple."""
    node, last = best[first - begin, 0], best[first - begin, LAST]
    if node < 0 or policy[SKIP] == NEXT or policy[COUNTS] != ONE:
        return first + 1
    if policy[SKIP] == PAST:
        return last + 1
    at, found = last, first
    while node >= 0:
        if nodes[node, 1] == policy[VARIABLE]:
            found = at
            if policy[SKIP] == TO_LAST:
                break
        node = nodes[node, 0]
        at -= 1
    return max(found, first + 1)


@native
def _settled(
    policy: Ints, le: Ints, g: Int, begin: Int, end: Int, next_: Int, head: Ints, side: Int, count: Int, nodes: Ints,
    best: Ints, opened: Ints, hold: Ints,
) -> None:  # fmt: skip
    """What is known when all settled tuples have been seen: the first open one, and where the CTI waits. What comes
    next is at `next_` or later.
    """
    best[: end - begin, OPEN] = 0
    for r in range(count):
        first = head[side, r, FIRST]
        if policy[WITHIN] < 0 or le[first] + policy[WITHIN] >= next_:
            best[first - begin, OPEN] = 1
    first = begin
    while first < end and best[first - begin, OPEN] == 0:
        first = _after(policy, nodes, best, first, begin)
    opened[g], hold[g] = min(first, end), INFINITY
    if policy[ROWS]:
        if first < end:
            hold[g] = le[first]
    elif policy[COUNTS] == ONE:
        for i in range(first, end):
            alone = policy[SKIP] == NEXT and policy[NUMBERED] == 0  # what others come to does not matter
            if best[i - begin, 0] >= 0 and (not alone or best[i - begin, OPEN] != 0):
                hold[g] = min(hold[g], le[best[i - begin, LAST]])


@native
def _step(
    policy: Ints, states: Ints, moves: Ints, variables: Ints, updates: Ints, code: Ints, init: Ints,
    floating: NDArray[np.bool_], le: Ints, fits: NDArray[np.bool_], columns: Ints, columns_f: Floats, g: Int,
    begin: Int, i: Int, head: Ints, slots: Ints, slots_f: Floats, side: Int, count: Int, stack: Ints, stack_f: Floats,
    nodes: Ints, best: Ints, out: Ints, sizes: Ints,
) -> Int:  # fmt: skip
    """How many runs there are after tuple i; less than 0 if something is short."""
    made, cut, within = np.int64(0), np.int64(-1), policy[WITHIN]
    head[side, count, STATE], head[side, count, OPEN_MOVES] = 0, states[0, MOVES]
    head[side, count, FIRST], head[side, count, NODE], head[side, count, SEEN] = i, -1, 0
    slots[side, count] = init
    for r in range(count + 1):
        first = head[side, r, FIRST]
        if first == cut or (within >= 0 and le[i] - le[first] > within):
            continue
        at = states[head[side, r, STATE], BEGIN]
        for e in range(at, at + head[side, r, OPEN_MOVES]):
            state = moves[e]
            if state < 0 or not fits[states[state, LABEL], i]:
                continue
            if made == head.shape[1] - 1:
                return -RUNS
            if not _moved(
                policy, states, variables, updates, code, floating, columns, columns_f, i, head, slots, slots_f, side,
                r, made, state, stack, stack_f,
            ):  # fmt: skip
                continue
            accepted = states[state, ACCEPT] >= 0 and holds(
                code, variables[-1, 0], variables[-1, 1], columns, i, slots, 1 - side, made, stack, stack_f
            )
            node = sizes[0]
            if node == len(nodes):
                return -NODES
            nodes[node, 0], nodes[node, 1] = head[side, r, NODE], states[state, LABEL]
            sizes[0], head[1 - side, made, NODE] = node + 1, node
            if policy[COUNTS] == ONE:
                if accepted:
                    best[first - begin, 0], best[first - begin, LAST] = node, i
                    head[1 - side, made, OPEN_MOVES] = states[state, ACCEPT]
                    cut = first
            elif (accepted or policy[COUNTS] == PARTIAL) and not _put(out, sizes, g, first, i, node, int(accepted), 0):
                return -MATCHES
            left = head[1 - side, made, OPEN_MOVES]
            if left > 1 or (left == 1 and states[state, ACCEPT] != 0):  # acceptance is no move
                made += 1
            if cut == first:
                break
    return made


@native
def _moved(
    policy: Ints, states: Ints, variables: Ints, updates: Ints, code: Ints, floating: NDArray[np.bool_], columns: Ints,
    columns_f: Floats, i: Int, head: Ints, slots: Ints, slots_f: Floats, side: Int, r: Int, m: Int, state: Int,
    stack: Ints, stack_f: Floats,
) -> Int:  # fmt: skip
    """Make run m of run r by a move, if its condition holds and it is not one that is there already."""
    then, variable = 1 - side, states[state, LABEL]
    head[then, m, STATE], head[then, m, OPEN_MOVES] = state, states[state, MOVES]
    head[then, m, FIRST], head[then, m, SEEN] = head[side, r, FIRST], head[side, r, SEEN] | (1 << variable)
    if slots.shape[2]:
        _carried(
            variables, updates, code, floating, columns, columns_f, i, variable, head[side, r, SEEN], slots, slots_f,
            side, r, then, m, stack, stack_f,
        )  # fmt: skip
        if not holds(code, variables[variable, 0], variables[variable, 1], columns, i, slots, then, m, stack, stack_f):
            return False
    if policy[COUNTS] == ONE:
        other = m - 1
        while other >= 0 and head[then, other, FIRST] == head[then, m, FIRST]:
            if head[then, other, STATE] == state and _equal(floating, head, slots, slots_f, then, other, m):
                return False
            other -= 1
    return True


@native
def _carried(
    variables: Ints, updates: Ints, code: Ints, floating: NDArray[np.bool_], columns: Ints, columns_f: Floats, i: Int,
    variable: Int, seen: Int, slots: Ints, slots_f: Floats, side: Int, r: Int, then: Int, m: Int, stack: Ints,
    stack_f: Floats,
) -> None:  # fmt: skip
    """What run m carries along: what run r does, and what tuple i changes of it."""
    for k in range(slots.shape[2]):
        slots[then, m, k] = slots[side, r, k]
    for u in range(variables[variable, 2], variables[variable, 3]):
        kind, slot, column, end = updates[u, 0], updates[u, 1], updates[u, 2], updates[u, 3]
        if kind == RUN:
            run(code, column, end, columns, i, slots, side, r, stack, stack_f)
            slots[then, m, 2 * slot], slots[then, m, 2 * slot + 1] = stack[0], stack[1]
        elif kind == COUNT:
            slots[then, m, 2 * slot] += column < 0 or columns[i, 2 * column + 1] == 0
        elif kind == TAKE or (kind == FIRST_OF and seen & end == 0):
            slots[then, m, 2 * slot] = columns[i, 2 * column]
            slots[then, m, 2 * slot + 1] = columns[i, 2 * column + 1]
        elif kind != FIRST_OF and columns[i, 2 * column + 1] == 0:
            _folded(kind, floating[slot], columns, columns_f, i, 2 * column, slots, slots_f, then, m, 2 * slot)


@native
def _equal(floating: NDArray[np.bool_], head: Ints, slots: Ints, slots_f: Floats, side: Int, a: Int, b: Int) -> Int:
    """Whether two runs carry the same along."""
    if len(floating) and head[side, a, SEEN] != head[side, b, SEEN]:
        return False
    for k in range(len(floating)):
        if slots[side, a, 2 * k + 1] != slots[side, b, 2 * k + 1]:
            return False
        if slots[side, a, 2 * k + 1] != 0:
            continue
        if floating[k]:
            m, n = slots_f[side, a, 2 * k], slots_f[side, b, 2 * k]
            if less(m, n) or less(n, m):
                return False
        elif slots[side, a, 2 * k] != slots[side, b, 2 * k]:
            return False
    return True


@native
def _folded(
    kind: Int, floating: Int, columns: Ints, columns_f: Floats, i: Int, column: Int, slots: Ints, slots_f: Floats,
    side: Int, m: Int, slot: Int,
) -> None:  # fmt: skip
    """Sums and extremes, with a value that is not NULL."""
    whole = columns[i, column]
    if slots[side, m, slot + 1] != 0:
        slots[side, m, slot], slots[side, m, slot + 1] = whole, 0
        if kind == SUM_I:
            slots[side, m, slot + 2] = -1 if whole < 0 else 0
    elif kind == SUM_F:
        slots_f[side, m, slot] += columns_f[i, column]
    elif kind == SUM_I:  # of 128 bits
        before = slots[side, m, slot]
        after = before + whole
        carried = np.uint64(after) < np.uint64(before)
        slots[side, m, slot] = after
        slots[side, m, slot + 2] += (-1 if whole < 0 else 0) + (1 if carried else 0)
    else:
        if floating:
            lesser = less(columns_f[i, column], slots_f[side, m, slot])
            greater = less(slots_f[side, m, slot], columns_f[i, column])
        else:
            lesser, greater = whole < slots[side, m, slot], whole > slots[side, m, slot]
        if (kind == LEAST and lesser) or (kind == GREATEST and greater):
            slots[side, m, slot] = whole
