"""Text to syntax: `parse` reads a script, `parse_statement` one statement, `parse_expression` one expression.

One pass from left to right, in time linear in the text, without recursion. What the parser can take decides what a word
is: a keyword where that keyword may stand, else a name (but the few `RESERVED` words are never names). Every part
remembers its place, and everything that is wrong with a text is a `SqlError` at a place in it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from headrace.errors import SqlError
from headrace.sql.build import Builder
from headrace.sql.build.expressions import Token
from headrace.sql.complain import complain
from headrace.sql.syntax import Expression, Script, Span, Statement
from headrace.sql.tables import END, RESERVED, Production, tables

__all__ = ["MAX_DEPTH", "MAX_TEXT", "following", "parse", "parse_expression", "parse_statement"]

MAX_TEXT = 1_000_000  # characters
MAX_DEPTH = 200  # parts inside parts: what comes after the parser walks trees by recursion
_IMPOSSIBLE = re.compile("[\0\ud800-\udfff]")
_OPEN = {"'": "a text", '"': "a quoted name", "`": "a quoted name"}


def parse(text: str, *, most: int = MAX_TEXT) -> Script:
    """The statements of a script of at most so many characters.

    >>> parse("SELECT symbol FROM ticks;").statements[0].query.body.source.stream.text
    'ticks'
    """
    script: Script = ParseRun(text, "script").result(most)
    return script


def parse_statement(text: str) -> Statement:
    """The one statement of a text."""
    statement: Statement = ParseRun(text, "lone_statement").result()
    return statement


def parse_expression(text: str) -> Expression:
    """The expression that a text is."""
    expression: Expression = ParseRun(text, "lone_expression").result()
    return expression


def following(text: str) -> frozenset[str]:
    """What may stand behind a text: keywords and signs as they are written, other tokens by their kinds.

    Nothing, if the text is wrong already.
    """
    run = ParseRun(text, "script")
    try:
        return run.allowed() if run.walk() else frozenset()
    except SqlError:
        return frozenset()


class _Made(NamedTuple):
    """A value, where it stands (None: it is empty), and how deep it is.

    The values of a helper rule are a list for the rule above.
    """

    value: Any
    at: Span | None
    depth: int
    spread: bool = False


class ParseRun:
    """One text on its way through the tables."""

    def __init__(self, text: str, start: str) -> None:
        self.text = text
        self.start = start
        self.build = Builder(text)
        self.tables = tables()
        self.lexemes = self.tables.lexemes
        first, self.last = self.tables.starts[start]
        self.states = [first]
        self.made: list[_Made] = []
        self.tokens: list[Token] = []
        self.position = 0

    def result(self, most: int = MAX_TEXT) -> Any:
        self._check(most)
        while True:
            token = self._next()
            if not self._take(token):
                raise complain(self, token)
            if token.kind == END:
                return self.made[-1].value
            self.tokens.append(token)

    def walk(self) -> bool:
        """Take everything but the end; false if something cannot stand where it stands."""
        while (token := self._next()).kind != END:
            if not self._take(token):
                return False
        return True

    def _check(self, most: int) -> None:
        if len(self.text) > most:
            message = f"this text has {len(self.text)} characters"
            raise SqlError.of(message, self.text, (0, 0), allowed=f"{most} characters", instead="several scripts")
        wrong = _IMPOSSIBLE.search(self.text)
        if wrong:
            given = f"U+{ord(wrong[0]):04X}"
            raise SqlError.of("a character that no text has", self.text, wrong.span(), given=given)

    def allowed(self) -> frozenset[str]:
        """What may stand here: keywords and signs as they are written, other tokens by their kinds."""
        written = {kind: text for text, kind in (self.lexemes.words | self.lexemes.signs).items()}
        kinds = self.tables.actions[self.states[-1]]
        return frozenset(written.get(kind, kind) for kind in kinds if self.takes(kind))

    def before(self, token: Token) -> ParseRun:
        """The same walk, up to a token that was taken already."""
        again = ParseRun(self.text, self.start)
        for earlier in self.tokens[: self.tokens.index(token)]:
            again._take(earlier)
        return again

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
        return SqlError.of("a sign that means nothing here", self.text, (start, start + 1), given=sign)

    # ---- the walk

    def takes(self, kind: str) -> bool:
        """Whether a token of this kind may stand here: the walk, without making anything."""
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
                self.made.append(_Made(token, (token.start, token.end), 0))
                return True
            self._finish(action)
            if token.kind == END and self.states[-1] == self.last:
                return True

    def _finish(self, done: Production) -> None:
        size = done.size
        parts = self.made[len(self.made) - size :]
        del self.made[len(self.made) - size :], self.states[len(self.states) - size :]
        self.states.append(self.tables.following[self.states[-1]][done.rule])
        self.made.append(self._make(done, parts))

    def _make(self, done: Production, parts: list[_Made]) -> _Made:
        at = _place(parts)
        if done.helper:
            return _gathered(done, parts, at)
        if done.method is None:
            return parts[done.kept[0]]._replace(at=at)
        if at is None:
            at = (len(self.text), len(self.text))
        values: list[Any] = []
        depth = 0
        for i in done.kept:
            part = parts[i]
            depth = max(depth, part.depth)
            values.extend(part.value) if part.spread else values.append(part.value)
        if depth >= MAX_DEPTH:
            message = f"this is nested more than {MAX_DEPTH} deep"
            raise SqlError.of(message, self.text, at, instead="fewer parentheses, IN for many ORs, or sub-selects")
        return _Made(getattr(self.build, done.method)(at, *values), at, depth + 1)


def _place(parts: list[_Made]) -> Span | None:
    places = [part.at for part in parts if part.at is not None]
    return (places[0][0], places[-1][1]) if places else None


def _gathered(done: Production, parts: list[_Made], at: Span | None) -> _Made:
    """The values of a helper; a list that is being repeated grows in place, so that long ones take linear time."""
    kept = [parts[i] for i in done.kept]
    grows = bool(kept) and kept[0].spread
    values: list[Any] = kept[0].value if grows else []
    for part in kept[grows:]:
        values.extend(part.value) if part.spread else values.append(part.value)
    return _Made(values, at, max((part.depth for part in kept), default=0), spread=True)
