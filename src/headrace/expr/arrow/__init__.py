"""Kernels: each function of the language on Arrow columns.

A kernel takes its arguments already widened by `Expr.bind`: arrays or scalars, the first an array if all are scalars,
constants always scalars. It gives an array of the result type. No kernel loops over rows in Python.
"""

from headrace.expr.arrow.arrays import ARRAYS
from headrace.expr.arrow.bits import BITS
from headrace.expr.arrow.casts import cast
from headrace.expr.arrow.dates import DATES
from headrace.expr.arrow.json import JSON
from headrace.expr.arrow.logic import LOGIC, case
from headrace.expr.arrow.numbers import NUMBERS
from headrace.expr.arrow.structs import STRUCTS
from headrace.expr.arrow.texts import TEXTS

__all__ = ["KERNELS", "case", "cast"]

KERNELS = LOGIC | NUMBERS | BITS | TEXTS | DATES | JSON | ARRAYS | STRUCTS
