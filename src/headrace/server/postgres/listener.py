"""The socket: connections, TLS, who a client is, and cancellation.

The event loop reads messages ahead, a few at a time, and hands them to the session of their connection one after the
other, in a thread. So it notices a client that goes away while a statement runs, and interrupts the statement. What a
session sends waits until the client takes it: a slow client has a full buffer of its own, and slows nobody else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from headrace.errors import AccessError, HeadraceError, ServerError
from headrace.server.interface import Server, Who
from headrace.server.postgres import messages as m
from headrace.server.postgres import replies as r
from headrace.server.postgres.session import WireSession
from headrace.server.postgres.settings import ClientSettings
from headrace.server.postgres.states import StatementRefused, error_fields

__all__ = ["PostgresListener", "WireLimits", "listening"]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class WireLimits:
    """What clients may use."""

    connections: int = 100
    message_bytes: int = 16 << 20
    #: From the connection until it is known who the client is.
    startup_seconds: float = 30.0
    #: How long a client may leave its answers unread before it is cut off.
    unread_seconds: float = 300.0


class _Gone(Exception):
    """The client has ended the connection."""


class PostgresListener:
    """Listens for clients of PostgreSQL's protocol, for a running server.

    Without `tls`, tokens are taken on loopback alone: elsewhere they could be read on the way.
    """

    def __init__(
        self, server: Server, *, host: str = "127.0.0.1", port: int = 5433, tls: ssl.SSLContext | None = None,
        limits: WireLimits | None = None,
    ) -> None:  # fmt: skip
        self.server, self.host, self.port, self.tls = server, host, port, tls
        self.limits = limits or WireLimits()
        self._pool = ThreadPoolExecutor(self.limits.connections, "headrace-postgres")
        self._keys: dict[tuple[int, int], WireSession] = {}
        self._open: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; with port 0, `port` is then the one that was free."""
        try:
            self._listening = await asyncio.start_server(self._connected, self.host, self.port, backlog=256)
        except OSError as error:
            raise ServerError(
                f"cannot listen on {self.host}, port {self.port}: {error.strerror}", given=self.port,
                instead="another --postgres-port, or --no-postgres",
            ) from error  # fmt: skip
        self.port = self._listening.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End all connections: running statements are interrupted."""
        if self._listening is not None:
            self._listening.close()
        for task in list(self._open):
            task.cancel()
        while rest := self._open | self._ending:
            done, _ = await asyncio.wait(rest, timeout=10)
            if not done:
                break  # a statement that cannot be interrupted
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        client = _Client(self, reader, writer)
        try:
            await client.converse()
        except (_Gone, OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # it has gone
        except asyncio.CancelledError:
            await client.refuse(StatementRefused("the server is stopping", "57P01"))
        except HeadraceError as error:
            await client.refuse(error)
        except Exception:  # noqa: BLE001 - one connection must not end the server
            _LOG.exception("a connection has failed inside the server")
        finally:
            self._open.discard(task)
            writer.close()
            with suppress(OSError, TimeoutError, ssl.SSLError):
                await asyncio.wait_for(writer.wait_closed(), 5)

    @property
    def is_full(self) -> bool:
        return len(self._open) > self.limits.connections

    def cancel(self, message: m.CancelMessage) -> WireSession | None:
        """The session that a key belongs to."""
        return self._keys.get((message.process, message.secret))

    def enter(self, session: WireSession) -> tuple[int, int]:
        """A new key, by which other connections of the client can interrupt this one."""
        key = (secrets.randbelow((1 << 31) - 1) + 1, secrets.randbits(32) - (1 << 31))
        self._keys[key] = session
        return key

    def leave(self, key: tuple[int, int]) -> None:
        self._keys.pop(key, None)

    async def end(self, session: WireSession) -> None:
        """End a session, also if the task that asks for it is cancelled meanwhile."""
        task = asyncio.create_task(self.in_thread(partial(_end, session)))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """A call that blocks. A connection makes one at a time, so there is a thread for each."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


@contextmanager
def listening(server: Server, **options: Any) -> Iterator[PostgresListener]:
    """A listener in a thread with an event loop of its own; options as for `PostgresListener`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="headrace-postgres", daemon=True)
    thread.start()
    listener = PostgresListener(server, **options)
    try:
        asyncio.run_coroutine_threadsafe(listener.start(), loop).result()
        yield listener
    finally:
        asyncio.run_coroutine_threadsafe(listener.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Client:
    """One connection."""

    def __init__(self, listener: PostgresListener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.listener, self.reader, self.writer = listener, reader, writer
        self.limits = listener.limits
        self.encrypted = False
        #: Bytes that were read ahead.
        self.unhandled = 0
        self.handled = asyncio.Event()

    async def converse(self) -> None:
        """From the first message to the last."""
        async with asyncio.timeout(self.limits.startup_seconds):
            opening = await self._opening()
            if isinstance(opening, m.CancelMessage):
                await self._cancel(opening)
                return
            if self.listener.is_full:
                allowed = f"{self.limits.connections} connections"
                raise StatementRefused("too many clients are connected", "53300", allowed=allowed)
            who = await self._authenticated()
        await self._serve(opening, who)

    async def refuse(self, error: HeadraceError) -> None:
        """Say why the connection ends."""
        with suppress(OSError, TimeoutError, RuntimeError):
            self.writer.write(r.fault("error", _fatal(error)))
            await asyncio.wait_for(self.writer.drain(), 5)

    # --- the beginning -----------------------------------------------------------------------------------------------

    async def _opening(self) -> m.StartupMessage | m.CancelMessage:
        asked: set[bool] = set()
        while True:
            (length,) = struct.unpack("!i", await self.reader.readexactly(4))
            if not 8 <= length <= m.STARTUP_BYTES:
                raise m.ProtocolError("this is no client of PostgreSQL's protocol", given=f"a length of {length}")
            found = m.opening(await self.reader.readexactly(length - 4))
            if not isinstance(found, m.EncryptionMessage):
                return found
            if found.tls in asked or self.encrypted:
                raise m.ProtocolError("encryption is asked for twice")
            asked.add(found.tls)
            await self._encrypt(found.tls)

    async def _encrypt(self, tls: bool) -> None:
        if not tls or self.listener.tls is None:
            self.writer.write(b"N")
            await self.writer.drain()
            return
        if self.reader._buffer:  # type: ignore[attr-defined]  # noqa: SLF001 - plain bytes that would count as encrypted
            raise m.ProtocolError("a client sends before its connection is encrypted")
        self.writer.write(b"S")
        await self.writer.drain()
        await self.writer.start_tls(self.listener.tls)
        self.encrypted = True

    async def _authenticated(self) -> Who:
        loopback = self._is_loopback()
        authenticate = self.listener.server.authenticate
        if loopback:
            with suppress(AccessError):
                return await self.listener.in_thread(partial(authenticate, None, loopback=True))
        elif not self.encrypted:
            raise StatementRefused(
                "a token is not taken over a connection that others can read", "28000",
                allowed="TLS, or a connection from this machine", instead="sslmode=require",
            )  # fmt: skip
        self.writer.write(r.PASSWORD_WANTED)
        await self.writer.drain()
        message = await self._message(m.STARTUP_BYTES)
        if not isinstance(message, m.PasswordMessage):
            raise m.ProtocolError("a password is wanted", given=type(message).__name__, instead="a token, as password")
        try:
            return await self.listener.in_thread(partial(authenticate, message.password, loopback=loopback))
        except AccessError as error:
            raise StatementRefused(error.message, "28P01", allowed=error.allowed, instead=error.instead) from error

    def _address(self) -> str:
        """The address of the client; empty if it has none."""
        found = self.writer.get_extra_info("peername")
        return str(found[0]) if isinstance(found, tuple) and found else ""

    def _is_loopback(self) -> bool:
        try:
            found = ipaddress.ip_address(self._address().partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return (mapped or found).is_loopback

    async def _cancel(self, message: m.CancelMessage) -> None:
        session = self.listener.cancel(message)
        if session is not None:
            await asyncio.to_thread(session.statements.interrupt)

    # --- the rest ----------------------------------------------------------------------------------------------------

    async def _serve(self, opening: m.StartupMessage, who: Who) -> None:
        loop = asyncio.get_running_loop()
        settings = ClientSettings(who.name, opening.settings)
        database = opening.settings.get("database") or "headrace"
        connection = await self.listener.in_thread(partial(self.listener.server.connect, who, self._address()))
        send = partial(self._send_from_thread, loop)
        session = WireSession(connection, settings, database, send)
        key = self.listener.enter(session)
        try:
            unknown = [name for name in opening.settings if name.startswith("_pq_.")]
            hello = r.negotiate(unknown) if unknown or opening.minor else b""
            statuses = b"".join(r.parameter_status(name, value) for name, value in settings.reported())
            self.writer.write(hello + r.TRUSTED + statuses + r.backend_key(*key) + r.ready("I"))
            await self.writer.drain()
            await self._exchange(session)
        finally:
            self.listener.leave(key)
            session.statements.interrupt()
            await self.listener.end(session)

    async def _exchange(self, session: WireSession) -> None:
        """Read ahead in one task, and carry out in another; the end of either ends both."""
        waiting: asyncio.Queue[m.FrontMessage | HeadraceError | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read_ahead(waiting, session))
        try:
            while True:
                batch = [await waiting.get()]
                while not waiting.empty():
                    batch.append(waiting.get_nowait())
                self.unhandled = 0
                self.handled.set()
                found = [one for one in batch if one is not None and not isinstance(one, HeadraceError)]
                if found:
                    await self._carried_out(session, found)
                last = batch[-1]
                if isinstance(last, HeadraceError):
                    raise last
                if last is None:
                    return
        finally:
            reading.cancel()

    async def _carried_out(self, session: WireSession, found: list[m.FrontMessage]) -> None:
        running = asyncio.ensure_future(self.listener.in_thread(partial(_handle, session, found)))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:  # the server stops: the thread must end before its session does
            session.statements.interrupt()
            with suppress(Exception):
                await asyncio.wait_for(running, 5)
            raise

    async def _read_ahead(
        self, waiting: asyncio.Queue[m.FrontMessage | HeadraceError | None], session: WireSession
    ) -> None:
        """Put messages into the queue; the last is None, or an error."""
        last: HeadraceError | None = None
        try:
            while not isinstance(message := await self._message(self.limits.message_bytes), m.TerminateMessage):
                waiting.put_nowait(message)
                if self.unhandled > self.limits.message_bytes:
                    self.handled.clear()
                    await self.handled.wait()
        except HeadraceError as error:
            last = error
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.to_thread(session.statements.interrupt)  # it may wait for a lock
        session.statements.leave()
        waiting.put_nowait(last)

    async def _message(self, most: int) -> m.FrontMessage:
        head = await self.reader.readexactly(5)
        length = int.from_bytes(head[1:], "big", signed=True)
        if not 4 <= length <= most:
            raise StatementRefused("a message is too long", "54000", given=f"{length} bytes", allowed=f"{most} bytes")
        self.unhandled += length
        return m.read_message(head[:1].decode("latin-1"), await self.reader.readexactly(length - 4))

    def _send_from_thread(self, loop: asyncio.AbstractEventLoop, data: bytes) -> None:
        sent = asyncio.run_coroutine_threadsafe(self._send(data), loop)
        try:
            sent.result(self.limits.unread_seconds)
        except TimeoutError as error:
            sent.cancel()
            self.writer.transport.abort()
            raise ConnectionAbortedError("the client does not read its answers") from error

    async def _send(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise ConnectionResetError("the client has gone")
        self.writer.write(data)
        await self.writer.drain()


def _handle(session: WireSession, found: list[m.FrontMessage]) -> None:
    for message in found:
        session.handle(message)


def _end(session: WireSession) -> None:
    session.close()
    session.statements.connection.close()


def _fatal(error: HeadraceError) -> dict[str, str]:
    return dict(error_fields(error, severity="FATAL"))
