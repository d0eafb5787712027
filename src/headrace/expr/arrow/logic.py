"""Comparison, three-valued logic and choice.

Floating numbers are ordered as SQL orders them: NaN equals NaN and is greater than any number, and -0.0 equals 0.0.
Arrow compares as IEEE does, so floating columns with NaN need a second step.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import factorize
from headrace.expr.arrow.columns import Datum, Kernel, from_numpy, repeated, valid

__all__ = ["LOGIC", "case"]


def _has_nan(datum: Datum) -> bool:
    return pa.types.is_floating(datum.type) and bool(pc.any(pc.is_nan(datum)).as_py())


def eq(a: Datum, b: Datum) -> Datum:
    if pa.types.is_nested(a.type):
        return _same(a, b)
    plain = pc.equal(a, b)
    if _has_nan(a) and _has_nan(b):
        return pc.or_kleene(plain, pc.and_kleene(pc.is_nan(a), pc.is_nan(b)))
    return plain


def _same(a: Datum, b: Datum) -> Datum:
    """Whether structs have the same fields, NULL among them: in no engine is a comparison inside of one unknown."""
    rows = next(len(datum) for datum in (a, b) if not isinstance(datum, pa.Scalar))
    one, other = (repeated(datum, rows) if isinstance(datum, pa.Scalar) else datum for datum in (a, b))
    codes, _ = factorize(pa.table({"": pa.concat_arrays([one, other])}))
    return from_numpy(codes[:rows] == codes[rows:], valid(one, other), pa.bool_())


def lt(a: Datum, b: Datum) -> Datum:
    plain = pc.less(a, b)
    if _has_nan(b):
        return pc.or_kleene(plain, pc.and_kleene(pc.is_nan(b), pc.invert(pc.is_nan(a))))
    return plain


def ne(a: Datum, b: Datum) -> Datum:
    return pc.invert(eq(a, b))


def gt(a: Datum, b: Datum) -> Datum:
    return lt(b, a)


def le(a: Datum, b: Datum) -> Datum:
    return pc.invert(lt(b, a))


def ge(a: Datum, b: Datum) -> Datum:
    return pc.invert(lt(a, b))


def isin(value: Datum, *members: Datum) -> Datum:
    if not members:
        return pa.repeat(pa.scalar(False), len(value))
    if (
        any(isinstance(member, pa.Array) for member in members)
        or pa.types.is_floating(value.type)
        or (pa.types.is_nested(value.type))
    ):
        return reduce(pc.or_kleene, (eq(value, member) for member in members))
    known = pa.array([m.as_py() for m in members if m.is_valid], type=value.type)
    found = pc.is_in(value, value_set=known)
    unknown = pc.is_null(value) if len(known) == len(members) else pc.or_(pc.is_null(value), pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def coalesce(*values: Datum) -> Datum:
    return pc.coalesce(*values)


def _extreme(better: Kernel) -> Kernel:
    def choose(a: Datum, b: Datum) -> Datum:
        keep = pc.or_(pc.is_null(b), pc.fill_null(pc.invert(better(b, a)), False))
        return pc.if_else(keep, a, b)

    return lambda *values: reduce(choose, values)


def case(*parts: Datum) -> Datum:
    """Condition, value, condition, value, …, default."""
    result = parts[-1]
    for condition, value in list(zip(parts[:-1:2], parts[1::2], strict=True))[::-1]:
        result = pc.if_else(pc.fill_null(condition, False), value, result)
    return result


LOGIC: dict[str, Kernel] = {
    "eq": eq,
    "ne": ne,
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
    "isin": isin,
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "is_null": pc.is_null,
    "is_not_null": pc.is_valid,
    "coalesce": coalesce,
    "greatest": _extreme(gt),
    "least": _extreme(lt),
}
