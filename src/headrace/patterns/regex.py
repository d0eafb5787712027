"""The shape of a pattern: a regular expression over variables.

    A B+ (C | D)? E{2,4}        quantifiers are greedy; with a `?` after them they are reluctant
    PERMUTE(A, B, C)            these, in any order
    A B* !C                     at the end: no C after it

Of several ways to match, the earlier one of `|` is preferred, the longer one of a greedy quantifier, the shorter one of
a reluctant one, and of `PERMUTE` the one that comes first in the order of its parts. A repetition that takes no tuple
does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from headrace.errors import PlanError

__all__ = ["Absent", "Chain", "Choice", "Permute", "Repeat", "Shape", "Symbol", "chained", "parse", "repeated"]

_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z_0-9]*)|([()|,!])|((?:\*|\+|\?|\{\s*\d*\s*,?\s*\d*\s*\})\??)|(\S))")
_COUNTS = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_EXAMPLE = "pattern('A B+ (C | D)?')"
#: The most copies of a part: each is a state of its own.
_MOST = 1000
_MOST_PERMUTED = 6


@dataclass(frozen=True)
class Shape:
    """Any part of a shape."""

    @property
    def parts(self) -> tuple[Shape, ...]:
        return ()

    @property
    def nullable(self) -> bool:
        """Whether it also matches the empty sequence."""
        return False

    def variables(self) -> tuple[str, ...]:
        """The variables in it, each once, in order."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.variables()))


@dataclass(frozen=True)
class Symbol(Shape):
    """One tuple, mapped to a variable."""

    name: str

    def variables(self) -> tuple[str, ...]:
        return (self.name,)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Chain(Shape):
    """One part after the other."""

    items: tuple[Shape, ...]

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.items

    @property
    def nullable(self) -> bool:
        return all(part.nullable for part in self.items)

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Choice) else str(part) for part in self.items)


@dataclass(frozen=True)
class Choice(Shape):
    """One of several parts; earlier ones are preferred."""

    items: tuple[Shape, ...]

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.items

    @property
    def nullable(self) -> bool:
        return any(part.nullable for part in self.items)

    def __str__(self) -> str:
        return " | ".join(map(str, self.items))


@dataclass(frozen=True)
class Repeat(Shape):
    """A part from `least` to `most` times, without limit if that is None; as often as possible if it is greedy."""

    part: Shape
    least: int
    most: int | None
    greedy: bool = True

    def __post_init__(self) -> None:
        most = self.least if self.most is None else self.most
        if not 0 <= self.least <= most <= _MOST or most < (self.most is not None):
            raise PlanError(
                "a part is repeated from so many to so many times",
                given=f"{self.least} to {self.most}",
                allowed=f"0 to {_MOST}, the lesser first, and not 0 to 0",
                instead="A{2,4}",
            )

    @property
    def parts(self) -> tuple[Shape, ...]:
        return (self.part,)

    @property
    def nullable(self) -> bool:
        return self.least == 0 or self.part.nullable

    def __str__(self) -> str:
        plain = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        both = (self.least, self.most)
        counts = f"{{{self.least}}}" if self.least == self.most else f"{{{self.least},{self.most or ''}}}"
        inner = str(self.part) if isinstance(self.part, (Symbol, Permute)) else f"({self.part})"
        return f"{inner}{plain.get(both, counts)}{'' if self.greedy else '?'}"


@dataclass(frozen=True)
class Permute(Shape):
    """All parts, in any order."""

    items: tuple[Shape, ...]

    def __post_init__(self) -> None:
        if len(self.items) > _MOST_PERMUTED:
            raise PlanError(
                f"PERMUTE of {len(self.items)} parts has too many orders",
                given=len(self.items),
                allowed=f"up to {_MOST_PERMUTED} parts",
                instead="a pattern that says less about the order: (A | B | C)+",
            )

    @property
    def parts(self) -> tuple[Shape, ...]:
        return self.items

    @property
    def nullable(self) -> bool:
        return all(part.nullable for part in self.items)

    @property
    def choice(self) -> Choice:
        """The choice between all orders."""
        return Choice(tuple(Chain(order) for order in permutations(self.items)))

    def __str__(self) -> str:
        return f"PERMUTE({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class Absent(Shape):
    """No tuple of a variable, at the end of a shape: it takes no tuple of the match."""

    name: str

    def variables(self) -> tuple[str, ...]:
        return (self.name,)

    def __str__(self) -> str:
        return f"!{self.name}"


def chained(*shapes: Shape | None) -> Shape | None:
    """A chain of shapes; None if there are none."""
    found: list[Shape] = []
    for shape in shapes:
        found += shape.items if isinstance(shape, Chain) else [shape] if shape is not None else []
    return found[0] if len(found) == 1 else Chain(tuple(found)) if found else None


def repeated(shape: Shape, quantifier: str) -> Shape:
    """A part with a quantifier as it is written: `*`, `+`, `?`, `{n}`, `{n,m}`; a `?` after it makes it reluctant."""
    text = quantifier.replace(" ", "")
    if not text:
        return shape
    greedy = not (text.endswith("?") and text != "?")
    text = text if greedy else text[:-1]
    if text in ("*", "+", "?"):
        return Repeat(shape, int(text == "+"), 1 if text == "?" else None, greedy)
    counts = _COUNTS.fullmatch(text)
    if counts is None or not (counts[1] or counts[3]):
        raise PlanError(
            "a quantifier says how often", given=quantifier, allowed="* + ? {n} {n,} {,m} {n,m}", instead="'+'"
        )
    least = int(counts[1] or 0)
    most = int(counts[3]) if counts[3] else None if counts[2] else least
    return Repeat(shape, least, most, greedy)


def parse(text: str) -> Shape:
    """Parse the text of a shape.

    >>> str(parse("A  B+? ( C|D ) {2,} PERMUTE(E, F)"))
    'A B+? (C | D){2,} PERMUTE(E, F)'
    """
    return _Parser(text).parse_all()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.group(m.lastindex or 0), m.lastindex) for m in _tokens(text)]
        self.at = 0

    def parse_all(self) -> Shape:
        shape = self.choice()
        if self.at < len(self.tokens):
            raise self.wrong(f"{self.tokens[self.at][0]!r} makes no sense here")
        return shape

    def choice(self) -> Shape:
        items = [self.chain()]
        while self.take("|"):
            items.append(self.chain())
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def chain(self) -> Shape:
        items: list[Shape] = []
        while (item := self.item()) is not None:
            items.append(item)
        if not items:
            raise self.wrong("a variable is missing")
        return items[0] if len(items) == 1 else Chain(tuple(items))

    def item(self) -> Shape | None:
        if self.at == len(self.tokens):
            return None
        word, kind = self.tokens[self.at]
        if kind not in (1, 2) or word in "|),":
            return None
        self.at += 1
        shape = self.opened(word)
        if self.at < len(self.tokens) and self.tokens[self.at][1] == 3:
            self.at += 1
            shape = repeated(shape, self.tokens[self.at - 1][0])
        return shape

    def opened(self, word: str) -> Shape:
        if word == "(":
            shape = self.choice()
            self.close()
            return shape
        if word.upper() == "PERMUTE" and self.take("("):
            items = [self.choice()]
            while self.take(","):
                items.append(self.choice())
            self.close()
            return Permute(tuple(items))
        return self.absent() if word == "!" else Symbol(word)

    def absent(self) -> Shape:
        if self.at == len(self.tokens) or self.tokens[self.at][1] != 1:
            raise self.wrong("after ! comes the variable that must be absent")
        self.at += 1
        return Absent(self.tokens[self.at - 1][0])

    def take(self, word: str) -> bool:
        found = self.at < len(self.tokens) and self.tokens[self.at][0] == word
        self.at += found
        return found

    def close(self) -> None:
        if not self.take(")"):
            raise self.wrong("a bracket is not closed")

    def wrong(self, what: str) -> PlanError:
        return PlanError(
            f"this is not the shape of a pattern: {what}",
            given=self.text,
            allowed="variables, quantifiers * + ? {n,m}, |, brackets, PERMUTE(A, B), and !C at the end",
            instead=_EXAMPLE,
        )


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        assert found is not None
        yield found
        at = found.end()
