"""Connections: the statements of one client, as replies."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.display.words import counted
from headrace.errors import AccessError, HeadraceError, ServerError
from headrace.io.origins import endless_origins
from headrace.schema import Schema
from headrace.server.access import check_role, needs
from headrace.server.access.audit import unparsed
from headrace.server.catalog import StoredObject
from headrace.server.computing import AskJob, SelectAnswer, StatementWatch
from headrace.server.insert_queue import InsertQueue
from headrace.server.interface import Form, Insert, Inserted, Reply, RowsReply, Said, Subscribed, Who
from headrace.server.looks import LookedAt
from headrace.server.modules.requests import ModuleRequests
from headrace.server.published import without_arrival
from headrace.server.session import ServerSession, unknown_stream
from headrace.server.subscription import LogSubscription
from headrace.server.texts import DroppedStep
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import SETTINGS, LiveEntry
from headrace.sql.bind.context import Context
from headrace.sql.outcomes import Answers, Done, Outcome, ShownTable, Verified, Words
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer, ServedObject

__all__ = ["ServerConnection"]

_log = logging.getLogger("headrace.server")

_COUNT = re.compile(r"(\d[\d,]*) rows? ")
_COUNTED = {"INSERT", "UPDATE", "DELETE", "TRUNCATE"}


class ServerConnection(ModuleRequests):
    """One client of a server."""

    def __init__(self, server: HeadraceServer, who: Who, origin: str = "") -> None:
        self.server, self.who, self.origin = server, who, origin
        self.watch = StatementWatch(server.limits)
        self._subscriptions: list[LogSubscription] = []
        self._lock = threading.RLock()

    @cached_property
    def session(self) -> ServerSession:
        """The session of its statements; a connection that only inserts needs none."""
        return ServerSession(self.server, self.who, self.watch)

    # --- statements --------------------------------------------------------------------------------------------------

    def execute(self, text: str) -> Iterator[Reply]:
        """Carry out the statements of a text. If one fails, what the text has created is dropped again."""
        self.watch.begin()
        return self._executed(text)

    def _executed(self, text: str) -> Iterator[Reply]:
        try:
            context = Context(text)
            left = list(self._parsed(text))
            while left:
                part = left.pop(0)
                self.watch.next_statement()
                with self._noted(to_sql(part)):
                    self._check(part)
                    self.watch.check()
                    reply = self._carried_out(context, part)
                if not left and not isinstance(reply, Subscribed):  # which its way in may refuse
                    self._end_text()
                yield reply
            self._end_text()
        except BaseException:
            self._undo()
            raise
        finally:
            self.watch.end()

    def _parsed(self, text: str) -> Sequence[s.Statement]:
        """The statements of a text; one that is none is noted."""
        try:
            return parse(self.server.limits.check_text(text)).statements
        except HeadraceError as error:
            self.server.access.audit.note(self.who, self.origin, unparsed(text), error)
            raise

    def look_up(self, text: str) -> Iterator[Reply]:
        """Carry out a `SHOW` or `DESCRIBE` that the client has not asked for itself: it is not noted."""
        for part in parse(text).statements:
            assert isinstance(part, s.Show | s.ShowCreate | s.Describe)
            self._check(part)
            yield self._carried_out(Context(text), part)

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Note in the audit log what the client does, and how it ended."""
        try:
            yield
        except Exception as error:
            self.server.access.audit.note(self.who, self.origin, what, error)
            raise
        self.server.access.audit.note(self.who, self.origin, what)

    def _check(self, part: s.Statement) -> None:
        check_role(self.who, needs(part, self.server.inside_roots), to_sql(part).partition("\n")[0][:80])

    def _undo(self) -> None:
        """Take back what the text has changed in the catalog, the last change first."""
        changes = self.session.text
        with self.server.lock:
            for step in reversed(changes.steps.copy()):
                try:
                    if isinstance(step, DroppedStep):
                        self.server.restore(self, step)
                    elif step.number in changes.created:
                        self._again(step.undo)
                except HeadraceError as error:  # another client uses it by now
                    _log.warning("what a text created stays, though the text failed: %s", error)
            self._end_text()

    def _end_text(self) -> None:
        """What the text has changed in the catalog lasts from now on."""
        self.server.end_text(self.session.text)

    def _again(self, text: str) -> None:
        """Execute a text of the catalog, with the settings that are written in it and no others."""
        before = dict(self.session.catalog.settings)
        self.session.catalog.settings.update({name: default for name, (default, *_) in SETTINGS.items()})
        try:
            for part in parse(text).statements:
                if isinstance(part, s.CreateView) and not part.materialized:
                    part = replace(part, replace=True)
                self.session.statement(Context(text), part)
        finally:
            self.session.catalog.settings.update(before)

    def _carried_out(self, context: Context, part: s.Statement) -> Reply:
        if isinstance(part, s.Subscribe):
            key = [name.text for name in part.key]
            return Subscribed("SUBSCRIBE", self.subscribe(part.name.text, part.form, part.cursor, key))
        if isinstance(part, s.InsertValues) and (served := self._fed(part.table.text)) is not None:
            assert served.log is not None
            assert served.inserts is not None
            rows = self.session.values(context, part, served.stored.name, without_arrival(served.log.schema))
            added = served.inserts.add([Insert(rows)], lambda _: None, here=True)
            return self._said(part, f"{counted(self._inserted(added.result()), 'row')} inserted into {part.table.text}")
        return self._reply(self.session.statement(context, part))

    def recover(self, stored: StoredObject) -> None:
        """Execute the statement of an object again, at a start."""
        self._again(stored.text)

    def _reply(self, outcome: Outcome) -> Reply:
        tag = _tag(outcome.statement)
        if isinstance(outcome, Done):
            return self._said(outcome.statement, outcome.message)
        if isinstance(outcome, ShownTable):
            columns = zip(*outcome.rows, strict=True) if outcome.rows else [()] * len(outcome.columns)
            arrays = [pa.array(list(column), pa.string()) for column in columns]
            return RowsReply(tag, pa.table(arrays, names=[name or "_" for name in outcome.columns]))
        if isinstance(outcome, LookedAt):
            return RowsReply(tag, outcome.table, outcome.notes)
        if isinstance(outcome, Words):
            return RowsReply(tag, pa.table([pa.array(outcome.text.splitlines(), pa.string())], names=[tag.lower()]))
        if isinstance(outcome, Verified):
            return Said(tag, f"{outcome.report.cases} cases: all passed")
        assert isinstance(outcome, Answers)
        return self._rows(outcome)

    def _said(self, part: s.Statement, message: str) -> Said:
        tag, count = _tag(part), _COUNT.match(message)
        return Said(tag, message, int(count[1].replace(",", "")) if count and tag in _COUNTED else None)

    def _rows(self, outcome: Answers) -> RowsReply:
        """The present answer: rows that hold now of a relation, else the history so far."""
        if inputs := endless_origins(outcome.stream.node):
            raise ServerError(
                f"{', '.join(inputs)} has no end, so the answer is never whole",
                given=to_sql(outcome.statement).partition("\n")[0],
                instead="QUERY q AS SELECT …, and SUBSCRIBE q",
            )
        job = AskJob(
            outcome.shown.node, self.session.options(), outcome.relation, outcome.order, self.server.limits
        )  # fmt: skip
        answer: SelectAnswer = self.session.compute(job)
        return RowsReply("SELECT", answer.table, (answer.losses,) if answer.losses else ())

    def columns(self, text: str, *, guess: bool = False) -> pa.Schema | None:
        """The columns of the rows that a statement replies with; None if there are none. Nothing is carried out.

        With `guess`, the client has not sent this text: what is wrong with it is not noted.
        """
        statements = parse(text).statements if guess else self._parsed(text)
        if len(statements) != 1:
            return None
        part = statements[0]
        try:
            self._check(part)
        except AccessError as error:
            self.server.access.audit.note(self.who, self.origin, to_sql(part), error)
            raise
        if isinstance(part, s.Ask) and part.name is None and part.query.into is None:
            outcome = self.session.statement(Context(text), part)
            assert isinstance(outcome, Answers)
            payload = outcome.stream.schema.arrow
            return payload if outcome.relation else pa.schema([*_times(outcome.stream.node.dates), *payload])
        if isinstance(part, s.Subscribe):
            subscription = self.subscribe(part.name.text, part.form, part.cursor, [name.text for name in part.key])
            subscription.close()
            return subscription.schema
        if isinstance(part, (s.Show, s.Describe, s.Explain, s.ShowCreate)):
            reply = self._carried_out(Context(text), part)
            assert isinstance(reply, RowsReply)
            return reply.table.schema
        return None

    # --- rows in -----------------------------------------------------------------------------------------------------

    def _fed(self, name: str) -> ServedObject | None:
        """The stream of this name that clients feed."""
        served = self.server.objects.get(name.lower())
        is_fed = served is not None and served.log is not None and served.stored.kind == "stream"
        return served if is_fed and served is not None and served.published is None else None

    def insert(self, stream: str, rows: pa.Table | list[dict[str, Any]], key: str | None = None) -> int:
        """Insert rows into a table or into a stream that clients feed; return how many, when they are on disk."""
        return self._inserted(self._begun(stream, [Insert(rows, key)], here=True).result())

    def insert_all(self, stream: str, inserts: Sequence[Insert]) -> Future[Inserted]:
        """Begin several inserts, each for itself."""
        return self._begun(stream, inserts, here=False)

    def _begun(self, stream: str, inserts: Sequence[Insert], *, here: bool) -> Future[Inserted]:
        what = f"INSERT INTO {stream}"

        def note(inserted: Inserted) -> None:
            for _ in inserted.counts:
                self.server.access.audit.note(self.who, self.origin, what)
            if inserted.error is not None:
                self.server.access.audit.note(self.who, self.origin, what, inserted.error)

        try:
            check_role(self.who, "writer", what)
            queue = self._queue(stream)
        except HeadraceError as error:
            note(Inserted([], error))
            raise
        return queue.add(inserts, note, here=here)

    def _queue(self, stream: str) -> InsertQueue:
        """The queue of a table, or of a stream that clients feed."""
        served = self.server.objects.get(stream.lower())
        if served is None or served.inserts is None:
            names = {one.stored.name: one for one in list(self.server.objects.values()) if one.inserts is not None}
            raise unknown_stream(stream, names)
        return served.inserts

    @staticmethod
    def _inserted(inserted: Inserted) -> int:
        """The rows of one insert."""
        if inserted.error is not None:
            raise inserted.error
        return inserted.counts[0]

    # --- answers out -------------------------------------------------------------------------------------------------

    def subscribe(
        self, name: str, form: Form = "events", cursor: str | None = None, key: Sequence[str] = ()
    ) -> LogSubscription:
        """The present answer of a stream, a query, a table or a materialized view, and then its changes."""
        served = self.server.objects.get(name.lower())
        if served is None or served.log is None or self._fed(name) is not None:
            known = {
                one.stored.name: one for one in list(self.server.objects.values())
                if one.log is not None and self._fed(one.stored.name) is None
            }  # fmt: skip
            raise unknown_stream(name, known)
        payload = Schema(served.log.schema.fields[4:])
        entry = self.server.catalog.tables.get(served.stored.name)
        dates = served.published.dates if served.published else isinstance(entry, LiveEntry) and entry.table.live.dates
        slot = ExitStack()
        slot.enter_context(self.server.subscriptions.use(self.who))
        found = LogSubscription(
            served.stored.name, served.log, payload, form=form, key=key, cursor=cursor, dates=dates,
            relation=served.relation, slot=slot, shared=served.shared,
        )  # fmt: skip
        with self._lock:
            self._subscriptions = [one for one in self._subscriptions if not one.closed]
            self._subscriptions.append(found)
        return found

    def cancel(self) -> None:
        """Interrupt the running statement, and end waiting subscriptions of this connection."""
        self.watch.cancel()
        with self._lock:
            for subscription in self._subscriptions:
                subscription.close()

    def close(self) -> None:
        """End it."""
        self.cancel()


def _tag(part: s.Statement) -> str:
    if isinstance(part, s.Ask) and part.name is None:
        return "SELECT"
    words = re.match(r"[A-Z]+(?: (?:OR REPLACE )?(?:MATERIALIZED )?[A-Z]+)?", to_sql(part))
    text = words[0] if words else "OK"
    first = text.partition(" ")[0]
    return text if first in ("CREATE", "DROP", "START", "STOP", "ALTER") else first


def _times(dates: bool) -> list[pa.Field]:
    kind = pa.timestamp("us", "UTC") if dates else pa.int64()
    return [pa.field("le", kind), pa.field("re", kind)]
