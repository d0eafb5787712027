"""Python values as values of columns, and the texts that casts accept: the same for every engine.

Each engine accepts more in its own way (`0x1F`, `1_000`, `today`), so a text is matched with these patterns first and
passed on only if it matches. Leading and trailing spaces are allowed.
"""

from __future__ import annotations

import decimal
import math
import re
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np

from headrace.errors import ExpressionError
from headrace.schema import Type

__all__ = [
    "DATETIME_PARTS", "DATETIME_STRFTIME", "TRUTHS", "UNTRUTHS", "Plain", "is_date", "is_instant", "literal_text",
    "plain_value",
    "text_pattern",
]  # fmt: skip

#: The values of columns.
Plain = bool | int | float | decimal.Decimal | str | date | datetime | time | None

_YEAR = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9][0-9]|[1-9][0-9][0-9][0-9])"
_DATE = rf"{_YEAR}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
#: Hours may be many, and before them a sign.
_INTERVAL = r"[+-]?[0-9]{1,10}:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]"
#: A DECIMAL has at most 38 digits on either side of the point.
_DECIMAL = r"[+-]?(?:[0-9]{1,38}(?:\.[0-9]{0,38})?|\.[0-9]{1,38})"
#: The texts of truth values, as PostgreSQL reads them, in any case.
TRUTHS = ("true", "t", "yes", "y", "on", "1")
UNTRUTHS = ("false", "f", "no", "n", "off", "0")
_INTEGER = r"[+-]?[0-9]+"
_REAL = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?"

# The parts of a text that fits the pattern, for an engine that must put them together itself.
DATETIME_PARTS = (
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ](?P<time>[0-9]{2}:[0-9]{2})(?::(?P<seconds>[0-9]{2}))?"
    r"(?:\.(?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})?)?"
)
DATETIME_STRFTIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def text_pattern(type: Type) -> str:
    r"""The regular expression of the texts that can be cast to `type`, for RE2 and Java."""
    if type.is_integer:
        body = _INTEGER
    elif type.is_floating:
        body = _REAL
    elif type.is_decimal:
        body = _DECIMAL
    elif type is Type.DATE:
        body = _DATE
    elif type is Type.TIME or type is Type.INTERVAL:
        body = _TIME if type is Type.TIME else _INTERVAL
    elif type == Type.BOOLEAN:
        body = "(?i:" + "|".join((*TRUTHS, *UNTRUTHS)) + ")"
    else:
        body = rf"{_DATE}(?:[T ]{_TIME}(?:{_ZONE})?)?"
    return rf"\A *(?:{body}) *\z"


def is_instant(text: str) -> bool:
    """Whether a text is a DATETIME, as casts read it."""
    return re.fullmatch(text_pattern(Type.DATETIME).removesuffix(r"\z"), text) is not None


def is_date(text: str) -> bool:
    """Whether a text is a DATE, as casts read it."""
    return re.fullmatch(text_pattern(Type.DATE).removesuffix(r"\z"), text) is not None


def literal_text(value: Plain) -> str:
    """A value as SQL writes it."""
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime):
        return f"DATETIME '{value.replace(tzinfo=None).isoformat()}'"
    if isinstance(value, (date, time)):
        return f"{'DATE' if isinstance(value, date) else 'TIME'} '{value}'"
    if isinstance(value, decimal.Decimal):
        return f"DECIMAL '{value:f}'"
    return repr(value) if not isinstance(value, float) or math.isfinite(value) else f"DOUBLE '{value}'"


def plain_value(value: Any) -> Plain:
    """A Python or NumPy value as the value of a column; naive times are UTC."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")  # of nanoseconds, item() would be a number
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise ExpressionError("this number does not fit in 64 bits", given=value, allowed=f"{-(2**63)} to {2**63 - 1}")
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, time) and value.tzinfo is not None:
        raise ExpressionError("a time of day has no zone", given=value, allowed="a time without one")
    if value is None or isinstance(value, (bool, int, float, str, date, time, decimal.Decimal)):
        return value
    raise ExpressionError(
        "this is not a value of a column",
        given=value,
        allowed="None, bool, int, float, Decimal, str, date, datetime, time, timedelta",
    )
