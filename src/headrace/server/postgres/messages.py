"""Messages of clients: bytes to values, without a socket.

A message is a letter, a length and a body; only the first one has no letter. A body that does not have the parts that
its letter asks for is a `ProtocolError`, which ends the connection, as PostgreSQL does: what follows it cannot be
trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.errors import ServerError

__all__ = [
    "STARTUP_BYTES", "BindMessage", "CancelMessage", "CloseMessage", "DescribeMessage", "EncryptionMessage",
    "ExecuteMessage", "FlushMessage", "FrontMessage", "OtherMessage", "ParseMessage", "PasswordMessage",
    "ProtocolError", "QueryMessage", "StartupMessage", "SyncMessage", "TerminateMessage", "opening", "read_message",
]  # fmt: skip

#: The most bytes of the first message, which comes before anybody is known.
STARTUP_BYTES = 10_000
_CANCEL, _SSL, _GSS = 80877102, 80877103, 80877104
_INT16, _INT32 = struct.Struct("!h"), struct.Struct("!i")


class ProtocolError(ServerError):
    """Bytes that are no message of PostgreSQL's protocol, or a message that may not come now."""

    code = "PROTOCOL"


@dataclass(frozen=True)
class StartupMessage:
    """The first message: the version of the protocol, and the settings of the client."""

    minor: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class EncryptionMessage:
    """A client asks for TLS, or for GSS."""

    tls: bool


@dataclass(frozen=True)
class CancelMessage:
    """Another connection's key: interrupt its statement."""

    process: int
    secret: int


@dataclass(frozen=True)
class PasswordMessage:
    """The token."""

    password: str


@dataclass(frozen=True)
class QueryMessage:
    """Statements to carry out at once."""

    text: str


@dataclass(frozen=True)
class ParseMessage:
    """A statement to prepare; `types` are those of its first parameters, 0 where the client does not say."""

    name: str
    text: str
    types: tuple[int, ...]


@dataclass(frozen=True)
class BindMessage:
    """Values for a prepared statement. A format is 0 (text) or 1 (binary): one for each, one for all, or none."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class DescribeMessage:
    """Which columns a prepared statement (`S`) or a portal (`P`) has."""

    kind: str
    name: str


@dataclass(frozen=True)
class ExecuteMessage:
    """Carry out a portal; at most `rows` rows at a time, 0 for all."""

    portal: str
    rows: int


@dataclass(frozen=True)
class CloseMessage:
    """Forget a prepared statement (`S`) or a portal (`P`)."""

    kind: str
    name: str


@dataclass(frozen=True)
class SyncMessage:
    """The end of a group of messages."""


@dataclass(frozen=True)
class FlushMessage:
    """Send what there is."""


@dataclass(frozen=True)
class TerminateMessage:
    """The client ends the connection."""


@dataclass(frozen=True)
class OtherMessage:
    """A message of the protocol that this server does not use: of COPY, or a function call."""

    letter: str


FrontMessage: TypeAlias = (
    PasswordMessage | QueryMessage | ParseMessage | BindMessage | DescribeMessage | ExecuteMessage | CloseMessage
    | SyncMessage | FlushMessage | TerminateMessage | OtherMessage
)  # fmt: skip


class _Body:
    """The body of a message, read part by part."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.what, self.place = data, what, 0

    def take(self, count: int) -> bytes:
        part = self.data[self.place : self.place + count]
        if count < 0 or len(part) < count:
            raise ProtocolError(f"{self.what} ends too early", given=f"{len(self.data)} bytes")
        self.place += count
        return part

    def int16(self) -> int:
        value: int = _INT16.unpack(self.take(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self.take(4))[0]
        return value

    def text(self) -> str:
        end = self.data.find(b"\0", self.place)
        if end < 0:
            raise ProtocolError(f"a text of {self.what} has no end", given=f"{len(self.data)} bytes")
        part, self.place = self.data[self.place : end], end + 1
        try:
            return part.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a text of {self.what} is not UTF-8", allowed="client_encoding UTF8") from error

    def many(self, part: Callable[[], int]) -> tuple[int, ...]:
        """A count, and so many numbers."""
        return tuple(part() for _ in range(self._count()))

    def values(self) -> tuple[bytes | None, ...]:
        """A count, and so many values with their lengths; a length of -1 is NULL."""
        found: list[bytes | None] = []
        for _ in range(self._count()):
            length = self.int32()
            found.append(None if length == -1 else self.take(length))
        return tuple(found)

    def _count(self) -> int:
        return self.int16() & 0xFFFF

    def end(self) -> None:
        if self.place != len(self.data):
            raise ProtocolError(f"{self.what} has {len(self.data) - self.place} bytes too many")


def opening(data: bytes) -> StartupMessage | EncryptionMessage | CancelMessage:
    """The first message, without its length."""
    body = _Body(data, "the first message")
    number = body.int32()
    if number == _CANCEL:
        return CancelMessage(body.int32(), body.int32())
    if number in (_SSL, _GSS):
        return EncryptionMessage(number == _SSL)
    if number >> 16 != 3:
        raise ProtocolError(
            "this version of the protocol is unknown", given=f"{number >> 16}.{number & 0xFFFF}", allowed="3.0"
        )
    settings: dict[str, str] = {}
    while name := body.text():
        settings[name] = body.text()
    body.end()
    return StartupMessage(number & 0xFFFF, settings)


def read_message(letter: str, data: bytes) -> FrontMessage:
    """A later message, by its letter and its body."""
    reader = _READERS.get(letter)
    if reader is None:
        if letter in _UNUSED:
            return OtherMessage(letter)
        raise ProtocolError("there is no message of this letter", given=letter, allowed=", ".join(_READERS))
    body = _Body(data, f"a message {letter}")
    message = reader(body)
    body.end()
    return message


def _describe(body: _Body) -> DescribeMessage:
    return DescribeMessage(_kind(body), body.text())


def _close(body: _Body) -> CloseMessage:
    return CloseMessage(_kind(body), body.text())


def _kind(body: _Body) -> str:
    kind = body.take(1).decode("latin-1")
    if kind not in ("S", "P"):
        raise ProtocolError(f"{body.what} is about nothing known", given=kind, allowed="S, P")
    return kind


def _bind(body: _Body) -> BindMessage:
    portal, statement = body.text(), body.text()
    formats, values = body.many(body.int16), body.values()
    return BindMessage(portal, statement, formats, values, body.many(body.int16))


_READERS: Mapping[str, Callable[[_Body], FrontMessage]] = {
    "p": lambda body: PasswordMessage(body.text()),
    "Q": lambda body: QueryMessage(body.text()),
    "P": lambda body: ParseMessage(body.text(), body.text(), body.many(lambda: body.int32() & 0xFFFFFFFF)),
    "B": _bind,
    "D": _describe,
    "E": lambda body: ExecuteMessage(body.text(), body.int32()),
    "C": _close,
    "S": lambda _: SyncMessage(),
    "H": lambda _: FlushMessage(),
    "X": lambda _: TerminateMessage(),
}
#: CopyData, CopyDone, CopyFail and FunctionCall.
_UNUSED = frozenset("dcfF")
