"""Values as SQL writes them, for tables, messages and plans of SQL: `TRUE`, `NULL`, dates in ISO form and in UTC."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

__all__ = ["format_date", "format_interval", "printable", "sql_text"]

#: Characters with which values could steer a terminal, or turn the direction of a line; not lines and tabs.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def format_date(value: datetime) -> str:
    """A value of a DATETIME column as text, in UTC: the one form of all texts.

    >>> format_date(datetime(2024, 5, 1, 12, tzinfo=UTC))
    '2024-05-01T12:00:00'
    """
    return (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat()


def format_interval(value: timedelta) -> str:
    """A value of an INTERVAL column as text: hours, minutes and seconds, with its sign.

    >>> format_interval(timedelta(hours=-2)), format_interval(timedelta(days=1, seconds=1, microseconds=50))
    ('-02:00:00', '24:00:01.000050')
    """
    ticks = abs(value) // timedelta(microseconds=1)
    minutes, rest = divmod(ticks, 60_000_000)
    parts = "" if rest % 1_000_000 == 0 else f".{rest % 1_000_000:06d}"
    sign = "-" if value < timedelta(0) else ""
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1_000_000:02d}{parts}"


def printable(text: str) -> str:
    r"""A text for a terminal: values of users do nothing there, their control characters are written as in Python.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def sql_text(value: object) -> str:
    """A value as SQL writes it; texts stand for themselves, without quotes.

    >>> sql_text(True), sql_text(None), sql_text(float("nan")), sql_text([1, None]), sql_text({"x": False})
    ('TRUE', 'NULL', 'NaN', '[1, NULL]', '{x: FALSE}')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return format_date(value)
    if isinstance(value, timedelta):
        return format_interval(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(sql_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {sql_text(part)}" for name, part in value.items()) + "}"
    return str(value)
