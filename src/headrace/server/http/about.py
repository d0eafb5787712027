"""Routes about the server itself: `/health`, `/ready`, `/metrics`, `/openapi.json` and `/docs`."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from headrace.errors import HeadraceError
from headrace.server.http.openapi import description
from headrace.server.http.ways import Ways
from headrace.server.interface import Who

__all__ = ["docs", "health", "metrics", "openapi", "ready"]


async def health(ways: Ways, request: Request, _: Who | None) -> Response:
    """Whether the server lives: 503 says that it needs a new start. A query that failed is in the body, and no reason
    for one. Who may read is shown the state of every query.
    """
    found = await ways.call(ways.server.health)
    whole = await _may_read(ways, request)
    shown: Mapping[str, Any] = found if whole else {name: found[name] for name in ("alive", "ok")}
    return Response(json.dumps(shown, default=str), 200 if found["alive"] else 503, media_type="application/json")


async def ready(ways: Ways, request: Request, _: Who | None) -> Response:
    """Whether requests are taken: not while the server stops, nor while it cannot write."""
    del request
    taken = not ways.stopping and (await ways.call(ways.server.health))["alive"]
    return JSONResponse({"ready": taken}, 200 if taken else 503)


async def _may_read(ways: Ways, request: Request) -> bool:
    try:
        await ways.identify(request)
    except HeadraceError:
        return False
    return True


async def metrics(ways: Ways, request: Request, _: Who | None) -> Response:
    """The metrics, as Prometheus reads them."""
    del request
    text, kind = await ways.call(lambda: ways.metrics.exposition(ways.server))
    return Response(text, media_type=kind)


async def openapi(ways: Ways, request: Request, _: Who | None) -> Response:
    """The routes, as OpenAPI describes them."""
    del ways, request
    return JSONResponse(description())


async def docs(ways: Ways, request: Request, _: Who | None) -> Response:
    """The routes, for people; the page loads nothing."""
    del ways, request
    policy = f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"
    return HTMLResponse(_page(), headers={"content-security-policy": f"{policy}; frame-ancestors 'none'"})


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-family:ui-monospace,monospace}pre{background:#8882;padding:.7rem;overflow:auto}"
    "h2{margin-top:2rem;font-size:1.1rem}"
)


def _page() -> str:
    about = description()
    parts = [f"<h1>{escape(about['info']['title'])}</h1><p>{escape(about['info']['description'])}</p>"]
    for path, methods in about["paths"].items():
        for method, route in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(route['description'])}</p>")
            parts.append(f"<p>Needs: {escape(route['x-role'] or 'nothing')}.</p>")
            if "x-example" in route:
                parts.append(f"<pre>{escape(route['x-example'])}</pre>")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Headrace</title>'
        f"<style>{_STYLE}</style><body>{''.join(parts)}</body></html>"
    )
