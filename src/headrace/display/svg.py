"""A small writer of SVG: the shapes of which timelines and the pictures of the documentation are made.

Every picture has a white background of its own, so that it is readable on light and dark pages. Texts are escaped, and
characters that XML forbids are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

__all__ = [
    "BLUE", "GREEN", "INK", "PAPER", "RED", "SOFT", "YELLOW", "arrow", "bar", "box", "clean", "dot", "line", "picture",
    "spans", "text",
]  # fmt: skip

INK, SOFT, PAPER = "#1f2933", "#7b8794", "#ffffff"
BLUE, GREEN, RED, YELLOW = "#2b6cb0", "#2f855a", "#c53030", "#b7791f"
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(words: str) -> str:
    """Words as they can stand in XML."""
    return escape(_FORBIDDEN.sub("\ufffd", words))


def text(
    x: float, y: float, words: str, *, colour: str = INK, size: float = 13, anchor: str = "start", bold: bool = False,
    more: str = "",
) -> str:  # fmt: skip
    """Words at a place."""
    look = f'fill="{colour}" font-size="{size:g}" text-anchor="{anchor}"' + (' font-weight="600"' if bold else "")
    return f'<text x="{x:g}" y="{y:g}" {look}{more}>{clean(words)}</text>'


def spans(x: float, y: float, parts: Iterable[tuple[str, str]], *, size: float = 13, anchor: str = "start") -> str:
    """Words one after the other, each with a look: `fill="…"` and the like."""
    inner = "".join(f"<tspan {look}>{clean(words)}</tspan>" for words, look in parts)
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" xml:space="preserve">{inner}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, colour: str = SOFT, width: float = 1, more: str = "") -> str:
    """A straight line."""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="{width:g}"{more}/>'


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str = INK) -> str:
    """A line with a head."""
    return line(x1, y1, x2, y2, colour=colour, width=1.5, more=' marker-end="url(#head)"')


def box(
    x: float, y: float, width: float, height: float, *, fill: str, stroke: str, radius: float = 6, more: str = ""
) -> str:
    """A rounded box."""
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
    return f'<rect {size} fill="{fill}" stroke="{stroke}" stroke-width="1.5"{more}/>'


def dot(x: float, y: float, colour: str) -> str:
    """A point event."""
    return f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{colour}"/>'


def bar(x1: float, x2: float, y: float, colour: str, *, ghost: bool = False, endless: bool = False) -> str:
    """A lifetime: closed on the left, open on the right; a ghost is one that is no longer true."""
    look = ' stroke-dasharray="4 4" opacity="0.6"' if ghost else ""
    head = ' marker-end="url(#head)"' if endless else ""
    end = (
        ""
        if endless
        else f'<circle cx="{x2:g}" cy="{y:g}" r="4" fill="{PAPER}" stroke="{colour}" stroke-width="2"{look}/>'
    )
    return line(x1, y, x2, y, colour=colour, width=4, more=look + head) + dot(x1, y, colour) + end


def picture(width: int, height: int, title: str, *parts: str) -> str:
    """A whole SVG file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" role="img">\n<title>{clean(title)}</title>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
        f'markerUnits="userSpaceOnUse"><path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"
