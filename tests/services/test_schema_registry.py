"""Avro values with a real schema registry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from tests.services.schema_registry import schema_registry

from headrace.errors import SourceError
from headrace.io.avro_writing import avro_schema
from headrace.io.registry import schema_by_id, schema_id
from headrace.io.values import ValueDecoder, ValueFormat, encode_values
from headrace.schema import Schema


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with schema_registry(tmp_path_factory.mktemp("registry")) as url:
        yield url


def test_values_of_two_versions_of_a_schema(registry: str):
    format = ValueFormat("avro", registry=registry, subject="trades-value")
    old = pa.table({"l": [1, 2], "s": ["a", None]})
    new = pa.table({"s": ["c"], "l": [3], "more": [[1, 2]]})
    values = pa.concat_arrays([encode_values(old, format), encode_values(new, format), encode_values(old, format)])
    block = ValueDecoder(format, Schema.of("l LONG, more ARRAY<LONG>, s STRING").fields).decode(values, np.arange(5))
    assert block.table["l"].to_pylist() == [1, 2, 3, 1, 2]
    assert block.table["s"].to_pylist() == ["a", None, "c", "a", None]
    assert block.table["more"].to_pylist() == [None, None, [1, 2], None, None]
    assert block.refused.num_rows == 0


def test_numbers_of_schemas(registry: str):
    schema = avro_schema(Schema.of("l LONG").arrow)
    number = schema_id(registry, "numbers-value", schema)
    assert schema_id(registry, "numbers-again", schema) == number
    assert schema_by_id(registry, number) == schema
    assert schema_by_id(registry, 10**6) is None


def test_a_schema_that_the_registry_refuses(registry: str):
    with pytest.raises(SourceError, match="refused a request"):
        schema_id(registry, "wrong-value", '{"type": "nothing"}')
