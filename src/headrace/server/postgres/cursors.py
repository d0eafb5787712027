"""Cursors: `DECLARE c CURSOR FOR SUBSCRIBE trades; FETCH 100 FROM c; CLOSE c`, and the same for queries.

FETCH of a subscription waits up to `subscribe_timeout` for its first row, and then returns what there is. The column
`_cursor` of the last row of a piece has the cursor behind it; `SUBSCRIBE trades AS OF '…'` continues there. It is NULL
in the rows before, so that the latest cursor that a client has seen never skips a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.server.interface import SubscribedRows, Subscription
from headrace.server.postgres.lexing import StatementText
from headrace.server.postgres.states import StatementRefused

__all__ = [
    "CURSOR_COLUMN", "CursorStatement", "QueryCursor", "SubscriptionCursor", "WireCursor", "copied_query",
    "cursor_statement", "with_cursor",
]  # fmt: skip

CURSOR_COLUMN = "_cursor"
#: FETCH ALL, as a number of rows; a subscription never has more at once.
_ALL = 100_000


class WireCursor(Protocol):
    """Rows that a client fetches part by part."""

    schema: pa.Schema

    def fetch(self, rows: int, wait: float, cancelled: Callable[[], bool]) -> pa.Table:
        """The next rows, at most so many."""

    def close(self) -> None: ...


class QueryCursor:
    """The rows of a query, which has run."""

    def __init__(self, rows: pa.Table) -> None:
        self.schema, self.rows, self.place = rows.schema, rows, 0

    def fetch(self, rows: int, wait: float, cancelled: Callable[[], bool]) -> pa.Table:  # noqa: ARG002 - it has all
        part = self.rows.slice(self.place, rows)
        self.place += part.num_rows
        return part

    def close(self) -> None:
        self.rows = self.rows.slice(0, 0)


class SubscriptionCursor:
    """The rows of a subscription, as they come."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.schema = subscription.schema.append(pa.field(CURSOR_COLUMN, pa.string()))

    def fetch(self, rows: int, wait: float, cancelled: Callable[[], bool]) -> pa.Table:
        pieces: list[pa.Table] = []
        left = rows
        while left > 0:
            piece = self._next(0.0 if pieces else wait, left, cancelled)
            if piece is None:
                break
            if piece.rows.num_rows:
                pieces.append(with_cursor(piece).cast(self.schema))
                left -= piece.rows.num_rows
        return pa.concat_tables(pieces) if pieces else self.schema.empty_table()

    def pieces(self, cancelled: Callable[[], bool]) -> Iterator[pa.Table]:
        """The rows until somebody cancels, piece by piece."""
        while not cancelled():
            piece = self.subscription.next(timeout=0.25)
            if piece is not None and piece.rows.num_rows:
                yield with_cursor(piece).cast(self.schema)

    def _next(self, wait: float, rows: int, cancelled: Callable[[], bool]) -> SubscribedRows | None:
        while not cancelled():
            step = min(wait, 0.25)
            piece = self.subscription.next(timeout=step, rows=rows)
            wait -= step
            if piece is not None or wait <= 0:
                return piece
        return None

    def close(self) -> None:
        self.subscription.close()


def with_cursor(piece: SubscribedRows) -> pa.Table:
    """A piece with its cursor in its last row."""
    count = piece.rows.num_rows
    cursors = pa.array([*([None] * (count - 1)), piece.cursor or None] if count else [], pa.string())
    return piece.rows.append_column(CURSOR_COLUMN, cursors)


@dataclass(frozen=True)
class CursorStatement:
    """A statement about a cursor: `declare` with a query, `fetch` or `move` with a number of rows, or `close`."""

    verb: str
    name: str
    query: StatementText | None = None
    rows: int = 1
    #: Whether it outlives its transaction.
    hold: bool = False


def cursor_statement(statement: StatementText) -> CursorStatement | None:
    """The statement about a cursor that this is, if it is one."""
    words = statement.words
    if not words or statement.lexemes[0].kind != "name":
        return None
    if words[0] == "declare":
        return _declare(statement)
    if words[0] in ("fetch", "move"):
        return _fetch(statement)
    if words[0] == "close":
        if len(words) != 2:
            raise StatementRefused("CLOSE has the name of a cursor", "42601", instead="CLOSE c, or CLOSE ALL")
        return CursorStatement("close", words[1])
    return None


def _declare(statement: StatementText) -> CursorStatement:
    for place, lexeme in enumerate(statement.lexemes):
        if place >= 3 and lexeme.kind == "name" and lexeme.text == "for" and place + 1 < len(statement.lexemes):
            start = statement.lexemes[place + 1].start
            own = statement.lexemes[place + 1 :]
            moved = tuple(one._replace(start=one.start - start, end=one.end - start) for one in own)
            query = StatementText(statement.text[start:], statement.start + start, moved)
            hold = any(one.text == "hold" and one.kind == "name" for one in statement.lexemes[2:place])
            return CursorStatement("declare", statement.lexemes[1].text, query, hold=hold)
    raise StatementRefused(
        "a cursor has a name and a query", "42601", given=statement.text[:80],
        instead="DECLARE c CURSOR FOR SUBSCRIBE trades",
    )  # fmt: skip


def _fetch(statement: StatementText) -> CursorStatement:
    """`FETCH [NEXT | n | ALL | FORWARD [n | ALL]] [FROM | IN] c`."""
    parts = list(statement.lexemes[1:])
    rows = 1
    if len(parts) > 1 and parts[0].kind == "name" and parts[0].text in ("next", "forward", "relative"):
        parts.pop(0)
    if len(parts) > 1 and (parts[0].kind == "number" or (parts[0].kind == "name" and parts[0].text == "all")):
        rows = _ALL if parts[0].text == "all" else _count(parts[0].text)
        parts.pop(0)
    if len(parts) > 1 and parts[0].kind == "name" and parts[0].text in ("from", "in"):
        parts.pop(0)
    if len(parts) != 1 or parts[0].kind not in ("name", "quoted"):
        raise StatementRefused(
            "a cursor goes forward only", "0A000", given=statement.text[:80],
            allowed="FETCH [FORWARD] [n | ALL] [FROM] c", instead="FETCH 100 FROM c",
        )  # fmt: skip
    return CursorStatement(statement.words[0], parts[0].text, rows=rows)


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise StatementRefused("this is no number of rows", "22023", given=text, allowed="0 to 999999999")
    return int(text)


def copied_query(statement: StatementText) -> StatementText | None:
    """The query of `COPY (query) TO STDOUT`; other kinds of COPY are refused, and None is no COPY."""
    if statement.words[:1] != ("copy",):
        return None
    own = statement.lexemes
    depth, end = 0, None
    for place, lexeme in enumerate(own[1:], 1):
        depth += (lexeme.text == "(") - (lexeme.text == ")") if lexeme.kind == "sign" else 0
        if depth == 0:
            end = place
            break
    if end is None or end < 3 or [one.text for one in own[end + 1 :]] != ["to", "stdout"]:
        raise StatementRefused(
            "this COPY is not known", "0A000", given=statement.text[:80],
            allowed="COPY (query) TO STDOUT, in its text format",
            instead="COPY (SUBSCRIBE trades) TO STDOUT; rows go in by INSERT INTO, or by HTTP",
        )  # fmt: skip
    start = own[2].start
    moved = tuple(one._replace(start=one.start - start, end=one.end - start) for one in own[2:end])
    return StatementText(statement.text[start : own[end - 1].end], statement.start + start, moved)
