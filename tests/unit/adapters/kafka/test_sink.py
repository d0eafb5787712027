"""What a Kafka sink is, without a broker: its value, its text, its options."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headrace.adapters.kafka import KafkaSink
from headrace.errors import PlanError, UnknownColumn
from headrace.schema import Schema


def sink(**options: Any) -> KafkaSink:
    return KafkaSink(**{"bootstrap": "host:9092", "topic": "answers"} | options)


def test_it_is_a_value_whose_text_has_no_addresses_or_secrets() -> None:
    one = sink(options={"sasl.password": "secret"}, message_key="symbol")
    assert (
        one == sink(options=[("sasl.password", "secret")], message_key=("symbol",)) == pickle.loads(pickle.dumps(one))  # noqa: S301 - our own bytes
    )
    assert str(one) == repr(one) == "kafka(answers; events as json; key symbol as json; exactly_once)"
    assert one.exactly_once
    assert not sink(delivery="at_least_once").exactly_once


def test_upserts_have_their_key() -> None:
    assert sink(encoding="upsert", key="symbol").keys == ("symbol",)
    with pytest.raises(UnknownColumn):
        sink(encoding="upsert", key="symbol").open("q", 0, Schema.of("price DOUBLE"), -1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": ""}, "needs a topic"),
        ({"bootstrap": ""}, "needs a bootstrap"),
        ({"encoding": "rows"}, "unknown encoding"),
        ({"encoding": "upsert"}, "upsert rows need a key"),
        ({"encoding": "upsert", "key": "a", "message_key": "a"}, "is their message key"),
        ({"delivery": "once"}, "unknown delivery"),
        ({"key_format": "text"}, "is one column"),
        ({"key_format": "avro"}, "unknown key_format"),
        ({"partitions": 3}, "for a topic that is created"),
        ({"options": {"transactional.id": "x"}}, "'transactional.id' is set by the adapter"),
    ],
)
def test_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        sink(**options)
