"""Values as SQL writes them, for tables, messages and plans of SQL: `TRUE`, `NULL`, dates in ISO form and in UTC."""

from __future__ import annotations

import math
from datetime import UTC, datetime

__all__ = ["format_date", "sql_text"]


def format_date(value: datetime) -> str:
    """A value of a DATETIME column as text, in UTC: the one form of all texts.

    >>> format_date(datetime(2024, 5, 1, 12, tzinfo=UTC))
    '2024-05-01T12:00:00'
    """
    return (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat()


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
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(sql_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {sql_text(part)}" for name, part in value.items()) + "}"
    return str(value)
