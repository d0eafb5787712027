"""What a Kafka source is, without a broker: its value, its text, its options."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.kafka import KafkaSource
from headrace.errors import HeadraceError, PlanError
from headrace.io.adapter import Offsets
from headrace.io.values import ValueFormat
from headrace.schema import Schema


def source(**options: Any) -> KafkaSource:
    return KafkaSource(**{"bootstrap": "host:9092", "topics": ("trades",), "columns": "price DOUBLE"} | options)


def test_it_is_a_value() -> None:
    one = source(options={"sasl.password": "secret", "fetch.min.bytes": 5}, start={"trades/0": 5})
    again = source(options={"fetch.min.bytes": "5", "sasl.password": "secret"}, start={"trades/0": 5}, topics="trades")
    assert one == again == pickle.loads(pickle.dumps(one))  # noqa: S301 - our own bytes
    assert hash(one) == hash(again)
    assert one != source(start={"trades/0": 6}, options={"sasl.password": "secret", "fetch.min.bytes": 5})


def test_its_text_names_what_is_read_and_no_addresses_or_secrets() -> None:
    plain = source(options={"sasl.password": "secret", "ssl.key.password": "hidden"})
    assert str(plain) == repr(plain) == "kafka(trades, json: price DOUBLE)"
    full = source(
        topics=(), pattern="t.*", start=datetime(2024, 1, 2, tzinfo=UTC), tombstones=True, format=ValueFormat("csv"),
        key_format=ValueFormat("text"), key_columns="id LONG",
    )  # fmt: skip
    assert str(full) == (
        "kafka(pattern t.*, csv: price DOUBLE, key text: id LONG; start 2024-01-02T00:00:00+00:00; tombstones)"
    )


def test_its_columns() -> None:
    own = "_key STRING, _topic STRING, _partition INT, _offset LONG, _timestamp DATETIME, _headers STRING"
    assert source().schema == Schema.of(f"price DOUBLE, {own}")
    keyed = source(columns="id LONG, price DOUBLE", key_columns="id LONG", key_format=ValueFormat("json"))
    assert keyed.schema == Schema.of(f"id LONG, price DOUBLE, {own}")
    assert source(tombstones=True).schema == Schema.of(f"price DOUBLE, {own}, _tombstone BOOLEAN")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": ()}, "give topics or a pattern"),
        ({"pattern": "a"}, "give topics or a pattern"),
        ({"topics": (), "pattern": "("}, "not a regular expression"),
        ({"start": "now"}, "unknown start"),
        ({"start": {"trades": 5}}, "unknown start"),
        ({"start": datetime(2024, 1, 1)}, "needs a time zone"),  # noqa: DTZ001 - refused for that
        ({"start": {"trade/0": 5}}, "a topic that is not read"),
        ({"isolation": "none"}, "unknown isolation"),
        ({"on_gap": "ignore"}, "unknown on_gap"),
        ({"key_columns": "id LONG"}, "columns of the key need a format"),
        ({"columns": "_offset LONG"}, "is a column of every record"),
        ({"options": {"group.id": "secret-value"}}, "'group.id' is set by the adapter"),
    ],
)
def test_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message) as raised:
        source(**options)
    assert "secret-value" not in str(raised.value)


def test_options_that_the_client_refuses_are_an_error_without_their_values() -> None:
    with pytest.raises(PlanError, match='property: "secrets"') as raised:
        source(options={"secrets": "secret-value"}).offsets({})
    assert "secret-value" not in str(raised.value)


def test_where_it_begins_without_asking() -> None:
    available = Offsets(10, 20)
    assert source().begin("trades/0", available) == 10
    assert source(start="latest").begin("trades/0", available) == 20
    assert source(start={"trades/0": 15}).begin("trades/0", available) == 15
    assert source(start={"trades/0": 15}).begin("trades/1", available) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_drift": "wide"}, "unknown policy for other columns"),
        ({"on_drift": "widen", "format": ValueFormat("csv")}, "csv messages have no names of columns to judge"),
        ({"sparse": ["n"]}, "sparse names columns that messages may lack under on_drift"),
        ({"on_drift": "widen", "sparse": ["m"]}, "'m'"),
    ],
)
def test_drift_options_that_do_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadraceError, match=message):
        KafkaSource("localhost:9092", ("t",), "n LONG", **options)


def test_drift_is_no_part_of_the_query() -> None:
    plain = KafkaSource("localhost:9092", ("t",), "n LONG")
    judged = KafkaSource.from_options(
        {"bootstrap": "localhost:9092", "topics": "t", "columns": "n LONG", "on_drift": "divert", "sparse": "n"}
    )
    assert (judged.on_drift, judged.sparse) == ("divert", ("n",))
    assert str(judged) == str(plain)
    with pytest.raises(PlanError, match="an adapter has its own"):
        hr.read_changes(plain, "n LONG", key="n", encoding="upsert", on_drift="widen", at="n")


def test_the_place_of_a_topic_does_not_depend_on_how_it_is_read() -> None:
    """Its offsets go on, when an upgrade reads other columns of it."""
    plain = KafkaSource("localhost:9092", ("t",), "n LONG")
    others = KafkaSource("localhost:9092", ("t",), "n LONG, more STRING", format=ValueFormat("csv"), tombstones=True)
    assert str(plain) != str(others)
    assert plain.read_place == others.read_place
    for another in (KafkaSource("localhost:9092", ("u",), "n LONG"), replace(plain, start="latest")):
        assert plain.read_place != another.read_place
