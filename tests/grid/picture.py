"""The picture of the grid: a rectangle for each cell, as SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape

from tests.grid.disruptions import Disruption
from tests.grid.features import Feature
from tests.grid.run import CellResult, Outcome

__all__ = ["COLOURS", "picture"]

COLOURS: Mapping[Outcome, str] = {
    "exact": "#4c9f70",
    "typed error": "#6fa8dc",
    "wrong": "#d62728",
    "not applicable": "#e4e4e4",
}
MEANING = {
    "exact": "the exact answer",
    "typed error": "a typed error, then the exact answer",
    "wrong": "wrong",
    "not applicable": "makes no sense",
}
SIDE, LEFT, TOP = 11, 160, 200


def picture(
    results: Iterable[CellResult], features: Mapping[str, Feature], disruptions: Mapping[str, Disruption]
) -> str:
    """The whole picture: rows are features, columns disruptions, with the counts below."""
    found = {(result.feature, result.disruption): result.outcome for result in results}
    rows = [name for name in features if any(cell[0] == name for cell in found)]
    columns = [name for name in disruptions if any(cell[1] == name for cell in found)]
    width, height = LEFT + SIDE * len(columns) + 20, TOP + SIDE * len(rows) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        '<g font-size="8">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *_labels(rows, columns),
        *_cells(found, rows, columns),
        *_legend(found.values(), TOP + SIDE * len(rows) + 14),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


def _labels(rows: list[str], columns: list[str]) -> list[str]:
    found = [
        f'<text x="{LEFT - 4}" y="{TOP + SIDE * y + 8}" text-anchor="end">{escape(name)}</text>'
        for y, name in enumerate(rows)
    ]
    for x, name in enumerate(columns):
        at = LEFT + SIDE * x + 8
        found.append(f'<text x="{at}" y="{TOP - 4}" transform="rotate(-90 {at} {TOP - 4})">{escape(name)}</text>')
    return found


def _cells(found: Mapping[tuple[str, str], Outcome], rows: list[str], columns: list[str]) -> list[str]:
    """One path for each colour: the file stays small."""
    parts = []
    for outcome, colour in COLOURS.items():
        squares = [
            f"M{LEFT + SIDE * x} {TOP + SIDE * y}h{SIDE - 1}v{SIDE - 1}h-{SIDE - 1}z"
            for y, row in enumerate(rows)
            for x, column in enumerate(columns)
            if found.get((row, column)) == outcome
        ]
        if squares:
            parts.append(f'<path fill="{colour}" d="{"".join(squares)}"/>')
    return parts


def _legend(outcomes: Iterable[Outcome], y: int) -> list[str]:
    counts = Counter(outcomes)
    found, x = [], LEFT
    for outcome, colour in COLOURS.items():
        text = f"{counts[outcome]:,} {MEANING[outcome]}"
        found.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour}"/>')
        found.append(f'<text x="{x + 14}" y="{y + 8}">{text}</text>')
        x += 30 + 5 * len(text)
    return found
