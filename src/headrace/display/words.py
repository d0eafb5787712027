"""Streams, runs and results in a line or two, for `repr`. It never runs anything, and never prints much."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from headrace.literals import format_date, format_interval, printable
from headrace.plan.nodes import Admit, Node, sources_of
from headrace.schema import STAMPS, Schema

__all__ = ["clipped", "columns_text", "counted", "plan_text", "value_text"]

_LINE = 110
_COLUMNS = 12


def clipped(words: str, most: int = _LINE) -> str:
    """Words without their end, where they are too long, as one line."""
    line = printable(" ".join(words.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def counted(number: int, noun: str) -> str:
    """A number and what it counts: `1,200 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def columns_text(schema: Schema) -> str:
    """The columns and their types; the first dozen of many."""
    fields = [str(field) for field in schema if field.name not in STAMPS]
    more = [f"… {len(fields) - _COLUMNS} more"] if len(fields) > _COLUMNS else []
    return clipped(", ".join([*fields[:_COLUMNS], *more])) or "no columns"


def plan_text(node: Node) -> str:
    """The last operator, and the sources."""
    while isinstance(node, Admit):  # belongs to how a source is read
        node = node.input
    if not node.inputs:
        return clipped(node.describe())
    origins = clipped(", ".join(dict.fromkeys(str(source.origin) for source in sources_of(node))), _LINE // 2)
    return f"{clipped(node.describe(), _LINE - len(origins))} ← {origins}"


def value_text(value: Any) -> str:
    """A value of a column."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, datetime):
        return format_date(value)
    if isinstance(value, timedelta):
        return format_interval(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
