"""Errors as PostgreSQL reports them: a class of SQLSTATE, a place in the text, a detail and a hint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.errors import (
    AccessError,
    BadRow,
    EventError,
    ExpressionError,
    HeadraceError,
    HostError,
    LateEvent,
    LimitError,
    SchemaError,
    ServerError,
    SqlError,
    StatementCancelled,
    SubscriptionError,
    TableError,
    TimeError,
    Unavailable,
    UnknownColumn,
)  # fmt: skip
from headrace.literals import sql_text
from headrace.server.postgres.messages import ProtocolError
from headrace.server.postgres.parameters import ParameterError

__all__ = ["StatementRefused", "error_fields", "notice_fields"]


class StatementRefused(ServerError):
    """A statement that this way in does not carry out; `state` is the SQLSTATE that says why."""

    code = "STATEMENT"

    def __init__(self, message: str, state: str, *, given: object = None, allowed: str = "", instead: str = "") -> None:
        super().__init__(message, given=given, allowed=allowed, instead=instead)
        self.state = state


#: The first class that an error is of decides.
_STATES: Sequence[tuple[type[BaseException], str]] = (
    (StatementCancelled, "57014"),
    (ProtocolError, "08P01"),
    (ParameterError, "22P02"),
    (AccessError, "42501"),
    (LimitError, "54000"),
    (SubscriptionError, "55000"),
    (ServerError, "55000"),
    (SqlError, "42601"),
    (UnknownColumn, "42703"),
    (TimeError, "22007"),
    (TableError, "23000"),
    (BadRow, "22P02"),
    (LateEvent, "23514"),
    (EventError, "22000"),
    (SchemaError, "42P16"),
    (ExpressionError, "42804"),
    (Unavailable, "08006"),
    (HostError, "58000"),
    (HeadraceError, "XX000"),
)
#: Of limits that are not about the size of a message, by their names.
_LIMIT_STATES = {
    "statement_seconds": "57014", "statement_memory": "53200", "connections": "53300", "subscriptions": "53400",
}  # fmt: skip
#: Words in messages of the binder that have a class of their own.
_BY_WORDS = (
    ("there is no column", "42703"), ("there is no function", "42883"), ("there is no stream", "42P01"),
    ("there is no table", "42P01"), ("there is no view", "42P01"), ("exists already", "42P07"),
    ("cannot take", "42804"),
)  # fmt: skip


def error_fields(error: BaseException, *, start: int = 0, severity: str = "ERROR") -> Mapping[str, str]:
    """The fields of an ErrorResponse; `start` is the place of the statement in the client's text."""
    fields = {"S": severity, "V": severity, "C": _state(error)}
    if not isinstance(error, HeadraceError):
        return fields | {"M": "the server has failed: its log says more"}
    fields["M"] = error.message
    given = "" if error.given is None else f"given: {sql_text(error.given)}"
    fields["D"] = "\n".join(part for part in (given, error.allowed and f"allowed: {error.allowed}") if part)
    fields["H"] = f"instead: {error.instead}" if error.instead else ""
    if isinstance(error, SqlError) and error.text:
        fields["P"] = str(start + error.at[0] + 1)
    return fields


def _state(error: BaseException) -> str:
    if isinstance(error, StatementRefused):
        return error.state
    if isinstance(error, LimitError):
        return _LIMIT_STATES.get(error.allowed.partition(":")[0], "54000")
    if isinstance(error, (SqlError, ServerError)):
        for words, state in _BY_WORDS:
            if words in str(error):
                return state
    return next((state for kind, state in _STATES if isinstance(error, kind)), "XX000")


def notice_fields(message: str, *, severity: str = "NOTICE", hint: str = "") -> Mapping[str, str]:
    """The fields of a NoticeResponse."""
    state = "01000" if severity == "WARNING" else "00000"
    return {"S": severity, "V": severity, "C": state, "M": message, "H": hint}
