"""DECIMAL among other numbers: the types of results.

Nothing rounds by itself. A sum has as many decimals as the one with more, a product as many as both together, and one
digit more in front of the point, as in Spark SQL. Where that is more than 38 digits, the decimals stay and digits in
front of the point are left out; a value that does not fit is NULL. Beside FLOAT or DOUBLE a DECIMAL is a DOUBLE, and a
quotient always is.

A number that is the same in every row, such as `0.05`, is a DOUBLE by itself. Beside a DECIMAL it is the exact decimal
that its shortest text shows.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable

from headrace.errors import ExpressionError
from headrace.schema import Type
from headrace.types import DIGITS

__all__ = [
    "EXACT", "ON_EXACT", "common_decimal", "exact_decimal", "literal_decimal", "product_type", "rounded_type",
    "sum_type",
]  # fmt: skip

#: Enough digits for any sum or product of two decimals.
EXACT = decimal.Context(prec=160, rounding=decimal.ROUND_HALF_UP)
#: The functions of plain numbers that are computed with decimals.
ON_EXACT: dict[str, Callable[..., decimal.Decimal]] = {
    "add": EXACT.add, "subtract": EXACT.subtract, "multiply": EXACT.multiply, "negate": EXACT.minus,
}  # fmt: skip


def _bounded(whole: int, scale: int) -> Type:
    return Type.DECIMAL(max(min(DIGITS, whole + scale), 1), scale)


def _whole(kind: Type) -> int:
    return kind.precision - kind.scale


def common_decimal(kinds: Iterable[Type]) -> Type:
    """The DECIMAL that holds integers and decimals, if there is room for all."""
    known = tuple(kinds)
    return _bounded(max(map(_whole, known)), max(kind.scale for kind in known))


def sum_type(a: Type, b: Type) -> Type:
    """The type of a sum or a difference."""
    return _bounded(max(_whole(a), _whole(b)) + 1, max(a.scale, b.scale))


def product_type(text: object, a: Type, b: Type) -> Type:
    """The type of a product; more decimals than a DECIMAL has are refused."""
    scale = a.scale + b.scale
    if scale > DIGITS:
        raise ExpressionError(
            f"{text} has {scale} decimals, and a DECIMAL has at most {DIGITS}",
            given=f"{a.value}, {b.value}",
            allowed=f"{DIGITS} decimals in both together",
            instead=f"CAST one as DECIMAL({DIGITS},{DIGITS // 4}) first",
        )
    return _bounded(a.precision + b.precision + 1 - scale, scale)


def rounded_type(kind: Type, digits: int) -> Type:
    """The type of a DECIMAL rounded to so many decimals."""
    scale = min(kind.scale, digits)
    return _bounded(_whole(kind) + (1 if digits < kind.scale else 0), scale)


def literal_decimal(value: decimal.Decimal) -> Type:
    """The narrowest type of a decimal."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ExpressionError("a DECIMAL is a finite number", given=str(value), allowed="digits", instead="0")
    scale, count = max(-exponent, 0), len(digits) + max(exponent, 0)
    if max(count, scale) > DIGITS:
        raise ExpressionError("this number has too many digits", given=str(value), allowed=f"{DIGITS} digits")
    return Type.DECIMAL(max(count, scale, 1), scale)


def exact_decimal(value: object) -> decimal.Decimal | None:
    """A number as a decimal, a float by its shortest text; None for other values, and for floats with an exponent."""
    if isinstance(value, decimal.Decimal):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    found = repr(value)
    return decimal.Decimal(found) if found.lstrip("-").replace(".", "", 1).isdecimal() else None
