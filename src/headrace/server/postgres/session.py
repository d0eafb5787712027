"""The conversation with one client, after it is known: messages in, bytes out. It blocks, and runs in a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.errors import HeadraceError, SqlError
from headrace.server.interface import Connection
from headrace.server.postgres import messages as m
from headrace.server.postgres import replies as r
from headrace.server.postgres.columns import WireColumn, encoded, wire_columns
from headrace.server.postgres.inference import parameter_types, stand_ins, with_lists
from headrace.server.postgres.lexing import StatementText, place_before, statements, with_literals
from headrace.server.postgres.parameters import bound_literals
from headrace.server.postgres.settings import ClientSettings
from headrace.server.postgres.statements import CopyAnswer, RowsAnswer, WireAnswer, WireStatements
from headrace.server.postgres.states import StatementRefused, error_fields, notice_fields

__all__ = ["WireSession"]

_LOG = logging.getLogger(__name__)
#: Bytes that are gathered before they are sent.
_CHUNK = 1 << 16
#: Rows that are turned into bytes at a time.
_ROWS = 4096
_PREPARED = 1000


@dataclass
class _Prepared:
    """A prepared statement; None is the empty one."""

    statement: StatementText | None
    types: tuple[int, ...]


@dataclass
class _Portal:
    """A statement with values, and what is left of its rows."""

    statement: StatementText | None
    literals: list[str]
    formats: tuple[int, ...]
    #: The columns that the client was given.
    described: list[WireColumn] | None = None
    rows: pa.Table | None = None
    place: int = 0
    tag: str = ""
    done: bool = False
    notices: list[tuple[str, str]] = field(default_factory=list)

    @property
    def bound(self) -> StatementText | None:
        """The statement with its values as literals."""
        if self.statement is None:
            return None
        found = statements(with_literals(self.statement, self.literals))
        return found[0] if found else None


class WireSession:
    """A client's conversation: `handle` takes a message and sends what it leads to."""

    def __init__(
        self, connection: Connection, settings: ClientSettings, database: str, send: Callable[[bytes], None]
    ) -> None:
        self.statements = WireStatements(connection, settings, database)
        self.settings = settings
        self._send = send
        self._out = bytearray()
        self._prepared: dict[str, _Prepared] = {}
        self._portals: dict[str, _Portal] = {}
        #: After an error of the extended protocol, until Sync.
        self._skips = False

    def handle(self, message: m.FrontMessage) -> None:
        """Carry out one message."""
        if isinstance(message, m.SyncMessage):
            self._skips = False
            self._portals.pop("", None)
            self._ready()
        elif isinstance(message, m.QueryMessage):
            self._skips = False
            self._query(message.text)
        elif isinstance(message, m.FlushMessage):
            self._flush()
        elif not self._skips:
            self._extended(message)

    def close(self) -> None:
        self.statements.close()

    # --- simple ------------------------------------------------------------------------------------------------------

    def _query(self, text: str) -> None:
        self.statements.ready()
        try:
            found = False
            for answer in self._of_connection(text):
                found = True
                self._whole_answer(answer)
            if not found:
                self._put(r.EMPTY_QUERY)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever happens, the client hears of it and goes on
            self._report(error, self.statements.start)
        self._ready()

    def _of_connection(self, text: str) -> Iterable[WireAnswer]:
        """Answers of the statements; DEALLOCATE is about this session."""
        parts = statements(text)
        if len(parts) == 1 and parts[0].words[:1] == ("deallocate",):
            return [self._deallocate(parts[0])]
        return self.statements.carry_out(text)

    def _deallocate(self, statement: StatementText) -> WireAnswer:
        name = statement.lexemes[-1].text
        if name == "all":
            self._prepared.clear()
        elif self._prepared.pop(name, None) is None:
            raise StatementRefused("there is no prepared statement of this name", "26000", given=name)
        return WireAnswer("DEALLOCATE")

    def _whole_answer(self, answer: WireAnswer) -> None:
        self._notices(answer.notices)
        for name, value in self.settings.reported(answer.changed):
            self._put(r.parameter_status(name, value))
        if isinstance(answer, RowsAnswer):
            formats = [0] * answer.rows.num_columns
            self._put(r.row_description(wire_columns(answer.rows.schema), formats))
            self._rows(answer.rows, formats)
            self._put(r.command_complete(_tag(answer, answer.rows.num_rows)))
        elif isinstance(answer, CopyAnswer):
            self._copy(answer)
        else:
            self._put(r.command_complete(answer.tag))

    def _rows(self, rows: pa.Table, formats: Sequence[int]) -> None:
        for start in range(0, rows.num_rows, _ROWS):
            for row in encoded(rows.slice(start, _ROWS), formats):
                self._put(r.data_row(row))

    def _copy(self, answer: CopyAnswer) -> None:
        self._put(r.copy_out(answer.columns))
        self._flush()
        count = 0
        for piece in answer.pieces:
            for row in encoded(piece, [0] * piece.num_columns):
                self._put(r.copy_data(b"\t".join(map(_copied, row)) + b"\n"))
            count += piece.num_rows
            self._flush()
        if not self.statements.interrupted:
            self._put(r.COPY_DONE)
            self._put(r.command_complete(f"COPY {count}"))

    # --- extended ----------------------------------------------------------------------------------------------------

    def _extended(self, message: m.FrontMessage) -> None:
        self.statements.ready()
        try:
            if isinstance(message, m.ParseMessage):
                self._parse(message)
            elif isinstance(message, m.BindMessage):
                self._bind(message)
            elif isinstance(message, m.DescribeMessage):
                self._describe(message)
            elif isinstance(message, m.ExecuteMessage):
                self._execute(message)
            elif isinstance(message, m.CloseMessage):
                (self._prepared if message.kind == "S" else self._portals).pop(message.name, None)
                self._put(r.CLOSE_COMPLETE)
            else:
                self._refuse(message)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever happens, the client hears of it and goes on
            self._skips = True
            self._report(error, 0)

    def _refuse(self, message: m.FrontMessage) -> None:
        if isinstance(message, m.OtherMessage) and message.letter in "dcf":
            return  # the rest of a COPY that has failed
        raise m.ProtocolError("this message cannot come now", given=type(message).__name__)

    def _parse(self, message: m.ParseMessage) -> None:
        found = statements(message.text)
        if len(found) > 1:
            raise StatementRefused("a prepared statement is one statement", "42601", given=f"{len(found)} statements")
        if message.name and message.name in self._prepared:
            raise StatementRefused("there is a prepared statement of this name", "42P05", given=message.name)
        if len(self._prepared) >= _PREPARED:
            raise StatementRefused(
                "too many prepared statements", "53000", allowed=str(_PREPARED), instead="DEALLOCATE"
            )
        statement = found[0] if found else None
        if statement is not None and statement.parameters > 0xFFFF:
            raise StatementRefused("too many parameters", "54023", allowed="65535")
        self._prepared[message.name] = _Prepared(statement, message.types)
        self._put(r.PARSE_COMPLETE)

    def _bind(self, message: m.BindMessage) -> None:
        prepared = self._prepared.get(message.statement)
        if prepared is None:
            raise StatementRefused("there is no prepared statement of this name", "26000", given=message.statement)
        wanted = 0 if prepared.statement is None else prepared.statement.parameters
        if len(message.values) < wanted:
            raise StatementRefused(
                "the statement has more parameters", "08P01", given=f"{len(message.values)} values", allowed=str(wanted)
            )
        if len(self._portals) >= _PREPARED:
            raise StatementRefused("too many portals", "53000", allowed=str(_PREPARED))
        types = prepared.types if prepared.statement is None else with_lists(prepared.statement, prepared.types)
        literals = bound_literals(types, message.formats, message.values)
        self._portals[message.portal] = _Portal(prepared.statement, literals, message.results)
        self._put(r.BIND_COMPLETE)

    def _describe(self, message: m.DescribeMessage) -> None:
        if message.kind == "S":
            self._describe_statement(message.name)
            return
        portal = self._portals.get(message.name)
        if portal is None and message.name in self.statements.cursors:
            columns = wire_columns(self.statements.cursors[message.name].schema)
            self._put(r.row_description(columns, [0] * len(columns)))
            return
        portal = self._portal(message.name)
        portal.described = self._columns(portal.bound, portal)
        self._described(portal.described, portal.formats)

    def _describe_statement(self, name: str) -> None:
        prepared = self._prepared.get(name)
        if prepared is None:
            raise StatementRefused("there is no prepared statement of this name", "26000", given=name)
        if prepared.statement is None:
            self._put(r.parameter_description(()))
            self._put(r.NO_DATA)
            return
        prepared.types = parameter_types(prepared.statement, prepared.types, self.statements.connection)
        self._put(r.parameter_description(prepared.types))
        text = statements(with_literals(prepared.statement, stand_ins(prepared.types)))[0]
        self._described(self._columns(text, None), ())

    def _columns(self, statement: StatementText | None, portal: _Portal | None) -> list[WireColumn]:
        if statement is None:
            return []
        try:
            schema = self.statements.schema(statement)
        except SqlError as error:
            raise self._placed(error, portal) from error
        return [] if schema is None else wire_columns(schema)

    def _described(self, columns: Sequence[WireColumn], formats: Sequence[int]) -> None:
        if columns:
            self._put(r.row_description(columns, _formats(formats, len(columns))))
        else:
            self._put(r.NO_DATA)

    def _portal(self, name: str) -> _Portal:
        if name not in self._portals:
            raise StatementRefused("there is no portal of this name", "34000", given=name)
        return self._portals[name]

    def _execute(self, message: m.ExecuteMessage) -> None:
        portal = self._portal(message.portal)
        if portal.statement is None:
            self._put(r.EMPTY_QUERY)
        elif portal.rows is not None:
            self._some(portal, message.rows)
        elif portal.done:
            raise StatementRefused("this portal has been carried out", "55000", given=message.portal)
        else:
            self._start(portal, message.rows)

    def _start(self, portal: _Portal, rows: int) -> None:
        bound = portal.bound
        assert bound is not None
        portal.done = True
        try:
            for answer in self._of_connection(bound.text):
                if isinstance(answer, RowsAnswer):
                    self._notices(answer.notices)
                    self._check_columns(portal, answer.rows)
                    portal.rows, portal.tag = answer.rows, answer.tag if answer.counted else f"{answer.tag}\0"
                    self._some(portal, rows)
                else:
                    self._whole_answer(answer)
        except SqlError as error:
            raise self._placed(error, portal) from error

    def _check_columns(self, portal: _Portal, rows: pa.Table) -> None:
        if portal.described is not None and portal.described != wire_columns(rows.schema):
            raise StatementRefused(
                "the statement has other columns than it had when it was described",
                "0A000",
                given=str(rows.schema.names),
            )

    def _some(self, portal: _Portal, most: int) -> None:
        """The next rows of a portal; if there may be more, it is suspended."""
        assert portal.rows is not None
        part = portal.rows.slice(portal.place, most if most > 0 else None)
        portal.place += part.num_rows
        self._rows(part, _formats(portal.formats, part.num_columns))
        if 0 < most == part.num_rows:
            self._put(r.PORTAL_SUSPENDED)
        else:
            answer = RowsAnswer(portal.tag.removesuffix("\0"), rows=part, counted="\0" not in portal.tag)
            self._put(r.command_complete(_tag(answer, part.num_rows)))

    # --- sending -----------------------------------------------------------------------------------------------------

    def _placed(self, error: SqlError, portal: _Portal | None) -> SqlError:
        """An error at its place in the text that the client has sent, where values were `$1`."""
        if portal is None or portal.statement is None or not error.text:
            return error
        ends = [place_before(portal.statement, portal.literals, place) for place in error.at]
        text = " " * portal.statement.start + portal.statement.text
        at = (portal.statement.start + ends[0], portal.statement.start + ends[1])
        return SqlError.of(error.message, text, at, given=error.given, allowed=error.allowed, instead=error.instead)

    def _notices(self, notices: Iterable[tuple[str, str]]) -> None:
        for severity, message in notices:
            self._put(r.fault("notice", notice_fields(message, severity=severity)))

    def _report(self, error: Exception, start: int) -> None:
        if not isinstance(error, HeadraceError):
            _LOG.error("a statement has failed inside the server", exc_info=error)
        self.statements.fail()
        self._put(r.fault("error", error_fields(error, start=start)))

    def _ready(self) -> None:
        self._put(r.ready(self.statements.transaction))
        self._flush()

    def _put(self, data: bytes) -> None:
        self._out += data
        if len(self._out) >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            data, self._out = bytes(self._out), bytearray()
            self._send(data)


def _tag(answer: RowsAnswer, count: int) -> str:
    if not answer.counted:
        return answer.tag
    return f"INSERT 0 {count}" if answer.tag == "INSERT" else f"{answer.tag} {count}"


def _formats(given: Sequence[int], count: int) -> list[int]:
    """The format of each column: one for each, one for all, or text."""
    if len(given) not in (0, 1, count) or any(form not in (0, 1) for form in given):
        raise m.ProtocolError("the formats do not fit the columns", given=len(given), allowed=f"0, 1 or {count}")
    return list(given) * count if len(given) == 1 else list(given) or [0] * count


def _copied(value: bytes | None) -> bytes:
    """A value of a line of COPY."""
    if value is None:
        return b"\\N"
    if any(sign in value for sign in (b"\\", b"\t", b"\n", b"\r")):
        value = value.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    return value
