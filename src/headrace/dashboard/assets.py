"""The files of the page, and the headers with which they are sent."""

from __future__ import annotations

from functools import cache
from pathlib import Path

__all__ = ["FOLDER", "PAGE", "PAGE_HEADERS", "asset"]

FOLDER = Path(__file__).parent / "static"
_KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
PAGE = "index.html"
#: Scripts, styles and requests of the page's own server, and nothing from elsewhere.
PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cache-control": "no-cache",
}


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """The bytes of a file of the page, and their media type; None if there is no such file."""
    if name not in {file.name for file in FOLDER.iterdir() if file.suffix in _KINDS}:
        return None
    return (FOLDER / name).read_bytes(), _KINDS[Path(name).suffix]
