"""Read intents from text, for the command line: the result of `str(intent)`, and a little more.

    equi_join over highly_out_of_order & speculative
    aggregate(equi_join, window=snapshot|session) over points
    equi_join >> aggregate(function=median) over lulls & nulls
    equi_join(stream over points, stream over infinite)

A query's inputs come first in its brackets, then its options; `over` belongs to the query before it and all below.
Traits are joined by `&`; values of one dimension by `|`, which binds less tightly, as in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from operator import and_, or_, rshift
from typing import NamedTuple, TypeVar

from headrace.errors import IntentError
from headrace.testing.generators.traits import TRAITS, Traits, anything, trait
from headrace.testing.intents.catalogue import KINDS
from headrace.testing.intents.tree import STREAM, Intent

__all__ = ["read_intent", "read_traits"]

_T = TypeVar("_T")
_TOKENS = re.compile(r"\s*(?:(>>|[()|&,=])|(\w+)|(\S))")
_END = "the end"


class _Token(NamedTuple):
    text: str
    place: int
    is_name: bool = False


def read_intent(text: str) -> Intent:
    """Read an intent from a text."""
    reader = _TextReader(text)
    return reader.read_all(reader.intent)


def read_traits(text: str) -> Traits:
    """Read traits from a text: what the streams of any query are like."""
    reader = _TextReader(text)
    return reader.read_all(reader.traits)


class _TextReader:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise IntentError("this is not text", given=text, allowed="text", instead="'highly_out_of_order & revised'")
        self._text = re.sub(r"\s", " ", text)
        self._tokens = [
            _Token(match[0].strip(), match.start(match.lastindex), match.lastindex == 2)
            for match in _TOKENS.finditer(self._text)
            if match.lastindex
        ]
        self._next = 0

    def read_all(self, read: Callable[[], _T]) -> _T:
        """The result of `read`, which must consume the entire text."""
        found = read()
        if self._here.text != _END:
            raise self._wrong(
                "this text cannot be read to its end", "the end, or '>>', 'over' and '&' before what follows"
            )
        return found

    # --- the grammar -------------------------------------------------------------------------------------------------

    def intent(self) -> Intent:
        """One query, or several by `>>`."""
        found = self._term()
        while self._here.text == ">>":
            place = self._here
            self._next += 1
            next_intent = self._term()
            found = self._at(place, partial(rshift, found, next_intent))
        return found

    def _term(self) -> Intent:
        if self._took("("):
            intent = self.intent()
            self._expect(")")
        else:
            intent = self._query()
        if self._took("over"):
            place = self._here
            over = self.traits()
            intent = self._at(place, lambda: Intent(intent.kind, intent.inputs, intent.options, intent.over & over))
        return intent

    def _query(self) -> Intent:
        name = self._name("a kind of query", (*KINDS, STREAM))
        self._at(name, lambda: Intent(name.text))
        inputs: list[Intent] = []
        options: dict[str, frozenset[str]] = {}
        if self._took("("):
            while not self._took(")"):
                self._argument(name.text, inputs, options)
                if self._here.text != ")":
                    self._expect(",")
        return self._at(name, lambda: Intent(name.text, tuple(inputs), options))

    def _argument(self, kind: str, inputs: list[Intent], options: dict[str, frozenset[str]]) -> None:
        """An input, or an option with one value or several."""
        place = self._here
        if not (place.is_name and self._after(1).text == "="):
            if options:
                raise self._wrong("inputs come before options", "an option, as in window=snapshot, or ')'")
            inputs.append(self.intent())
            return
        self._next += 2
        if place.text in options:
            raise self._wrong(f"{place.text} is said twice", f"{place.text}=one|another", place)
        values: list[str] = []
        known = KINDS[kind].dimensions.get(place.text, ()) if kind in KINDS else ()
        while not values or self._took("|"):
            value = self._name(f"a value of {place.text}", known)
            self._at(value if known else place, partial(Intent, kind, (), {place.text: frozenset([value.text])}))
            values.append(value.text)
        options[place.text] = frozenset(values)

    def traits(self) -> Traits:
        """Traits that are either one or another, of one dimension."""
        found = self._all_traits()
        while self._here.text == "|":
            place = self._here
            self._next += 1
            other = self._all_traits()
            found = self._at(place, partial(or_, found, other))
        return found

    def _all_traits(self) -> Traits:
        found: Traits = anything
        while True:
            place = self._here
            other = self._one_trait()
            found = self._at(place, partial(and_, found, other))
            if not self._took("&"):
                return found

    def _one_trait(self) -> Traits:
        if self._took("("):
            found = self.traits()
            self._expect(")")
            return found
        name = self._name("a trait", TRAITS)
        return self._at(name, lambda: trait(name.text))

    # --- words -------------------------------------------------------------------------------------------------------

    @property
    def _here(self) -> _Token:
        return self._after(0)

    def _after(self, number: int) -> _Token:
        place = self._next + number
        return self._tokens[place] if place < len(self._tokens) else _Token(_END, len(self._text.rstrip()))

    def _took(self, text: str) -> bool:
        taken = self._here.text == text
        self._next += taken
        return taken

    def _expect(self, text: str) -> None:
        if not self._took(text):
            raise self._wrong(f"{text!r} is missing here", text)

    def _name(self, what: str, known: Iterable[str]) -> _Token:
        token = self._here
        if not token.is_name:
            raise self._wrong(f"{what} is missing here", ", ".join(known))
        self._next += 1
        return token

    def _at(self, token: _Token, make: Callable[[], _T]) -> _T:
        """What is made of a word; an error tells the place of it."""
        try:
            return make()
        except IntentError as error:
            raise self._wrong(error.message, error.allowed, token, error.instead) from None

    def _wrong(self, message: str, allowed: str, token: _Token | None = None, instead: str = "") -> IntentError:
        token = token or self._here
        drawn = f"{message}\n\n  {self._text}\n  {' ' * token.place}^\n"
        return IntentError(drawn, given=token.text, allowed=allowed, instead=instead)
