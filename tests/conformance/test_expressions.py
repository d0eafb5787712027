"""Every expression means the same on Arrow, in DuckDB and in Spark SQL: one matrix over nasty values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from headrace.expr import (
    FUNCTIONS,
    Alias,
    Call,
    Case,
    Cast,
    Column,
    Expr,
    Literal,
    array,
    call,
    coalesce,
    col,
    concat,
    evaluate,
    greatest,
    if_else,
    least,
    lit,
    struct,
    when,
)  # fmt: skip
from headrace.expr.formats import formatted, parsed
from headrace.expr.functions import Then
from headrace.expr.nodes import Duration, IntervalValue, Months
from headrace.expr.signatures import REGISTERED
from headrace.expr.sql import to_duckdb, to_spark
from headrace.history.passed import for_duckdb, for_spark, passed_rows
from headrace.schema import Schema, Type
from headrace.sql.bind.expanded import EXPANDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

NAN, INF = math.nan, math.inf
DAY = 86_400_000_000
BYTES = [None, 0, 1, -1, 127, -128, 7]
SHORTS = [None, 0, -1, 32767, -32768, 12]
INTS = [None, 0, 1, -1, 2**31 - 1, -(2**31), 46341, 7, -3]
LONGS = [None, 0, 1, -1, 2**63 - 1, -(2**63), 3037000500, 2**53 + 1, -7, 2, 253402300800000000]
FLOATS = [None, NAN, INF, -INF, -0.0, 0.0, 1.5, -2.5, 3.4028234663852886e38, 1e-45, 2147483648.0, 0.1]
DOUBLES = [
    None, NAN, INF, -INF, -0.0, 0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 2.675, 1e308, -1e308, 5e-324, 2.0**63, -(2.0**63),
    2147483647.5, -2147483648.5, 3.4028235677973366e38, 127.9, -128.9, 0.49999999999999994, 4503599627370497.5, 3.0,
]  # fmt: skip
BOOLEANS = [None, True, False]
TEXTS = [
    None, "", " ", "a", "A", "abc", "  padded  ", "50%", "5_0", "back\\slash", "it's", 'say "hi"', "líne\nbreak",
    "tab\tbed", "naïve ÉCOLE", "straße ﬁn ŉ ᾳ", "İstanbul ΣΑΣ", "日本語", "😀 emoji 𐐨", "\\", "a%b_c", "line\n",
    "x-1 y-22", "\u00a0nbsp", "ends b",
]  # fmt: skip
NUMERALS = [
    None, "", "0", "12", " +7 ", "-128", "128", "2147483648", "-9223372036854775808", "9223372036854775808",
    "000000000000000000000000000042", "99999999999999999999999999999999999999999999", "1.5", ".5", "5.", "1e3",
    "-1E-3", "1e400", "-1e400", "1e-400", "3.4028235677973366e38", "NaN", "Infinity", "0x1F", "1_000", "12abc", "٣",
    "true", " FALSE ", "yes", "t", "1", "+", "1e", "12\n", "0.1", "123456789012345678901234567890.5",
]  # fmt: skip
TIMES = [
    None, "", "2024-02-29", "2023-02-29", "2024-02-30", " 1969-12-31 ", "2024-05-01T12:30:15", "2024-05-01 12:30",
    "2024-05-01T12:30:15.5Z", "2024-05-01T12:30:15.123456+05:30", "1960-01-01T00:00:00-17:59", "0001-01-01",
    "0000-01-01", "9999-12-31T23:59:59.999999", "2024-13-01", "2024-01-01T24:00:00", "2024-01-01T23:60:00",
    "2024-1-1", "12:30", "today", "epoch", "2024-05-01T12:30:15.1234567", "+2024-01-01", "2024-05-01T12Z",
]  # fmt: skip
TICKS = [
    None, 0, -1, 1, 999_999, -DAY, DAY, 951_782_400_000_000, -2_203_977_600_000_000, -12_219_292_800_000_001,
    1_735_516_800_000_000, 1_704_067_199_999_999, -62_135_596_800_000_000, 253_402_300_799_999_999,
    253_402_300_800_000_000, 327_000_000_000_000_000, -62_135_596_800_000_001, -65_000_000_000_000_000,
]  # fmt: skip
PRICES = [
    None,
    *map(Decimal, ("0", "0.01", "-0.01", "1.25", "-1.25", "99999999.99", "-99999999.99", "12.345", "0.5", "7")),
]
LARGE = [
    None, *map(Decimal, ("0", "0.0001", "-1.5", "2", "9" * 34 + ".9999", "-" + "9" * 34 + ".9999", "1e33")),
    Decimal("12345678901234567.1"),
]  # fmt: skip
DATES = [
    None,
    *map(date.fromisoformat, ("1970-01-01", "1969-12-31", "2024-02-29", "2023-12-31", "0001-01-01", "9999-12-31")),
]
CLOCKS = [None, *(time.fromisoformat(text) for text in ("00:00", "00:00:00.000001", "12:30:15.5", "23:59:59.999999"))]
#: Not the least number of 64 bits: Spark has no such interval.
SPANS = [None, 0, 1, -1, DAY, -DAY - 1, 5_025_500_000, -36_000_000_001, 2**62, -(2**62)]
SPELLED = [
    None, "", "12:30", " 01:02:03.5 ", "23:59:59.999999", "24:00:00", "-00:00:01", "+100:00", "2562047788:00:54.775807",
    "1:2:3", "01:60", "12:30:15.1234567", "x", "9999999999:00", "2024-05-01",
]  # fmt: skip
PAIRS = {
    ("b", "b2"): (Type.BYTE, BYTES),
    ("h", "h2"): (Type.SHORT, SHORTS),
    ("i", "i2"): (Type.INT, INTS),
    ("l", "l2"): (Type.LONG, LONGS),
    ("f", "f2"): (Type.FLOAT, FLOATS),
    ("d", "d2"): (Type.DOUBLE, DOUBLES),
    ("p", "p2"): (Type.BOOLEAN, BOOLEANS),
    ("s", "s2"): (Type.STRING, TEXTS),
    ("n", "n2"): (Type.STRING, NUMERALS),
    ("w", "w2"): (Type.STRING, TIMES),
    ("t", "t2"): (Type.DATETIME, TICKS),
    ("e", "e2"): (Type.DECIMAL(10, 2), [value and round(value, 2) for value in PRICES]),
    ("g", "g2"): (Type.DECIMAL(38, 4), LARGE),
    ("y", "y2"): (Type.DATE, DATES),
    ("c", "c2"): (Type.TIME, CLOCKS),
    ("v", "v2"): (Type.INTERVAL, SPANS),
    ("u", "u2"): (Type.STRING, SPELLED),
    ('odd "name`', "weird.name 2"): (Type.INT, INTS),
}
ROWS = max(len(DOUBLES), len(TEXTS)) ** 2  # every pair of them; more than enough for the shorter lists
b, h, i, i2, m, m2, f, f2, d, d2, p, p2, s, s2, n, w, t, t2 = map(
    col, ("b", "h", "i", "i2", "l", "l2", "f", "f2", "d", "d2", "p", "p2", "s", "s2", "n", "w", "t", "t2")
)
e, e2, g, g2, y, y2 = map(col, ("e", "e2", "g", "g2", "y", "y2"))
c, c2, v, v2, u = map(col, ("c", "c2", "v", "v2", "u"))


#: The type of `struct(a=i, b=s, c=d)` with other names, and a wider number.
WIDER = Type('STRUCT<x LONG, "y z" STRING, c DOUBLE>')


def nasty_table() -> pa.Table:
    """Every pair of values of a type, side by side in two columns."""
    columns = {}
    for names, (type, values) in PAIRS.items():
        size = len(values)
        for name, picks in zip(
            names, ((r % size for r in range(ROWS)), (r // size % size for r in range(ROWS))), strict=True
        ):
            columns[name] = pa.array([values[k] for k in picks], type=type.arrow)
    return pa.table(columns)


NUMBERS = [
    (col("b"), col("b2")), (col("h"), col("h2")), (i, i2), (m, m2), (f, f2), (d, d2), (i, m), (m, f), (i, d), (f, d),
    (b, h),
]  # fmt: skip


def arithmetic() -> Iterator[Expr]:
    for x, y in NUMBERS:
        yield from (x + y, x - y, x * y, x / y, x // y, x % y)
    for x in (b, h, i, m, f, d):
        yield from (-x, x.abs(), x.floor(), x.ceil(), x.round(), x.round(2), x.sign())
        yield from (x.sqrt(), x.exp(), x.ln(), x.log10(), x.sin(), x.cos(), x.tan())
    yield from (
        d.power(d2),
        i.power(2),
        d.power(0.5),
        f.power(-1),
        lit(2) - i,
        2.5 * m,
        m % 3,
        m // -3,
        m + 2**40,
        7 % d,
        7 // d,
        1 / i,
    )
    for x in (b, h, i, m, f, d):
        yield from (x.asin(), x.acos(), x.atan(), x.radians(), x.degrees())
    yield from ((d * d2).round(3) + i, (i + i2) * (i - i2) % 10, d.round(15))


def bits() -> Iterator[Expr]:
    for x, y in ((b, col("b2")), (h, col("h2")), (i, i2), (m, m2), (i, m), (m, i), (b, h)):
        yield from (x.bit_and(y), x.bit_or(y), x.bit_xor(y), x.shift_left(y), x.shift_right(y))
    for x in (b, h, i, m):
        yield from (x.bit_not(), *(x.shift_left(n) for n in (0, 1, 31, 32, 63, 64, -1, None)))
        yield from (x.shift_right(n) for n in (0, 1, 31, 32, 63, 64, -1, 2**40))
    yield from (lit(5).bit_xor(i), lit(1).shift_left(b), lit(2**40).shift_right(i), lit(None).bit_and(i))
    yield from (i.bit_or(1).bit_xor(m).bit_and(255), (i + 1).bit_not() * 2, lit(6).shift_left(2), lit(6).shift_left(-2))


def logic() -> Iterator[Expr]:
    for x, y in (*NUMBERS, (p, p2), (s, s2), (t, t2)):
        yield from (x == y, x != y, x < y, x <= y, x > y, x >= y, greatest(x, y), least(x, y))
        yield from (x.isin(y, y), x.nullif(y), coalesce(x, y), x.between(y, x))
    for x in (b, h, i, m, f, d, p, s, t):
        yield from (x.is_null(), x.is_not_null(), x.isin(), x.isin(x, None))
    yield from (p & p2, p | p2, ~p, ~(p & (d > 0)), (i > 0) | (m > 0) & p, p & None, p | None)
    yield from (
        i.isin(1, 7, None),
        m.isin([2**63 - 1, 0]),
        d.isin(NAN, 0.0, 1.5),
        d.isin(*range(12)),
        s.isin("a", "", "it's"),
        d == NAN,
        f > 0.1,
    )
    yield from (
        d < INF,
        i.isin(1, 2.5),
        i == 7,
        m > 2.5,
        b < 300,
        h >= -(2**31),
        m <= -(2**63),
        t.isin(datetime(1970, 1, 1, tzinfo=UTC)),
    )
    yield from (
        if_else(p, i, d),
        when(i > 0).then(lit("plus")).when(i < 0).then(lit("minus")).otherwise(s),
        when(p).then(t),
        if_else(None, 1, 2),
    )
    yield from (
        greatest(i),
        least(d, 0, None),
        coalesce(s),
        coalesce(None, i, 2**40),
        greatest(s, lit("b"), s2),
        lit(None),
        lit(None).cast("INT"),
    )
    yield from (
        t >= datetime(1582, 10, 10, tzinfo=UTC),
        lit(datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=UTC)),
        lit(1.5),
        lit(-0.1),
        lit("q'\\\n"),
        lit(True),
        lit(NAN),
        lit(-INF),
    )
    yield from (
        lit(2**63 - 1),
        lit(-(2**63)),
        lit(-(2**31)),
        col('odd "name`') + col("weird.name 2"),
        i.alias("x"),
        lit(1) + 1,
    )


def texts() -> Iterator[Expr]:
    yield from (
        s.upper(),
        s.lower(),
        s.trim(),
        s.ltrim(),
        s.rtrim(),
        s.length(),
        concat(s, lit("-"), s2),
        s.concat(s2),
        concat(s),
    )
    yield from (
        s.substring(1, 2),
        s.substring(3),
        s.substring(2, 0),
        s.substring(100, 5),
        s.replace("a", "ÄÖ"),
        s.replace("\\", "/"),
        s.replace(" ", ""),
    )
    yield from (s.position(part) for part in ("a", "b", "%", "\\", "😀", "𐐨", "'", "\n", "語", "  ", "ab"))
    yield from (s.split_part(by, k) for by in ("a", "%", "\\", "😀", "ab", "  ") for k in (1, 2, 3, 100))
    yield from (s.code(), n.code(), s.reverse().code(), s.concat("e\u0301🇩🇪\r\n").code())
    yield from (s.reverse(), s.reverse().reverse(), n.reverse(), s.concat("e\u0301🇩🇪\r\n").reverse())
    yield from (fn(k) for fn in (s.repeat, s.left, s.right) for k in (0, 1, 2, 3, 100))
    yield from (
        fn(*fill) for fn in (s.lpad, s.rpad) for fill in ((0,), (1,), (3, "日"), (7, "😀"), (30, "'"), (9, "\\"))
    )
    yield from (
        fn(part) for fn in (s.starts_with, s.ends_with, s.contains) for part in ("", "a", "%", "\\", "😀", "'", "\n")
    )
    for pattern in (
        "%", "", "a%", "%b%", "_", "__", r"%\%%", r"%\_%", r"%\\%", "%\n%", "日_語", "%.%", "%'%", "it_s", "[a]%",
    ):  # fmt: skip
        yield s.like(pattern)
    for pattern in (
        "a", "^a", "b$", "^$", ".", "^.$", "l.ne", r"\d+", r"\w-\d", r"\bb\b", r"\s", r"^\S+$", "[a-c]{2,3}", "[^a-z]",
        "(a|b)c?", r"\\", "日", r"[\s\d]", "'", r"a\%b", "e.b", r"^line$", "(?:ab)+?c", r"\Bb", "[.%]",
        r"\W", r"\t|\n", "^..e", "𐐨",
    ):  # fmt: skip
        yield s.rlike(pattern)


def dates() -> Iterator[Expr]:
    yield from (t.year(), t.month(), t.day(), t.hour(), t.minute(), t.second(), t.day_of_week())
    yield from (t.date_trunc(u) for u in ("year", "quarter", "month", "week", "day", "hour", "minute", "second"))
    yield from (t.day_of_year(), t.epoch(), call("time_diff", t, t2), t - t2, t - datetime(2024, 2, 29, tzinfo=UTC))
    yield from (call("shift_time", t, k) for k in (0, 1, -1, DAY, -400 * DAY, 2**63 - 1, -(2**63), m, i, b, None))
    yield from (call("shift_time", datetime(2024, 2, 29, tzinfo=UTC), m), lit(None).cast("DATETIME").epoch())
    yield from (
        t.cast("LONG") - t2.cast("LONG"),
        *(t - t2 > "1 d", t + (t - t2), t - (t2 - t) * 2, t + b * timedelta(days=1), t - timedelta(hours=1)),
        *(t + "90 min" > t2, "1 d" + t, t >= "2024-02-29", t.isin("2024-02-29", "1970-01-01T00:00:00Z")),
        *((t - t2) // timedelta(hours=1), (t - t2) / timedelta(hours=1), t - "2024-02-29T01:00:00+02:00"),
        when(i > 0).then(t).otherwise(lit("2024-02-29")),
        greatest(t, lit("2024-02-29 12:00")),
        (t.cast("LONG") + 1).cast("DATETIME"),
        t.date_trunc("month").day_of_week(),
    )


def arrays() -> Iterator[Expr]:
    lists = [array(x, y, None) for x, y in (*NUMBERS, (p, p2), (s, s2), (t, t2))]
    yield from (lists[3].element_at(k) for k in (1, 2, 3, 4, 0, -1, 2**40, None, i, m))
    for made, x in zip(lists, [y for y, _ in (*NUMBERS, (p, p2), (s, s2), (t, t2))], strict=True):
        yield from (made.cardinality(), made.element_at(1), made.array_contains(x.cast(made.type(SCHEMA).element)))
    yield from (array(i, i2).array_contains(7), array(i, i2).array_contains(None), array(lit(1), lit(2)).element_at(i))
    yield from (array(d, d2).array_contains(NAN), array(f, f2).array_contains(lit(0.5).cast("FLOAT")))
    yield from (when(p).then(i).otherwise(array(i, i2).cardinality()), array(None).cardinality())


def structs() -> Iterator[Expr]:
    one, other = struct(a=i, b=s, c=d), struct(a=i2, b=s2, c=d2)
    yield from (one, one == other, one != other, one.field("b"), one.field("c"), one.is_null(), one.cast(WIDER))
    yield from (if_else(p, one, other), if_else(p, one, lit(None)).field("a"), one.isin(other, None))
    yield from (array(one, other).element_at(2).field("a"), struct(x=one, y=array(i)).field("x").field("a"))
    yield from (struct(x=one, y=c) == struct(x=other, y=c2), coalesce(if_else(p, one, lit(None)), other))


def casts() -> Iterator[Expr]:
    numbers = (Type.BYTE, Type.SHORT, Type.INT, Type.LONG, Type.FLOAT, Type.DOUBLE, Type.BOOLEAN)
    yield from (x.cast(to) for x in (b, h, i, m, f, d, p, n) for to in numbers)
    yield from (x.cast("STRING") for x in (b, h, i, m, p, t, s))
    yield from (
        w.cast("DATETIME"),
        m.cast("DATETIME"),
        i.cast("DATETIME"),
        t.cast("LONG"),
        w.cast("DATETIME").cast("STRING"),
        s.cast("CHAR").upper(),
    )
    yield from (
        lit("12").cast("INT"),
        lit(300).cast("BYTE"),
        lit(2.5).cast("LONG"),
        lit("2024-01-01").cast("DATETIME"),
        s.cast("INT"),
        s.cast("DATETIME"),
    )


def decimals() -> Iterator[Expr]:
    for x, z in ((e, e2), (e, g), (g, g2), (e, i), (e, m), (g, m), (b, e), (e, d), (e, f)):
        yield from (x + z, x - z, x * z, x / z, x == z, x < z, x >= z, greatest(x, z), least(x, z), coalesce(x, z))
        yield from (x.isin(z, z), x.nullif(z), x.between(z, x))
    for x in (e, g):
        yield from (-x, x.abs(), x.round(), x.round(1), x.round(3), x.sign(), x.sqrt(), x.is_null())
        yield from (x.cast(to) for to in ("BYTE", "INT", "LONG", "FLOAT", "DOUBLE", "BOOLEAN", "STRING"))
        yield from (x.cast(to) for to in ("DECIMAL(3,1)", "DECIMAL(38,0)", "DECIMAL(38,10)", "DECIMAL(20,3)"))
    yield from (x.cast(to) for x in (b, i, m, f, d, p, n) for to in ("DECIMAL(5,2)", "DECIMAL(38,6)", "DECIMAL(18,0)"))
    yield from (e * (1 - e2) * (1 + e), e.between(lit(0.06) - 0.01, lit(0.06) + 1.19), e + Decimal("0.005"), e * 0.1)
    yield from (e > 1, e.isin(1.25, 7, None), if_else(p, e, 0), if_else(p, e, d), e.floor(), e.ceil(), e * lit(None))
    yield from (e + 2**40, lit(Decimal("0.0000001")).cast("STRING"), coalesce(e, lit(Decimal("1.5"))), g * e * 2)


def days() -> Iterator[Expr]:
    yield from (y == y2, y < y2, y <= t, t > y, greatest(y, y2), least(y, t), coalesce(y, y2), y.isin(y2, None))
    yield from (y - y2, y - date(2024, 2, 29), y + i, y - b, 1 + y, y + timedelta(days=90), y - timedelta(days=1))
    yield from (y + timedelta(hours=36), y + (t - t2), t - y, y - t, y >= "2023-12-31", y < "2024-02-29 12:00")
    yield from (y + Months(k) for k in (1, -1, 12, -12, 1200, -1200))
    yield from (t.cast("LONG").cast("DATETIME") + Months(k) for k in (1, -1, 12, -13))
    yield from (y.year(), y.month(), y.day(), y.day_of_week(), y.day_of_year(), y.date_trunc("month"), y.epoch())
    yield from (y.cast("STRING"), y.cast("DATETIME"), w.cast("DATE"), s.cast("DATE"), lit(date(2024, 2, 29)))
    yield from ((t.cast("LONG").cast("DATETIME")).cast("DATE"), if_else(p, y, lit("2024-02-29")), y.isin("2024-02-29"))


def spans() -> Iterator[Expr]:
    hour = timedelta(hours=1)
    for x, z in ((c, c2), (v, v2)):
        yield from (x == z, x < z, x >= z, greatest(x, z), coalesce(x, z), x.isin(z, None), x.is_not_distinct_from(z))
        yield from (x.cast("STRING"), x.cast("LONG"), x - z, x + v2, x + hour, x - hour, x.epoch(), if_else(p, x, z))
        yield from (x.hour(), x.minute(), x.second())
    yield from (u.cast("TIME"), u.cast("INTERVAL"), m.cast("TIME"), m2.cast("TIME"), (m % 2**62).cast("INTERVAL"))
    sane = t.cast("LONG").cast("DATETIME")
    yield from (sane.cast("TIME"), sane + v, sane - v, y + v, c.cast("INTERVAL"), c > "12:30", v >= "01:00:00")
    yield from (v * i, v * b, 3 * v, v / 3, v * 0.5, v / d, v % v2, v.abs(), -v, v.day(), v < hour, v > (t - t2))
    yield from (v / v2, call("floor_divide", v, v2), call("floor_divide", v, 7), v.isin(hour, IntervalValue(1)))
    yield from (lit(time(12, 30)), IntervalValue(-5), lit(None).cast("TIME"), c.is_null(), array(c, c2).element_at(1))


def composed() -> Iterator[Expr]:
    for x, z in ((i, i2), (d, d2), (p, p2), (s, s2), (t, t2), (e, e2), (y, y2)):
        yield from (x.is_distinct_from(z), x.is_not_distinct_from(z), x.is_distinct_from(None))
    yield from (p.is_true(), p.is_false(), p.is_unknown(), s.ilike("%AB%"), s.ilike("ÉC%"), n.cast("BOOLEAN"))
    sane = t.cast("LONG").cast("DATETIME")  # of the years 1 to 9999
    for form in ("yyyy-MM-dd HH:mm:ss.SSSSSS", "EEE dd MMM yyyy hh:mm a Z", "YYYY/MM/DD'T'HH24:MI:SS.MS", "'text'"):
        yield formatted(sane, form)
        yield parsed(formatted(sane, form), form) if "yyyy" in form else formatted(y, form)
    yield from (parsed(w, "yyyy-MM-dd"), parsed(w, "yyyy-MM-dd'T'HH:mm:ss"), parsed(s, "dd/MMM/yyyy", Type.DATE))
    yield from (EXPANDED[name].build(sane) for name in ("quarter", "week", "dow", "isoyear", "last_day"))
    yield from (EXPANDED["concat_ws"].build("-", s, s2, i), EXPANDED["overlay"].build(s, "xy", 2))
    yield from (EXPANDED["make_date"].build(i, h, b), EXPANDED["width_bucket"].build(f, 0, 10, 5))
    yield EXPANDED["trunc"].build(d)


TABLE = nasty_table()
SCHEMA = Schema.of(TABLE.schema)
MATRIX = [
    *arithmetic(), *bits(), *logic(), *texts(), *dates(), *casts(), *decimals(), *days(), *spans(), *composed(),
    *arrays(), *structs(),
]  # fmt: skip


@pytest.fixture(scope="module")
def on_arrow() -> pa.Table:
    return pa.table([evaluate(expr, TABLE) for expr in MATRIX], names=[f"c{k}" for k in range(len(MATRIX))])


def disagreements(expected: pa.Table, actual: pa.Table) -> list[str]:
    found = []
    for expr, left, right in zip(MATRIX, expected.columns, actual.columns, strict=True):
        if left.type != right.type:
            found.append(f"{expr}: {left.type} on Arrow, {right.type} there")
            continue
        rows = [k for k, (x, y) in enumerate(zip(plain(left), plain(right), strict=True)) if not agree(x, y)]
        if rows:
            sample = {name: plain(TABLE[name])[rows[0]] for name in sorted(expr.columns())}
            x, y = plain(left)[rows[0]], plain(right)[rows[0]]
            found.append(f"{expr}: {x!r} on Arrow, {y!r} there, for {sample}, {len(rows)} rows")
    return found


def plain(column: pa.ChunkedArray) -> list[object]:
    if pa.types.is_struct(column.type):
        return list(map(repr, column.combine_chunks().to_pylist()))
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def agree(x: object, y: object) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return x == y or (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=1e-12, abs_tol=0)
    return x == y


def test_duckdb_agrees_with_arrow(on_arrow: pa.Table):
    query = ", ".join(f"{to_duckdb(expr, SCHEMA)} AS c{k}" for k, expr in enumerate(MATRIX))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("nasty", passed_rows(TABLE, for_duckdb))
        answer = connection.sql(f"SELECT {query} FROM nasty").to_arrow_table()
    named = [zoned(field, kind) for field, kind in zip(answer.schema, on_arrow.schema.types, strict=True)]
    assert not disagreements(on_arrow, answer.cast(pa.schema(named)))


def zoned(field: pa.Field, kind: pa.DataType) -> pa.Field:
    """DuckDB may name UTC otherwise, and has the ticks of an INTERVAL, as Spark those of a TIME."""
    if (pa.types.is_duration(kind) or pa.types.is_time(kind)) and pa.types.is_int64(field.type):
        return field.with_type(kind)
    return field.with_type(Type.DATETIME.arrow) if pa.types.is_timestamp(field.type) and field.type.tz else field


def test_spark_agrees_with_arrow(spark: SparkSession, on_arrow: pa.Table):
    frame = spark.createDataFrame(passed_rows(TABLE, for_spark)).coalesce(1)
    answer = frame.selectExpr(*(f"{to_spark(expr, SCHEMA)} AS c{k}" for k, expr in enumerate(MATRIX))).toArrow()
    named = [zoned(field, kind) for field, kind in zip(answer.schema, on_arrow.schema.types, strict=True)]
    assert not disagreements(on_arrow, answer.cast(pa.schema(named)))


def nodes(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in expr.children:
        yield from nodes(child)


def test_the_matrix_covers_every_function_and_node():
    seen = [node for expr in MATRIX for node in nodes(expr)]
    bound = [call.bind(SCHEMA).node for call in seen if isinstance(call, Call)]
    functions = {node.function for node in (*seen, *bound) if isinstance(node, Call)}
    assert functions | {"shift_months"} == set(FUNCTIONS) - REGISTERED
    assert {type(node) for node in seen} == {
        Alias,
        Call,
        Case,
        Cast,
        Column,
        Duration,
        IntervalValue,
        Literal,
        Months,
        Then,
    }


def test_the_matrix_types_without_rows():
    empty = TABLE.slice(0, 0)
    for expr in MATRIX:
        assert evaluate(expr, empty).type == expr.type(SCHEMA).arrow, str(expr)


def test_a_function_by_name_is_the_method():
    assert call("upper", s).same(s.upper())
