"""Types are values: one object for each name, in every process."""

import copy
import pickle

import pytest

from headrace.errors import SchemaError
from headrace.schema import Schema, Type

NAMES = ("LONG", "ARRAY<INT>", "ARRAY<ARRAY<INT>>", 'STRUCT<a LONG, "b c" ARRAY<STRING>>')


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_one_object(name: str):
    kind = Type(name)
    assert kind.value == name
    assert kind is Type.parse(f" {name} ")
    assert pickle.loads(pickle.dumps(kind)) is kind  # noqa: S301 - its own bytes
    assert copy.copy(kind) is copy.deepcopy(kind) is kind


def test_the_parts_of_nested_types():
    kind = Type("STRUCT<a: LONG, b: ARRAY<STRING>>")
    assert kind.fields == (("a", Type.LONG), ("b", Type.STRING.array))
    assert kind is Type("ROW(a BIGINT, b TEXT[])")
    assert (kind.spark, kind.duckdb) == ("STRUCT<a:BIGINT,b:ARRAY<STRING>>", 'STRUCT("a" BIGINT, "b" VARCHAR[])')
    assert Schema.of("x INT, y STRUCT<a LONG, b STRING>").names == ("x", "y")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("varchar(10)", "STRING"), ("character varying (3)", "STRING"), ("char(1)", "CHAR"), ("CHAR(3)", "STRING"),
        ("timestamp(3) with time zone", "DATETIME"), ("TIMESTAMPTZ", "DATETIME"), ("double  precision", "DOUBLE"),
        ("int[]", "ARRAY<INT>"), ("timestamp without time zone", "DATETIME"), ("int8", "LONG"),
    ],
)  # fmt: skip
def test_names_of_other_dialects(text: str, name: str):
    assert Type(text) is Type(name)


@pytest.mark.parametrize("text", ["INTT", "float(3)", "DATETIME(9)", "int with time zone", "", "STRUCT<>", "STRUCT<a>"])
def test_what_is_no_type(text: str):
    with pytest.raises(SchemaError):
        Type(text)
