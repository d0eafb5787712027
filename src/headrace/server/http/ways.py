"""What all routes share: the server, the settings, the limits in use, and who a request comes from."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request

from headrace.dashboard.open_traces import OpenTraces
from headrace.errors import AccessError
from headrace.server.access import AuditLog, Limits, Slots
from headrace.server.http.news import News
from headrace.server.interface import Connection, Server, Who
from headrace.server.metrics import Metrics

__all__ = ["HttpSettings", "Ways", "is_loopback"]

T = TypeVar("T")
#: Headers of proxies: a request that has one comes from elsewhere, although the proxy is on this machine.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


@dataclass(frozen=True)
class HttpSettings:
    """How a server is reached. `hosts` are further names under which clients know it, `*` for any; `origins` are the
    sites whose pages may use it.
    """

    limits: Limits = field(default_factory=Limits)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    #: Allow clients of other machines without TLS, such as behind a proxy that has it.
    plain: bool = False
    #: Seconds after which a subscription without news shows that it lives, and that a client may take to read.
    heartbeat: float = 15.0
    patience: float = 60.0
    audit: AuditLog | None = None


class Ways:
    """The state of a running application."""

    def __init__(self, server: Server, settings: HttpSettings, metrics: Metrics) -> None:
        self.server, self.settings, self.metrics = server, settings, metrics
        self.limits = settings.limits
        self.connections = Slots("connections", self.limits.connections)
        self.subscriptions = Slots("subscriptions", self.limits.subscriptions)
        #: Traces that run now, of all clients; and what is asked of open ones.
        self.tracing = Slots("traces", 2, shared=True)
        self.questions = Slots("questions", 4)
        self.news = News()
        self.traces = OpenTraces()
        self.stopping = False
        self._calls: anyio.CapacityLimiter | None = None
        self._waits: anyio.CapacityLimiter | None = None

    def stop(self) -> None:
        """End subscriptions, from any thread."""
        self.stopping = True
        self.news.wake_all()

    async def call(self, function: Callable[[], T]) -> T:
        """Call what blocks, in a thread; it goes on when the request is given up."""
        self._calls = self._calls or anyio.CapacityLimiter(64)
        return await anyio.to_thread.run_sync(function, limiter=self._calls, abandon_on_cancel=True)

    async def call_in_time(self, function: Callable[[], T]) -> T:
        """Call what blocks, and give it up after the time of a statement."""
        try:
            with anyio.fail_after(self.limits.statement_seconds):
                return await self.call(function)
        except TimeoutError as error:
            raise self.limits.out_of_time() from error

    async def wait(self, function: Callable[[], T]) -> T:
        """Wait in a thread for the news of a subscription."""
        self._waits = self._waits or anyio.CapacityLimiter(1024)
        return await anyio.to_thread.run_sync(function, limiter=self._waits)

    @contextmanager
    def connected(self, who: Who, request: Request) -> Iterator[Connection]:
        """A connection for one request."""
        with self.connections.use(who):
            connection = self.server.connect(who, _origin(request))
            try:
                yield connection
            finally:
                connection.close()

    async def identify(self, request: Request) -> Who:
        """Who sent a request."""
        loopback = is_loopback(request)
        if not loopback and request.url.scheme != "https" and not self.settings.plain:
            raise AccessError(
                "clients of other machines need TLS", given=request.url.scheme, allowed="https",
                instead="headrace serve with a certificate, or behind a proxy that has one",
            )  # fmt: skip
        token = _token(request)
        if token is None:  # nothing is looked up
            return self.server.authenticate(None, loopback=loopback)
        return await self.call(lambda: self.server.authenticate(token, loopback=loopback))

    def note(self, request: Request, who: Who | None, what: str, error: BaseException | None = None) -> None:
        """Note a request in the audit log; connections note statements and inserts."""
        if self.settings.audit is not None:
            self.settings.audit.note(who or Who("(unknown)", "reader"), _origin(request), what, error)


def _origin(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def is_loopback(request: Request) -> bool:
    """Whether a request comes from this machine, and not through a proxy."""
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    return _loopback(request.client.host)


@lru_cache(1_000)
def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return None
    kind, _, token = header.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise AccessError(
            "the header Authorization has no token", given=kind, allowed="Bearer", instead="Authorization: Bearer hr_…"
        )
    return token.strip()
