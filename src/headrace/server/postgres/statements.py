"""Statements of a connection: which of them are about the connection itself, and what they reply with.

Transactions, cursors, settings of PostgreSQL and queries over its catalog are answered here; all other statements go to
the server. A transaction isolates nothing: what a statement changes is there at once, for all. BEGIN and COMMIT are
accepted, because drivers send them; ROLLBACK after a change warns that the change stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.errors import StatementCancelled
from headrace.server.interface import Connection, Reply, RowsReply, Said, Subscribed
from headrace.server.postgres.catalog import CatalogQueries
from headrace.server.postgres.cursors import (
    CursorStatement,
    QueryCursor,
    SubscriptionCursor,
    WireCursor,
    copied_query,
    cursor_statement,
)  # fmt: skip
from headrace.server.postgres.lexing import StatementText, adapted, statements
from headrace.server.postgres.settings import ClientSettings
from headrace.server.postgres.states import StatementRefused

__all__ = ["CopyAnswer", "RowsAnswer", "WireAnswer", "WireStatements"]

_CURSORS = 100
_ENDS = frozenset({"commit", "end", "rollback", "abort"})
_TRANSACTIONS = _ENDS | {"begin", "savepoint", "release"}


@dataclass(frozen=True)
class WireAnswer:
    """A statement was carried out. `tag` names it; `changed` are settings that the client must hear about."""

    tag: str
    notices: Sequence[tuple[str, str]] = ()
    changed: Sequence[str] = ()


@dataclass(frozen=True)
class RowsAnswer(WireAnswer):
    """Rows. `tag` is followed by their number if it counts them."""

    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    counted: bool = True


@dataclass(frozen=True)
class CopyAnswer(WireAnswer):
    """Rows for COPY, which come as they come."""

    columns: int = 0
    pieces: Iterator[pa.Table] = field(default_factory=lambda: iter(()))


class WireStatements:
    """The statements of one connection."""

    def __init__(self, connection: Connection, settings: ClientSettings, database: str) -> None:
        self.connection = connection
        self.settings = settings
        self.catalog = CatalogQueries(connection, settings, database, lambda: list(self.cursors))
        self.cursors: dict[str, WireCursor] = {}
        self._held: set[str] = set()
        #: Idle (`I`), in a transaction (`T`), or in one that has failed (`E`).
        self.transaction = "I"
        #: Where the text that runs starts in the client's text.
        self.start = 0
        self._changes = 0
        self._in_server = False
        self._interrupted, self._left = threading.Event(), threading.Event()

    # --- carrying out ------------------------------------------------------------------------------------------------

    def carry_out(self, text: str) -> Iterator[WireAnswer]:
        """Carry out the statements of a text, one after the other; neighbours for the server go there together."""
        own: list[StatementText] = []
        for statement in map(adapted, statements(text)):
            handler = self._handler(statement)
            if handler is None:
                own.append(statement)
                continue
            yield from self._passed_on(text, own)
            own = []
            yield from self._one(statement, handler)
        yield from self._passed_on(text, own)

    def _one(
        self, statement: StatementText, handler: Callable[[StatementText], Iterator[WireAnswer]]
    ) -> Iterator[WireAnswer]:
        self.start = statement.start
        if self.transaction == "E" and statement.words[0] not in _ENDS:
            raise _failed_transaction()
        with self._watched():
            yield from handler(statement)

    def _passed_on(self, text: str, own: Sequence[StatementText]) -> Iterator[WireAnswer]:
        if not own:
            return
        if self.transaction == "E":
            raise _failed_transaction()
        self.start = start = own[0].start
        script = text[start : own[-1].start + len(own[-1].text)]
        for statement in own:
            place = statement.start - start
            script = script[:place] + statement.text + script[place + len(statement.text) :]
        with self._watched():
            for reply in self._replies(script):
                self._check()
                yield self._answer(reply)
                self._check()

    def _replies(self, text: str) -> Iterator[Reply]:
        """The replies of the server to a text; while it works, it can be interrupted."""
        self.catalog.forget()
        replies = iter(self.connection.execute(text))
        while True:
            self._in_server = True
            try:
                reply = next(replies, None)
            finally:
                self._in_server = False
            if reply is None:
                return
            yield reply

    def _answer(self, reply: Reply) -> WireAnswer:
        if isinstance(reply, Subscribed):
            reply.subscription.close()
            raise StatementRefused(
                "a subscription has no end, so it needs a cursor or COPY",
                "0A000",
                allowed="DECLARE c CURSOR FOR SUBSCRIBE …, COPY (SUBSCRIBE …) TO STDOUT",
                instead="DECLARE c CURSOR FOR SUBSCRIBE trades; FETCH 100 FROM c",
            )
        if isinstance(reply, RowsReply):
            notices = [("NOTICE", note) for note in reply.notes]
            return RowsAnswer(reply.tag, notices, rows=reply.table, counted=reply.tag in ("SELECT", "INSERT", "VALUES"))
        if isinstance(reply, Said) and reply.count is not None:
            self._changes += 1
            oid = "0 " if reply.tag == "INSERT" else ""
            return WireAnswer(f"{reply.tag} {oid}{reply.count}")
        self._changes += reply.tag != "SET"
        return WireAnswer(reply.tag)

    def schema(self, statement: StatementText) -> pa.Schema | None:
        """The columns that a statement will reply with, without carrying it out; None if it has no rows."""
        statement = adapted(statement)
        words = statement.words
        if words[0] in ("fetch", "move"):
            found = cursor_statement(statement)
            assert found is not None
            return self._cursor(found.name).schema if found.verb == "fetch" else None
        if words[0] == "show" and (reply := self.settings.carry_out(statement)) is not None:
            return None if reply.rows is None else reply.rows.schema
        if self.catalog.answers(statement):
            return self.catalog.rows(statement).schema
        return self.connection.columns(statement.text) if self._handler(statement) is None else None

    # --- interruption ------------------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Interrupt what runs, from another thread."""
        self._interrupted.set()
        if self._in_server:  # elsewhere it would end the subscriptions of cursors, which go on
            self.connection.cancel()
        self.catalog.interrupt()

    def leave(self) -> None:
        """The client sends nothing more: what waits for rows ends, and the rest is carried out."""
        self._left.set()

    @property
    def interrupted(self) -> bool:
        return self._interrupted.is_set()

    def _waits_no_more(self) -> bool:
        return self.interrupted or self._left.is_set()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """A statement that runs: it may be interrupted, and has a limit of time if the client has set one."""
        limit = self.settings.statement_timeout
        timer = threading.Timer(limit, self.interrupt) if limit else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        except Exception as error:
            if self.interrupted and not isinstance(error, StatementCancelled):
                raise StatementCancelled("the statement was cancelled") from error
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _check(self) -> None:
        if self.interrupted:
            raise StatementCancelled("the statement was cancelled")

    def ready(self) -> None:
        """Before a statement: an interruption that comes too late for one is not for the next."""
        self._interrupted.clear()

    # --- statements about the connection -----------------------------------------------------------------------------

    def _handler(self, statement: StatementText) -> Callable[[StatementText], Iterator[WireAnswer]] | None:
        words = statement.words
        verb = words[0] if statement.lexemes[0].kind == "name" else ""
        if verb in _TRANSACTIONS or words[:2] == ("start", "transaction"):
            return self._transact
        if verb in ("declare", "fetch", "move", "close"):
            return self._use_cursor
        if verb == "copy":
            return self._copy
        if verb in ("set", "reset", "show", "discard"):
            return self._set
        if self.catalog.answers(statement):
            return self._look_up
        return None

    def _transact(self, statement: StatementText) -> Iterator[WireAnswer]:
        words = statement.words
        verb = words[0]
        if verb in ("begin", "start"):
            notices = [("WARNING", "there is a transaction in progress already")] if self.transaction == "T" else []
            self._changes = 0 if self.transaction == "I" else self._changes
            self.transaction = "T"
            yield WireAnswer("BEGIN", notices)
        elif verb in ("savepoint", "release"):
            yield WireAnswer(verb.upper())
        elif "to" in words[1:4]:
            self.transaction = "T"
            yield WireAnswer("ROLLBACK", self._stay())
        else:
            failed, back = self.transaction == "E", verb in ("rollback", "abort")
            notices = self._stay() if failed or back else []
            if self.transaction == "I":
                notices = [("WARNING", "there is no transaction in progress")]
            self.transaction = "I"
            self._close_cursors(set(self.cursors) - self._held)
            yield WireAnswer("ROLLBACK" if failed or back else "COMMIT", notices)

    def _stay(self) -> list[tuple[str, str]]:
        count, self._changes = self._changes, 0
        if not count:
            return []
        what = "a statement of this transaction has changed something, which stays"
        many = f"{count} statements of this transaction have changed something, which stays"
        return [("WARNING", f"{what if count == 1 else many}: transactions here cannot be undone")]

    def fail(self) -> None:
        """A statement has failed: a transaction has, too."""
        self.transaction = "E" if self.transaction == "T" else self.transaction

    def _set(self, statement: StatementText) -> Iterator[WireAnswer]:
        reply = self.settings.carry_out(statement)
        if reply is None:
            for own in self._replies(statement.text):
                yield self._answer(own)
            return
        if reply.tag == "DISCARD ALL":
            self._close_cursors()
        notices = [("NOTICE", notice) for notice in reply.notices]
        if reply.rows is None:
            yield WireAnswer(reply.tag, notices, reply.changed)
        else:
            yield RowsAnswer(reply.tag, notices, rows=reply.rows, counted=False)

    def _look_up(self, statement: StatementText) -> Iterator[WireAnswer]:
        yield RowsAnswer("SELECT", rows=self.catalog.rows(statement))

    def _use_cursor(self, statement: StatementText) -> Iterator[WireAnswer]:
        found = cursor_statement(statement)
        assert found is not None
        if found.verb == "declare":
            self._declare(found)
            yield WireAnswer("DECLARE CURSOR")
        elif found.verb == "close":
            if found.name == "all":
                self._close_cursors()
            else:
                self._cursor(found.name)
                self._close_cursors({found.name})
            yield WireAnswer("CLOSE CURSOR")
        else:
            cursor, wait = self._cursor(found.name), self.settings.subscribe_timeout
            rows = cursor.fetch(found.rows, wait, self._waits_no_more)
            self._check()
            if found.verb == "move":
                yield WireAnswer(f"MOVE {rows.num_rows}")
            else:
                yield RowsAnswer("FETCH", rows=rows)

    def _declare(self, found: CursorStatement) -> None:
        assert found.query is not None
        if found.name in self.cursors:
            raise StatementRefused("there is a cursor of this name already", "42P03", given=found.name)
        if len(self.cursors) >= _CURSORS:
            raise StatementRefused("too many cursors", "53000", allowed=f"{_CURSORS} at once", instead="CLOSE c")
        self.cursors[found.name] = self._opened(found.query)
        self._held |= {found.name} if found.hold or self.transaction == "I" else set()

    def _opened(self, query: StatementText) -> WireCursor:
        """The rows of a query, or a subscription."""
        self.start = query.start
        if self.catalog.answers(query):
            return QueryCursor(self.catalog.rows(query))
        for reply in self._replies(query.text):
            if isinstance(reply, Subscribed):
                return SubscriptionCursor(reply.subscription)
            if isinstance(reply, RowsReply):
                return QueryCursor(reply.table)
        raise StatementRefused("this has no rows", "42601", given=query.text[:80], allowed="SUBSCRIBE, SELECT")

    def _cursor(self, name: str) -> WireCursor:
        if name not in self.cursors:
            raise StatementRefused(
                "there is no cursor of this name", "34000", given=name, allowed=", ".join(self.cursors),
                instead=f"DECLARE {name} CURSOR FOR SUBSCRIBE trades",
            )  # fmt: skip
        return self.cursors[name]

    def _close_cursors(self, names: Collection[str] | None = None) -> None:
        """Close some cursors, or all."""
        for name in set(self.cursors) if names is None else names:
            self.cursors.pop(name).close()
            self._held.discard(name)

    def _copy(self, statement: StatementText) -> Iterator[WireAnswer]:
        query = copied_query(statement)
        assert query is not None
        cursor = self._opened(query)
        try:
            if isinstance(cursor, SubscriptionCursor):
                pieces = cursor.pieces(self._waits_no_more)
            else:
                pieces = iter([cursor.fetch(1 << 62, 0.0, lambda: False)])
            yield CopyAnswer("COPY", columns=len(cursor.schema), pieces=pieces)
            self._check()
        finally:
            cursor.close()

    def close(self) -> None:
        self._close_cursors()
        self.catalog.close()


def _failed_transaction() -> StatementRefused:
    return StatementRefused(
        "this transaction has failed, so its statements are not carried out until it ends", "25P02", instead="ROLLBACK"
    )
