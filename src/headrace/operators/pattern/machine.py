"""The search for matches, compiled: all runs of all groups, tuple by tuple, in one call.

Runs are in the order of their first tuples, and those of one first tuple in the order of preference. With each tuple
every run makes all its moves, in order; a new run may begin with the tuple. If one match counts, an accepted run ends
all less preferred ones; and of runs in the same state with equal slots only the first is kept, since it reaches every
match that the others reach. The variables of tuples are a tree of nodes, each with the node before it; a match is its
last node.

Runs are stored on two `side`s: those before a tuple and those after it. If some space is too small, the search ends and
returns which one; the caller starts it again with more.
"""

# ruff: noqa: C901 - each of the two hot loops is one function

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
    "replay",
    "search",
]  # fmt: skip

#: Which matches count: one of a first tuple, all, or partial ones as well.
ONE, ALL, PARTIAL = range(3)
#: Where the search continues after a match.
PAST, NEXT, TO_FIRST, TO_LAST = range(4)
#: Which space was too small.
NOTHING, RUNS, NODES, MATCHES, LABELS = range(5)
# Columns of `policy`: the longest duration (-1 for any), which matches count, where to continue and at which variable,
# whether each tuple of a match is an output, the CTI, whether matches have numbers.
WITHIN, COUNTS, SKIP, VARIABLE, ROWS, CTI, NUMBERED = range(7)
# Columns of `states`: the variable, the first move, the number of moves, and the place of acceptance among them (-1 if
# it is not there).
LABEL, BEGIN, MOVES, ACCEPT = range(4)
# Columns of `head`: the state of a run, the number of its open moves, its first tuple, its last node, and the variables
# with tuples, as bits.
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
    #: For each variable the bounds of its condition's program, and of its updates; the last row is for the whole match.
    variables: Ints
    #: A kind, a slot, a column (or the begin of a program), and the program's end (or the variables not seen before).
    updates: Ints
    code: Ints
    #: The initial values of slots, two words each, and which are floating.
    slots: Ints
    floating: NDArray[np.bool_]


class PatternTuples(NamedTuple):
    """The tuples: their LEs, whether they fit (by variable), and their columns, two words each."""

    le: Ints
    fits: NDArray[np.bool_]
    columns: Ints


class SearchBounds(NamedTuple):
    """For each group: its tuples, where the search begins, and the first tuple that is not settled."""

    start: Ints
    begin: Ints
    settle: Ints


class Space(NamedTuple):
    """The space for runs of a group, nodes of a group, matches, and tuples of matches."""

    runs: int
    nodes: int
    matches: int
    labels: int


SearchResult = tuple[int, Ints, NDArray[np.int16], Ints, Ints]


def search(tables: Tables, tuples: PatternTuples, groups: SearchBounds, space: Space) -> SearchResult:
    """Which space was too small, and all matches of all groups: group, first and last tuple, node, whether it is
    complete, and whether a run preferred to it is open (defined only where one match of a first tuple counts); the
    variables of their tuples, one match after the other. Then, for each group, the first open tuple (or the first that
    is not settled), and the time at which the CTI waits.
    """
    count, longest = len(groups.begin), int((groups.start[1:] - groups.begin).max(initial=0))
    head = np.empty((2, space.runs + 1, 5), np.int64)
    slots = np.empty((2, space.runs + 1, len(tables.slots)), np.int64)
    stack = np.empty(DEPTH, np.int64)
    nodes, out = np.empty((space.nodes, 2), np.int64), np.empty((space.matches, 6), np.int64)
    labels = np.empty(space.labels, np.int16)
    best, opened, hold = np.empty((longest, 3), np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    sizes = np.zeros(3, np.int64)  # nodes of the group, matches, labels
    short = _search(
        *tables, *tuples, tuples.columns.view(np.float64), *groups, head, slots, slots.view(np.float64), stack,
        stack.view(np.float64), nodes, best, out, labels, opened, hold, sizes,
    )  # fmt: skip
    return short, out[: sizes[1]], labels[: sizes[2]], opened, hold


@called_from_python
def _search(
    policy: Ints, states: Ints, moves: Ints, variables: Ints, updates: Ints, code: Ints, init: Ints,
    floating: NDArray[np.bool_], le: Ints, fits: NDArray[np.bool_], columns: Ints, columns_f: Floats, start: Ints,
    begin: Ints, settle: Ints, head: Ints, slots: Ints, slots_f: Floats, stack: Ints, stack_f: Floats, nodes: Ints,
    best: Ints, out: Ints, labels: NDArray[np.int16], opened: Ints, hold: Ints, sizes: Ints,
) -> int:  # fmt: skip
    short = NOTHING
    for g in range(len(begin)):
        done = sizes[1]
        sizes[0] = 0
        for i in range(start[g + 1] - begin[g]):
            best[i, 0], best[i, OPEN] = -1, 1
        count, side = np.int64(0), np.int64(0)  # a plain 0 has another type, and would compile everything twice
        for i in range(begin[g], start[g + 1]):
            if i == settle[g]:
                next_ = min(policy[CTI], le[i])
                _settle(policy, le, g, begin[g], i, next_, head, side, count, nodes, best, opened, hold)
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
                _settle(policy, le, g, begin[g], settle[g], next_, head, side, count, nodes, best, opened, hold)
            short = _choose_matches(policy, g, begin[g], start[g + 1], nodes, best, out, sizes)
        if short == NOTHING:
            short = _write_labels(nodes, out, labels, sizes, done)
        if short != NOTHING:
            break
    return short


def replay(tables: Tables, tuples: PatternTuples, first: Ints, length: Ints, labels: NDArray[np.int16]) -> Ints:
    """The slots after each tuple of each match, one match after the other."""
    slots, stack = np.empty((2, 1, len(tables.slots)), np.int64), np.empty(DEPTH, np.int64)
    values = np.empty((len(labels), len(tables.slots)), np.int64)
    _replay(
        tables.variables, tables.updates, tables.code, tables.slots, tables.floating, tuples.columns,
        tuples.columns.view(np.float64), first, length, labels.astype(np.int64), slots, slots.view(np.float64), stack,
        stack.view(np.float64), values,
    )  # fmt: skip
    return values


@called_from_python
def _replay(
    variables: Ints, updates: Ints, code: Ints, init: Ints, floating: NDArray[np.bool_], columns: Ints,
    columns_f: Floats, first: Ints, length: Ints, labels: Ints, slots: Ints, slots_f: Floats, stack: Ints,
    stack_f: Floats, values: Ints,
) -> None:  # fmt: skip
    at, side, run_ = np.int64(0), np.int64(0), np.int64(0)
    for n in range(len(first)):
        for k in range(len(init)):
            slots[side, 0, k] = init[k]
        seen = np.int64(0)
        for i in range(first[n], first[n] + length[n]):
            _update_slots(
                variables, updates, code, floating, columns, columns_f, i, labels[at], seen, slots, slots_f, side,
                run_, 1 - side, run_, stack, stack_f,
            )  # fmt: skip
            seen |= np.int64(1) << labels[at]
            side = 1 - side
            for k in range(len(init)):
                values[at, k] = slots[side, 0, k]
            at += 1


@native
def _choose_matches(policy: Ints, g: Int, begin: Int, end: Int, nodes: Ints, best: Ints, out: Ints, sizes: Ints) -> Int:
    """Where one match of a first tuple counts: add the matches that the search reaches."""
    if policy[COUNTS] != ONE:
        return NOTHING
    first = begin
    while first < end:
        node, open_ = best[first - begin, 0], best[first - begin, OPEN]
        if node >= 0 and not _add_match(out, sizes, g, first, best[first - begin, LAST], node, 1, open_):
            return MATCHES
        first = _next_first(policy, nodes, best, first, begin)
    return NOTHING


@native
def _add_match(out: Ints, sizes: Ints, g: Int, first: Int, last: Int, node: Int, complete: Int, open_: Int) -> Int:
    n = sizes[1]
    if n == len(out):
        return False
    out[n, 0], out[n, 1], out[n, 2], out[n, 3], out[n, 4], out[n, 5] = g, first, last, node, complete, open_
    sizes[1] = n + 1
    return True


@native
def _write_labels(nodes: Ints, out: Ints, labels: NDArray[np.int16], sizes: Ints, done: Int) -> Int:
    """Write the variables of the tuples of a group's matches."""
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
def _next_first(policy: Ints, nodes: Ints, best: Ints, first: Int, begin: Int) -> Int:
    """The tuple at which the search continues after a first tuple."""
    node, last = best[first - begin, 0], best[first - begin, LAST]
    if node < 0 or policy[SKIP] == NEXT or policy[COUNTS] != ONE:
        return first + 1
    if policy[SKIP] == PAST:
        return last + 1
    at, target = last, first
    while node >= 0:
        if nodes[node, 1] == policy[VARIABLE]:
            target = at
            if policy[SKIP] == TO_LAST:
                break
        node = nodes[node, 0]
        at -= 1
    return max(target, first + 1)


@native
def _settle(
    policy: Ints, le: Ints, g: Int, begin: Int, end: Int, next_: Int, head: Ints, side: Int, count: Int, nodes: Ints,
    best: Ints, opened: Ints, hold: Ints,
) -> None:  # fmt: skip
    """After all settled tuples, find the first open one, and the time at which the CTI waits. The next tuple is at
    `next_` or later.
    """
    for i in range(end - begin):
        best[i, OPEN] = 0
    for r in range(count):
        first = head[side, r, FIRST]
        if policy[WITHIN] < 0 or le[first] + policy[WITHIN] >= next_:
            best[first - begin, OPEN] = 1
    first = begin
    while first < end and best[first - begin, OPEN] == 0:
        first = _next_first(policy, nodes, best, first, begin)
    opened[g], hold[g] = min(first, end), INFINITY
    if policy[ROWS]:
        if first < end:
            hold[g] = le[first]
    elif policy[COUNTS] == ONE:
        for i in range(first, end):
            alone = policy[SKIP] == NEXT and policy[NUMBERED] == 0  # other matches do not matter
            if best[i - begin, 0] >= 0 and (not alone or best[i - begin, OPEN] != 0):
                hold[g] = min(hold[g], le[best[i - begin, LAST]])


@native
def _step(
    policy: Ints, states: Ints, moves: Ints, variables: Ints, updates: Ints, code: Ints, init: Ints,
    floating: NDArray[np.bool_], le: Ints, fits: NDArray[np.bool_], columns: Ints, columns_f: Floats, g: Int,
    begin: Int, i: Int, head: Ints, slots: Ints, slots_f: Floats, side: Int, count: Int, stack: Ints, stack_f: Floats,
    nodes: Ints, best: Ints, out: Ints, sizes: Ints,
) -> Int:  # fmt: skip
    """The number of runs after tuple i; less than 0 if some space is too small."""
    runs, cut, within = np.int64(0), np.int64(-1), policy[WITHIN]
    _begin_run(states, init, i, head, slots, side, count)
    for r in range(count + 1):
        first = head[side, r, FIRST]
        if first == cut or (within >= 0 and le[i] - le[first] > within):
            continue
        at = states[head[side, r, STATE], BEGIN]
        for e in range(at, at + head[side, r, OPEN_MOVES]):
            state = moves[e]
            if state < 0 or not fits[states[state, LABEL], i]:
                continue
            if runs == head.shape[1] - 1:
                return -RUNS
            if not _move(
                policy, states, variables, updates, code, floating, columns, columns_f, i, head, slots, slots_f, side,
                r, runs, state, stack, stack_f,
            ):  # fmt: skip
                continue
            accepted = states[state, ACCEPT] >= 0 and holds(
                code, variables[-1, 0], variables[-1, 1], columns, i, slots, 1 - side, runs, stack, stack_f
            )
            node = sizes[0]
            if node == len(nodes):
                return -NODES
            nodes[node, 0], nodes[node, 1] = head[side, r, NODE], states[state, LABEL]
            sizes[0], head[1 - side, runs, NODE] = node + 1, node
            if policy[COUNTS] == ONE:
                if accepted:
                    best[first - begin, 0], best[first - begin, LAST] = node, i
                    head[1 - side, runs, OPEN_MOVES] = states[state, ACCEPT]
                    cut = first
            elif (accepted or policy[COUNTS] == PARTIAL) and not _add_match(
                out, sizes, g, first, i, node, int(accepted), 0
            ):
                return -MATCHES
            left = head[1 - side, runs, OPEN_MOVES]
            if left > 1 or (left == 1 and states[state, ACCEPT] != 0):  # acceptance is not a move
                runs += 1
            if cut == first:
                break
    return runs


@native
def _begin_run(states: Ints, init: Ints, i: Int, head: Ints, slots: Ints, side: Int, r: Int) -> None:
    """Create run r, which begins with tuple i."""
    head[side, r, STATE], head[side, r, OPEN_MOVES] = 0, states[0, MOVES]
    head[side, r, FIRST], head[side, r, NODE], head[side, r, SEEN] = i, -1, 0
    for k in range(len(init)):
        slots[side, r, k] = init[k]


@native
def _move(
    policy: Ints, states: Ints, variables: Ints, updates: Ints, code: Ints, floating: NDArray[np.bool_], columns: Ints,
    columns_f: Floats, i: Int, head: Ints, slots: Ints, slots_f: Floats, side: Int, r: Int, m: Int, state: Int,
    stack: Ints, stack_f: Floats,
) -> Int:  # fmt: skip
    """Create run m from run r by a move, if its condition holds and no equal run exists."""
    then, variable = 1 - side, states[state, LABEL]
    head[then, m, STATE], head[then, m, OPEN_MOVES] = state, states[state, MOVES]
    head[then, m, FIRST], head[then, m, SEEN] = head[side, r, FIRST], head[side, r, SEEN] | (1 << variable)
    if slots.shape[2]:
        _update_slots(
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
def _update_slots(
    variables: Ints, updates: Ints, code: Ints, floating: NDArray[np.bool_], columns: Ints, columns_f: Floats, i: Int,
    variable: Int, seen: Int, slots: Ints, slots_f: Floats, side: Int, r: Int, then: Int, m: Int, stack: Ints,
    stack_f: Floats,
) -> None:  # fmt: skip
    """Set the slots of run m: those of run r, with the updates of tuple i."""
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
            _fold(kind, floating[slot], columns, columns_f, i, 2 * column, slots, slots_f, then, m, 2 * slot)


@native
def _equal(floating: NDArray[np.bool_], head: Ints, slots: Ints, slots_f: Floats, side: Int, a: Int, b: Int) -> Int:
    """Whether two runs have equal slots."""
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
def _fold(
    kind: Int, floating: Int, columns: Ints, columns_f: Floats, i: Int, column: Int, slots: Ints, slots_f: Floats,
    side: Int, m: Int, slot: Int,
) -> None:  # fmt: skip
    """Add a value that is not NULL to a sum or an extreme."""
    value = columns[i, column]
    if slots[side, m, slot + 1] != 0:
        slots[side, m, slot], slots[side, m, slot + 1] = value, 0
        if kind == SUM_I:
            slots[side, m, slot + 2] = -1 if value < 0 else 0
    elif kind == SUM_F:
        slots_f[side, m, slot] += columns_f[i, column]
    elif kind == SUM_I:  # of 128 bits
        before = slots[side, m, slot]
        after = before + value
        carry = np.uint64(after) < np.uint64(before)
        slots[side, m, slot] = after
        slots[side, m, slot + 2] += (-1 if value < 0 else 0) + (1 if carry else 0)
    else:
        if floating:
            lesser = less(columns_f[i, column], slots_f[side, m, slot])
            greater = less(slots_f[side, m, slot], columns_f[i, column])
        else:
            lesser, greater = value < slots[side, m, slot], value > slots[side, m, slot]
        if (kind == LEAST and lesser) or (kind == GREATEST and greater):
            slots[side, m, slot] = value
