"""Text to syntax: `parse` reads a script, `parse_statement` one statement, `parse_expression` one expression.

One pass from left to right, in time linear in the text, without recursion. The parser's state decides what a word is: a
keyword where that keyword is allowed, else a name (but the few `RESERVED` words are never names). Every part remembers
its place, and every mistake in a text is a `SqlError` at a place in it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from headrace.errors import SqlError
from headrace.sql.build import Builder
from headrace.sql.build.expressions import Token
from headrace.sql.complain import complain
from headrace.sql.forms import form_at
from headrace.sql.syntax import Expression, Script, Span, Statement
from headrace.sql.tables import END, RESERVED, Production, tables

__all__ = ["MAX_DEPTH", "MAX_TEXT", "following", "parse", "parse_expression", "parse_statement"]

MAX_TEXT = 1_000_000  # characters
MAX_DEPTH = 200  # nesting: later steps walk trees by recursion
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
_OPEN = {"'": "a text", '"': "a quoted name", "`": "a quoted name"}


def parse(text: str, *, most: int = MAX_TEXT) -> Script:
    """Parse the statements of a script of at most `most` characters.

    >>> parse("SELECT symbol FROM ticks;").statements[0].query.body.source.stream.text
    'ticks'
    """
    script: Script = ParseRun(text, "script").result(most)
    return script


def parse_statement(text: str) -> Statement:
    """Parse a text that is one statement."""
    statement: Statement = ParseRun(text, "lone_statement").result()
    return statement


def parse_expression(text: str) -> Expression:
    """Parse a text that is one expression."""
    expression: Expression = ParseRun(text, "lone_expression").result()
    return expression


def following(text: str) -> frozenset[str]:
    """The tokens that may follow a text: keywords and signs as they are written, other tokens by their kinds.

    Empty if the text itself is wrong.
    """
    run = ParseRun(text, "script")
    try:
        return run.allowed() if run.walk() else frozenset()
    except SqlError:
        return frozenset()


class _ParsedPart(NamedTuple):
    """A value, its place (None if empty), and its depth.

    With `spread`, the value is a list of a helper rule, for the rule above.
    """

    value: Any
    at: Span | None
    depth: int
    spread: bool = False


class ParseRun:
    """The parsing of one text by the tables."""

    def __init__(self, text: str, start: str) -> None:
        self.text = text
        self.start = start
        self.build = Builder(text)
        self.tables = tables()
        self.lexemes = self.tables.lexemes
        first, self.last = self.tables.starts[start]
        self.states = [first]
        self.parts: list[_ParsedPart] = []
        self.tokens: list[Token] = []
        self.position = 0

    def result(self, most: int = MAX_TEXT) -> Any:
        self._check(most)
        while True:
            token = self._next()
            if not self._take(token):
                raise complain(self, token)
            if token.kind == END:
                return self.parts[-1].value
            self.tokens.append(token)

    def walk(self) -> bool:
        """Take all tokens; return whether all are allowed where they stand."""
        while (token := self._next()).kind != END:
            if not self._take(token):
                return False
        return True

    def _check(self, most: int) -> None:
        if len(self.text) > most:
            message = f"this text has {len(self.text)} characters"
            raise SqlError.of(message, self.text, (0, 0), allowed=f"{most} characters", instead="several scripts")
        found = _IMPOSSIBLE.search(self.text)
        if found:
            given = f"U+{ord(found[0]):04X}"
            raise SqlError.of("a character that no text may contain", self.text, found.span(), given=given)

    def allowed(self) -> frozenset[str]:
        """The tokens allowed here: keywords and signs as they are written, other tokens by their kinds."""
        written = {kind: text for text, kind in (self.lexemes.words | self.lexemes.signs).items()}
        kinds = self.tables.actions[self.states[-1]]
        return frozenset(written.get(kind, kind) for kind in kinds if self.takes(kind))

    def before(self, token: Token) -> ParseRun:
        """A run up to, and without, a token that was taken."""
        earlier_run = ParseRun(self.text, self.start)
        for earlier in self.tokens[: self.tokens.index(token)]:
            earlier_run._take(earlier)
        return earlier_run

    # ---- tokens

    def _next(self) -> Token:
        skipped = self.lexemes.ignored.match(self.text, self.position)
        start = skipped.end() if skipped else self.position
        if start == len(self.text):
            return Token(END, "", start, start)
        special = self.lexemes.special.match(self.text, start)
        if special and self.takes(str(special.lastgroup)):
            return self._token(str(special.lastgroup), start, special.end())
        plain = self.lexemes.plain.match(self.text, start)
        if plain is None or self.text.startswith("/*", start):
            raise self._no_token(start)
        kind = str(plain.lastgroup)
        if kind == "SIGN":
            kind = self.lexemes.signs[plain[0]]
        elif kind == "NAME":
            kind = self._kind_of_word(plain[0].upper())
        return self._token(kind, start, plain.end())

    def _token(self, kind: str, start: int, end: int) -> Token:
        self.position = end
        return Token(kind, self.text[start:end], start, end)

    def _kind_of_word(self, word: str) -> str:
        keyword = self.lexemes.words.get(word)
        if keyword and (word in RESERVED or self.takes(keyword)):
            return keyword
        return "NAME"

    def _no_token(self, start: int) -> SqlError:
        sign = self.text[start]
        if self.text.startswith("/*", start):
            return SqlError.of("a comment that does not end", self.text, (start, start + 2), instead="/* … */")
        if sign in _OPEN:
            instead = f"{sign}…{sign}, with {sign * 2} for {sign} inside"
            return SqlError.of(f"{_OPEN[sign]} that does not end", self.text, (start, start + 1), instead=instead)
        word = re.compile(r"[\w.]*").match(self.text, start)
        if word and word[0]:
            return SqlError.of("neither a number nor a name", self.text, word.span(), given=word[0][:80])
        form = form_at(self.text, start)
        hint, place = form or ("", start)
        return SqlError.of("a sign that means nothing here", self.text, (place, start + 1), given=sign, instead=hint)

    # ---- the walk

    def takes(self, kind: str) -> bool:
        """Whether a token of this kind is allowed here; builds nothing."""
        kept, pushed = len(self.states), list[int]()
        while True:
            state = pushed[-1] if pushed else self.states[kept - 1]
            action = self.tables.actions[state].get(kind)
            if action is None or isinstance(action, int):
                return action is not None
            over = action.size - len(pushed)
            del pushed[max(0, -over) :]
            kept -= max(0, over)
            below = pushed[-1] if pushed else self.states[kept - 1]
            pushed.append(self.tables.following[below][action.rule])
            if kind == END and pushed[-1] == self.last:
                return True

    def _take(self, token: Token) -> bool:
        if not self.takes(token.kind):
            return False
        while True:
            action = self.tables.actions[self.states[-1]][token.kind]
            if isinstance(action, int):
                self.states.append(action)
                self.parts.append(_ParsedPart(token, (token.start, token.end), 0))
                return True
            self._finish(action)
            if token.kind == END and self.states[-1] == self.last:
                return True

    def _finish(self, production: Production) -> None:
        size = production.size
        parts = self.parts[len(self.parts) - size :]
        del self.parts[len(self.parts) - size :], self.states[len(self.states) - size :]
        self.states.append(self.tables.following[self.states[-1]][production.rule])
        self.parts.append(self._make(production, parts))

    def _make(self, production: Production, parts: list[_ParsedPart]) -> _ParsedPart:
        at = _place(parts)
        if production.helper:
            return _gathered(production, parts, at)
        if production.method is None:
            return parts[production.kept[0]]._replace(at=at)
        if at is None:
            at = (len(self.text), len(self.text))
        values: list[Any] = []
        depth = 0
        for i in production.kept:
            part = parts[i]
            depth = max(depth, part.depth)
            values.extend(part.value) if part.spread else values.append(part.value)
        if depth >= MAX_DEPTH:
            message = f"this is nested more than {MAX_DEPTH} deep"
            raise SqlError.of(message, self.text, at, instead="fewer parentheses, IN for many ORs, or sub-selects")
        return _ParsedPart(getattr(self.build, production.method)(at, *values), at, depth + 1)


def _place(parts: list[_ParsedPart]) -> Span | None:
    places = [part.at for part in parts if part.at is not None]
    return (places[0][0], places[-1][1]) if places else None


def _gathered(production: Production, parts: list[_ParsedPart], at: Span | None) -> _ParsedPart:
    """The values of a helper rule; a repeated list grows in place, so that long lists take linear time."""
    kept = [parts[i] for i in production.kept]
    grows = bool(kept) and kept[0].spread
    values: list[Any] = kept[0].value if grows else []
    for part in kept[grows:]:
        values.extend(part.value) if part.spread else values.append(part.value)
    return _ParsedPart(values, at, max((part.depth for part in kept), default=0), spread=True)
