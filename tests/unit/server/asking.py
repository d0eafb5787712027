"""Requests to an application without a socket. (Starlette's own client for tests wants another package.)"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette


class AppClient:
    """A client at an address; every request has an event loop of its own."""

    def __init__(self, app: Starlette, client: str = "127.0.0.1", url: str = "http://localhost") -> None:
        self.app, self.address, self.url = app, client, url

    def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        content = request.get("content")
        if isinstance(content, Iterator):
            request["content"] = _parts(content)

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=(self.address, 1))
            async with httpx.AsyncClient(transport=transport, base_url=self.url) as client:
                return await client.request(method, path, **request)

        return anyio.run(send)

    def get(self, path: str, **request: Any) -> httpx.Response:
        return self.request("GET", path, **request)

    def post(self, path: str, **request: Any) -> httpx.Response:
        return self.request("POST", path, **request)


async def _parts(content: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in content:
        yield part
