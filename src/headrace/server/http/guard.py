"""What browsers may do, checked before any route.

Pages of other sites must not use a server that trusts this machine. A page whose name was pointed at this machine (DNS
rebinding) is refused by its `Host`, any other by its `Origin` or `Sec-Fetch-Site`. There are no cookies, and requests
that change something have content types that browsers do not send to other sites unasked.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import AccessError
from headrace.server.http.ways import HttpSettings
from headrace.server.problems import error_to_json

__all__ = ["BrowserGuard"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: As they are sent, unless a reply has one of its own.
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
)


class BrowserGuard:
    """The application behind the checks of hosts and origins; it adds the headers that make replies safe."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, bound: str = "localhost") -> None:
        self.app = app
        self.hosts = _LOOPBACK | {bound} | {host.lower() for host in settings.hosts}
        self.origins = frozenset(origin.rstrip("/") for origin in settings.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the start and the end of the server; there are no web sockets
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), origin)
            await send(message)

        refusal = self._refusal(headers, origin, scope)
        if refusal is not None:
            await JSONResponse(error_to_json(refusal), 403)(scope, receive, sent)
        elif scope["method"] == "OPTIONS" and origin in self.origins:
            await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, sent)
        else:
            await self.app(scope, receive, sent)

    def _refusal(self, headers: Headers, origin: str, scope: Scope) -> AccessError | None:
        host = headers.get("host", "")
        if "*" not in self.hosts and _hostname(host) not in self.hosts:
            return AccessError(
                "this server is not known under this name", given=host, allowed=", ".join(sorted(self.hosts)),
                instead="headrace serve --allow-host NAME, if it is",
            )  # fmt: skip
        own = f"{scope['scheme']}://{host}"
        if origin and origin not in {own, *self.origins}:
            return _foreign(origin)
        if not origin and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _foreign(headers["sec-fetch-site"])
        return None

    def _add_headers(self, headers: MutableHeaders, origin: str) -> None:
        given = {name for name, _ in headers.raw}
        headers.raw.extend(header for header in _SAFE if header[0] not in given)
        if origin in self.origins:
            headers["access-control-allow-origin"] = origin
            headers["cross-origin-resource-policy"] = "cross-origin"
            headers.add_vary_header("Origin")


_PREFLIGHT = {
    "access-control-allow-methods": "DELETE, GET, POST",
    "access-control-allow-headers": "authorization, content-type, accept, idempotency-key, last-event-id",
    "access-control-max-age": "600",
}


def _foreign(given: str) -> AccessError:
    return AccessError(
        "pages of other sites may not use this server",
        given=given,
        instead="headrace serve --allow-origin https://SITE",
    )


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
