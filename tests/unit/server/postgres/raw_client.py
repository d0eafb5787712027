"""A client that says what a test wants it to say, message by message."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.fixtures.waiting import PATIENCE

__all__ = ["RawClient", "message", "startup"]


def message(letter: str, body: bytes = b"") -> bytes:
    return letter.encode() + struct.pack("!i", len(body) + 4) + body


def startup(version: int = 3 << 16, **settings: str) -> bytes:
    pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in settings.items())
    body = struct.pack("!i", version) + pairs + b"\0"
    return struct.pack("!i", len(body) + 4) + body


class RawClient:
    """A socket, and the messages that have arrived; it has started unless `hello` is empty."""

    def __init__(self, port: int, hello: bytes | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.buffer = b""
        if hello is None:
            self.socket.sendall(startup(user="me", database="headrace"))
            self.started = self.until("Z")
        elif hello:
            self.socket.sendall(hello)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def send(self, *messages: bytes) -> None:
        self.socket.sendall(b"".join(messages))

    def bytes(self, count: int) -> bytes:
        while len(self.buffer) < count:
            part = self.socket.recv(65536)
            if not part:
                raise EOFError
            self.buffer += part
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def message(self) -> tuple[str, bytes]:
        head = self.bytes(5)
        return head[:1].decode(), self.bytes(struct.unpack("!i", head[1:])[0] - 4)

    def until(self, letter: str) -> list[tuple[str, bytes]]:
        found = [self.message()]
        while found[-1][0] != letter:
            found.append(self.message())
        return found

    def letters(self, letter: str = "Z") -> str:
        return "".join(kind for kind, _ in self.until(letter))

    def query(self, text: str) -> list[tuple[str, bytes]]:
        self.send(message("Q", text.encode() + b"\0"))
        return self.until("Z")

    def rows(self, text: str) -> list[tuple[bytes | None, ...]]:
        return [values(body) for kind, body in self.query(text) if kind == "D"]

    def error(self, text: str) -> Mapping[str, str]:
        return next(fields(body) for kind, body in self.query(text) if kind == "E")

    def tags(self, text: str) -> list[str]:
        return [body[:-1].decode() for kind, body in self.query(text) if kind == "C"]

    def is_closed(self) -> bool:
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        return True


def values(body: bytes) -> tuple[bytes | None, ...]:
    """The values of a DataRow."""
    (count,), place = struct.unpack_from("!h", body), 2
    found: list[bytes | None] = []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, place)
        place += 4
        found.append(None if length < 0 else body[place : place + length])
        place += max(length, 0)
    return tuple(found)


def fields(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}


def parse(name: str, text: str, types: Sequence[int] = ()) -> bytes:
    return message(
        "P",
        f"{name}\0{text}\0".encode() + struct.pack("!h", len(types)) + b"".join(struct.pack("!I", t) for t in types),
    )


def bind(
    portal: str, name: str, given: Sequence[bytes | None] = (), formats: Sequence[int] = (), results: Sequence[int] = ()
) -> bytes:
    body = f"{portal}\0{name}\0".encode() + struct.pack(f"!h{len(formats)}h", len(formats), *formats)
    body += struct.pack("!h", len(given))
    for value in given:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return message("B", body + struct.pack(f"!h{len(results)}h", len(results), *results))


def describe(kind: str, name: str) -> bytes:
    return message("D", f"{kind}{name}\0".encode())


def execute(portal: str, rows: int = 0) -> bytes:
    return message("E", portal.encode() + b"\0" + struct.pack("!i", rows))


SYNC = message("S")
