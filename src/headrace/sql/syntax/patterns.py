"""Patterns: the content of `MATCH_RECOGNIZE ( … )` after a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.syntax.expressions import Call, Duration, Expression, Name, Number, OrderKey
from headrace.sql.syntax.parts import Part
from headrace.sql.syntax.queries import Entry
from headrace.sql.syntax.windows import Bracket

__all__ = [
    "AfterMatch", "Definition", "Extent", "MatchRecognize", "Register", "Shape", "ShapeAbsent", "ShapeChain",
    "ShapeChoice", "ShapePermute", "ShapeRepeat", "ShapeVariable", "Subset",
]  # fmt: skip


@dataclass(frozen=True)
class Shape(Part):
    """Any part of a pattern's shape."""


@dataclass(frozen=True)
class ShapeVariable(Shape):
    """A tuple of a variable."""

    name: Name


@dataclass(frozen=True)
class ShapeChain(Shape):
    """One part after the other."""

    items: tuple[Shape, ...]


@dataclass(frozen=True)
class ShapeChoice(Shape):
    """`a | b`: one of these, the earlier ones first."""

    items: tuple[Shape, ...]


@dataclass(frozen=True)
class ShapePermute(Shape):
    """`PERMUTE(a, b)`: these in any order."""

    items: tuple[Shape, ...]


@dataclass(frozen=True)
class ShapeRepeat(Shape):
    """`a+`, `a*`, `a?`, `a{2,3}`: from `least` to `most` times, None for no end; reluctant with a `?`."""

    part: Shape
    least: int
    most: int | None
    greedy: bool = True


@dataclass(frozen=True)
class ShapeAbsent(Shape):
    """`!c`: none of these, at the end of a pattern."""

    part: Shape


@dataclass(frozen=True)
class Definition(Part):
    """`B AS B.price < PREV(B.price)`: the condition on tuples of a variable, or the update of a register."""

    variable: Name
    value: Expression


@dataclass(frozen=True)
class Register(Part):
    """`m = 0 (D AS m + 1, U AS m - 1)`: a value that a match carries along."""

    name: Name
    start: Expression
    updates: tuple[Definition, ...]


@dataclass(frozen=True)
class Subset(Part):
    """`S = (A, B)`: a name for the tuples of several variables."""

    name: Name
    members: tuple[Name, ...]


@dataclass(frozen=True)
class AfterMatch(Part):
    """`AFTER MATCH SKIP …`: past the last row, to the next row, to the first or last row of a variable."""

    to: Literal["past", "next", "first", "last"]
    variable: Name | None = None


@dataclass(frozen=True)
class Extent(Expression):
    """`FINAL last(x)`, `RUNNING sum(x)`: whether a measure covers the complete match, or the match up to a row."""

    extent: Literal["final", "running"]
    call: Call


@dataclass(frozen=True)
class MatchRecognize(Bracket):
    """`MATCH_RECOGNIZE (…)`: the matches of a pattern in place of the tuples of a stream.

    Keys and measures have names; `rows` and `skip` are None if nothing is said of them.
    """

    shape: Shape
    partition: tuple[Entry, ...] = ()
    order: tuple[OrderKey, ...] = ()
    measures: tuple[Entry, ...] = ()
    rows: Literal["one", "all"] | None = None
    skip: AfterMatch | None = None
    matches: Literal["all", "partial"] | None = None
    within: Duration | Number | None = None
    registers: tuple[Register, ...] = ()
    subsets: tuple[Subset, ...] = ()
    anchored: bool = False
    define: tuple[Definition, ...] = ()
    where: Expression | None = None
