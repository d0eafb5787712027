"""Values as psycopg sends them, as literals, and what Headrace SQL makes of these."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer

from headrace.api.running import run_quietly
from headrace.server.postgres.parameters import ParameterError, bound_literals, parameter_literal
from headrace.sql.outcomes import Answers
from headrace.sql.peek import current
from headrace.sql.session import SqlSession

VALUES = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
    | st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - of UTC
    | st.dates(date(1900, 1, 1), date(2200, 1, 1))
    | st.times()
    | st.timedeltas(timedelta(0), timedelta(days=100))
    | st.lists(st.integers(-9, 9), min_size=1, max_size=3)
    | st.lists(st.text("ab'\",{}\\ N", max_size=3), min_size=1, max_size=3)
)


def sent(value: Any, form: PyFormat) -> tuple[int, int, bytes]:
    dumper = Transformer(psycopg.adapters).get_dumper(value, form)
    if hasattr(dumper, "upgrade"):
        dumper = dumper.upgrade(value, form)
    return dumper.oid, dumper.format, bytes(dumper.dump(value))


def evaluated(literal: str) -> Any:
    (answer,) = SqlSession().execute(f"SELECT {literal} AS x")
    assert isinstance(answer, Answers)
    return current(run_quietly({"x": answer.shown}).results["x"])["x"].to_pylist()[0]


@given(VALUES, st.sampled_from([PyFormat.TEXT, PyFormat.BINARY]))
def test_a_value_of_psycopg_is_the_value_of_its_literal(value: Any, form: PyFormat):
    oid, format, data = sent(value, form)
    if not oid and isinstance(value, list):  # psycopg says no type of a list of empty texts: it is a text
        value = data.decode()
    assert evaluated(parameter_literal(oid, format, data)) == value


@given(st.decimals(-(10**9), 10**9, places=3), st.sampled_from([PyFormat.TEXT, PyFormat.BINARY]))
def test_decimals_keep_their_digits(value: Decimal, form: PyFormat):
    literal = parameter_literal(*sent(value, form))
    assert Decimal(literal.strip("()")) == value


@pytest.mark.parametrize(
    ("oid", "form", "value", "expected"),
    [
        (0, 0, None, "NULL"),
        (0, 0, b"it's", "'it''s'"),
        (23, 0, b"-5", "(-5)"),
        (23, 1, b"\0\0\0\x05", "5"),
        (701, 0, b"-0.0", "(-0.0)"),
        (701, 0, b"Infinity", "CAST('inf' AS DOUBLE)"),
        (16, 0, b"t", "TRUE"),
        (16, 0, b"off", "FALSE"),
        (1186, 0, b"2 days 01:00:00", "CAST('49:00:00' AS INTERVAL)"),
        (1009, 0, b'{a,NULL,"b,\\"c"}', "ARRAY['a', NULL, 'b,\"c']"),
        (1016, 0, b"{}", "ARRAY[]"),
        (3802, 0, b'{"a": 1}', "'{\"a\": 1}'"),
        (2950, 1, bytes(range(16)), "'00010203-0405-0607-0809-0a0b0c0d0e0f'"),
    ],
)
def test_literals(oid: int, form: int, value: bytes | None, expected: str):
    assert parameter_literal(oid, form, value) == expected


@pytest.mark.parametrize(
    ("oid", "form", "value"),
    [
        (23, 0, b"1; DROP TABLE t"), (23, 1, b"\0"), (701, 0, b"x"), (1700, 0, b"1e999999999"), (1700, 1, b"\0\x01"),
        (1184, 0, b"yesterday"), (0, 0, b"\xff"), (25, 0, b"a\0b"), (1016, 0, b"{1,{2}}"), (1016, 1, b"\0\0\0\x01" * 5),
        (16, 0, b"maybe"), (17, 0, b"x"), (99999, 0, b"x"), (3802, 0, b"{"), (1186, 0, b"1 mon"), (23, 2, b"1"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_read_are_refused(oid: int, form: int, value: bytes):
    with pytest.raises(ParameterError, match=r"\$3"):
        parameter_literal(oid, form, value, 3)


@example(2950, 1, b"")
@given(st.sampled_from([0, 16, 20, 23, 25, 701, 1082, 1083, 1184, 1186, 1700, 2950, 3802, 1016, 1009]),
       st.sampled_from([0, 1]), st.binary(max_size=40))  # fmt: skip
def test_random_bytes_are_a_literal_or_refused(oid: int, form: int, value: bytes):
    try:
        literal = parameter_literal(oid, form, value)
    except ParameterError:
        pass
    else:
        assert "\0" not in literal


def test_formats_that_do_not_fit():
    with pytest.raises(ParameterError, match="formats"):
        bound_literals([23], [0, 1, 0], [b"1", b"2"])
    assert bound_literals([23], [0], [b"1", b"2"]) == ["1", "'2'"]
