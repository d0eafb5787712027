"""A Kafka source against a real broker: ranges are exact and repeatable, whatever the log has in it."""

from __future__ import annotations

import json
import pickle
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.fixtures.waiting import PATIENCE, until
from tests.services.broker import Broker
from tests.services.kafka.writing import transaction, value, write

import headrace as hr
from headrace.adapters.kafka import KafkaSource, discovery
from headrace.errors import SchemaDrift, SourceError, Unavailable
from headrace.history.stored import range_rows, stored_ranges
from headrace.io.adapter import Offsets, patiently
from headrace.io.values import ValueFormat

Topic = Callable[..., str]


@pytest.fixture(autouse=True)
def quick_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "REFRESH", 0.1)


def source(broker: Broker, topics: Sequence[str] | str = (), **options: Any) -> KafkaSource:
    return KafkaSource(broker.bootstrap, tuple([topics] if isinstance(topics, str) else topics), "n LONG", **options)


def numbers(adapter: KafkaSource, partition: str, start: int, end: int) -> list[int]:
    return [n for block in adapter.read(partition, start, end, ["n"]) for n in block.table["n"].to_pylist()]


def rows(adapter: KafkaSource, partition: str, start: int, end: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    return [row for block in adapter.read(partition, start, end, columns) for row in block.table.to_pylist()]


def test_a_range_has_exactly_its_offsets(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    write(broker, name, range(100))
    adapter = source(broker, name)
    assert adapter.offsets({}) == {f"{name}/0": Offsets(0, 100), f"{name}/1": Offsets(0, 0)}
    assert numbers(adapter, f"{name}/0", 0, 100) == [*range(100)]
    assert numbers(adapter, f"{name}/0", 17, 18) == [17]
    assert numbers(adapter, f"{name}/0", 18, 60) == [*range(18, 60)]
    assert numbers(adapter, f"{name}/0", 5, 5) == []
    (block,) = adapter.read(f"{name}/0", 40, 50, ["n"])
    assert block.rows.tolist() == [*range(40, 50)]
    assert block.lines is not None
    assert block.lines.tolist() == [*range(40, 50)]
    assert block.arrived is not None
    assert block.arrived.tolist() == [(1_700_000_000_000 + n) * 1000 for n in range(40, 50)]


def mixed_log(broker: Broker, name: str, seed: int) -> list[tuple[int, int]]:
    """A log of plain records, and of transactions that commit or abort; the offsets and numbers that are readable."""
    drawn = random.Random(seed)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{name}"})
    writer.init_transactions(30)
    number = 0
    for _ in range(25):
        kind, count = drawn.choice(["plain", "commit", "abort"]), drawn.randint(1, 30)
        batch = [*range(number, number + count)]
        number += count
        if kind == "plain":
            for n in batch:
                plain.produce(name, value(n), partition=0)
            plain.flush(30)
        else:
            with transaction(writer, commit=kind == "commit"):
                for n in batch:
                    writer.produce(name, value(n), partition=0)
    return committed(broker, name)


def committed(broker: Broker, name: str) -> list[tuple[int, int]]:
    """The offsets and numbers that a plain consumer reads."""
    client = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "expected", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    client.assign([TopicPartition(name, 0, 0)])
    found: list[tuple[int, int]] = []
    while (message := client.poll(30)) is not None and message.error() is None:
        found.append((message.offset() or 0, json.loads(message.value() or b"{}")["n"]))
    client.close()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_random_ranges_of_transactions_and_aborts_are_exact_and_the_same_again(
    broker: Broker, topic: Topic, seed: int
) -> None:
    name = topic()
    expected = mixed_log(broker, name, seed)
    adapter = source(broker, name)
    end = adapter.offsets({})[f"{name}/0"].end
    assert end > expected[-1][0]
    drawn = random.Random(seed)
    for _ in range(40):
        first = drawn.randint(0, end)
        last = drawn.randint(first, end)
        assert numbers(adapter, f"{name}/0", first, last) == [n for at, n in expected if first <= at < last]
    cuts = sorted({0, end, *(drawn.randint(0, end) for _ in range(20))})
    pieces = [numbers(adapter, f"{name}/0", *cut) for cut in pairwise(cuts)]
    assert [n for piece in pieces for n in piece] == [n for _, n in expected]


def test_a_range_that_ends_with_a_marker_does_not_wait(broker: Broker, topic: Topic) -> None:
    name = topic()
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{name}"})
    writer.init_transactions(30)
    adapter = source(broker, name)
    times = []
    for batch in range(10):
        with transaction(writer):
            writer.produce(name, value(batch), partition=0)
        begun = time.monotonic()
        assert numbers(adapter, f"{name}/0", 2 * batch, 2 * batch + 2) == [batch]
        times.append(time.monotonic() - begun)
    assert min(times) < 0.2  # those that wait all do


def test_an_open_transaction_hides_what_is_behind_it(broker: Broker, topic: Topic) -> None:
    name = topic()
    write(broker, name, range(3))
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"writer-{name}"})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(name, value(3), partition=0)
    writer.flush(30)
    write(broker, name, [4, 5])
    adapter = source(broker, name)
    assert adapter.offsets({})[f"{name}/0"].end == 3
    assert source(broker, name, isolation="read_uncommitted").offsets({})[f"{name}/0"].end == 6
    writer.commit_transaction(30)
    until(lambda: adapter.offsets({})[f"{name}/0"].end == 7)
    assert numbers(adapter, f"{name}/0", 0, 7) == [0, 1, 2, 3, 4, 5]


def test_holes_of_compaction_are_no_rows_and_no_loss(broker: Broker, topic: Topic) -> None:
    quick = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01",
             "segment.bytes": "1048576"}  # fmt: skip
    name = topic(config=quick)
    write(broker, name, range(200))
    adapter = source(broker, name)
    deadline, number = time.monotonic() + PATIENCE, 203
    while len(found := numbers(adapter, f"{name}/0", 0, 200)) == 200:
        assert time.monotonic() < deadline, "the broker does not compact"
        time.sleep(0.3)
        write(broker, name, [number])  # the same key each time; a segment that is full is left, and compacted
        number += 7
        adapter.close()  # what was fetched before the compaction is forgotten
    assert found
    assert found[-1] < 200
    blocks = [*adapter.read(f"{name}/0", 0, 200, ["n"])]
    assert sum(block.lost for block in blocks) == 0
    assert [n for block in blocks for n in block.rows.tolist()] == found


def test_two_calls_at_once_do_not_disturb_each_other(broker: Broker, topic: Topic) -> None:
    name = topic()
    write(broker, name, range(5000))
    adapter = pickle.loads(pickle.dumps(source(broker, name)))  # noqa: S301 - our own bytes
    first, second = adapter.read(f"{name}/0", 0, 5000, ["n"]), adapter.read(f"{name}/0", 100, 4000, ["n"])
    one, other = [next(first)], [next(second)]
    one, other = [*one, *first], [*other, *second]
    assert np.concatenate([block.rows for block in one]).tolist() == [*range(5000)]
    assert np.concatenate([block.rows for block in other]).tolist() == [*range(100, 4000)]
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda i: numbers(adapter, f"{name}/0", i, i + 500), range(0, 4000, 250))]
    assert found == [[*range(i, i + 500)] for i in range(0, 4000, 250)]


def test_a_generator_that_is_left_early_leaves_a_usable_reader(broker: Broker, topic: Topic) -> None:
    name = topic()
    write(broker, name, range(300))
    adapter = source(broker, name)
    left = adapter.read(f"{name}/0", 0, 300, ["n"])
    next(left)
    left.close()
    assert numbers(adapter, f"{name}/0", 10, 20) == [*range(10, 20)]


def test_the_columns_of_records(broker: Broker, topic: Topic) -> None:
    name = topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    headers = [("a", b"x"), ("a", b"y"), ("b", None)]
    producer.produce(name, b'{"n": 1}', b'{"id": 7}', 0, timestamp=1_700_000_000_123, headers=headers)
    producer.produce(name, None, b'{"id": 8}', 0)
    producer.produce(name, b"no json", b'{"id": 9}', 0)
    producer.produce(name, b'{"n": 4}', b"no json", 0)
    producer.produce(name, b'{"n": 5}', None, 0)
    producer.flush(30)
    keys = {"key_format": ValueFormat("json"), "key_columns": "id LONG"}
    adapter = source(broker, name, tombstones=True, **keys)
    columns = [column for column in adapter.schema.names if column != "_timestamp"]
    (block,) = adapter.read(f"{name}/0", 0, 5, columns)
    own = {"_topic": name, "_partition": 0, "_headers": None}
    assert block.table.to_pylist() == [
        {"id": 7, "n": 1, "_key": '{"id": 7}', **own, "_offset": 0, "_headers": '{"a": ["x", "y"], "b": null}',
         "_tombstone": False},
        {"id": 8, "n": None, "_key": '{"id": 8}', **own, "_offset": 1, "_tombstone": True},
        {"id": None, "n": 5, "_key": None, **own, "_offset": 4, "_tombstone": False},
    ]  # fmt: skip
    assert block.table.schema.equals(adapter.schema.arrow.empty_table().select(columns).schema)
    assert [(row["row"], row["line"], row["raw"]) for row in block.refused.to_pylist()] == [
        (2, 2, "no json"), (3, 3, "no json"),
    ]  # fmt: skip
    (plain,) = source(broker, name).read(f"{name}/0", 0, 2, ["n", "_timestamp"])
    assert plain.table.to_pylist() == [{"n": 1, "_timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)}]
    assert plain.refused["row"].to_pylist() == [1]
    assert "tombstone" in plain.refused["reason"][0].as_py()


def test_expired_offsets_raise_or_are_counted(broker: Broker, topic: Topic) -> None:
    name = topic()
    write(broker, name, range(100))
    broker.delete_records(name, {0: 40})
    with pytest.raises(SourceError, match=rf"30 offsets of partition {name}/0 are lost, 10 to 39"):
        numbers(source(broker, name), f"{name}/0", 10, 60)
    lenient = source(broker, name, on_gap="continue")
    blocks = [*lenient.read(f"{name}/0", 10, 60, ["n"])]
    assert [n for block in blocks for n in block.table["n"].to_pylist()] == [*range(40, 60)]
    assert sum(block.lost for block in blocks) == 30
    assert blocks[0].lost == 30
    gone = [*lenient.read(f"{name}/0", 10, 30, ["n"])]
    assert [(block.table.num_rows, block.lost) for block in gone] == [(0, 20)]
    assert gone[0].table.schema == blocks[0].table.schema
    assert lenient.offsets({})[f"{name}/0"] == Offsets(40, 100)


def test_ranges_of_large_records_are_bounded_in_bytes(
    broker: Broker, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    write(broker, name, range(20))
    monkeypatch.setattr("headrace.adapters.kafka.source.RANGE_BYTES", 3 * len(value(10)))

    def ended(start: int) -> tuple[int, int | None]:
        reader, count = source(broker, name).read(f"{name}/0", start, 20, ["n"]), 0
        while True:
            try:
                count += next(reader).table.num_rows
            except StopIteration as end:
                return count, end.value

    assert ended(10) == ended(10) == (3, 13)
    assert ended(18) == (2, None)
    stream = hr.read_kafka(name, "n LONG", bootstrap=broker.bootstrap, lifetime=hr.point("n"), progress=hr.ordered())
    assert stream.cht()["n"].to_pylist() == [*range(20)]
    (part,) = stored_ranges(stream.node)  # type: ignore[arg-type] # it is the source
    rows = [n for table in range_rows(stream.node, 0, part) for n in table["n"].to_pylist()]  # type: ignore[arg-type]
    assert rows == [*range(20)]


def test_new_partitions_and_topics_of_a_pattern_appear(broker: Broker, topic: Topic) -> None:
    name = topic()
    adapter = source(broker, pattern=rf"{name}(-more)?")
    assert {*adapter.offsets({})} == {f"{name}/0"}
    broker.add_partitions(name, 2)
    broker.create_topic(f"{name}-more")
    broker.create_topic(f"{name}-other")
    write(broker, f"{name}-more", range(5))
    expected = {f"{name}/0": Offsets(0, 0), f"{name}/1": Offsets(0, 0), f"{name}-more/0": Offsets(0, 5)}
    until(lambda: adapter.offsets({f"{name}/0": 0}) == expected)


def test_a_pattern_waits_for_its_first_topic(broker: Broker) -> None:
    assert source(broker, pattern="no-such-topic.*").offsets({}) == {}
    with pytest.raises(SourceError, match="there is no topic 'no-such-topic'"):
        source(broker, "no-such-topic").offsets({})
    assert "no-such-topic" not in broker.topics()


def test_a_topic_that_was_created_again_is_an_error(broker: Broker, topic: Topic) -> None:
    name = topic()
    write(broker, name, range(50))
    adapter = source(broker, name)
    assert numbers(adapter, f"{name}/0", 0, 50) == [*range(50)]
    broker.delete_topic(name)
    broker.create_topic(name)
    write(broker, name, range(10))
    with pytest.raises(SourceError, match="ends at offset 10, but was read up to 50"):
        patiently(lambda: adapter.offsets({f"{name}/0": 50}), "test")


def test_where_partitions_begin(broker: Broker, topic: Topic) -> None:
    name = topic()
    write(broker, name, range(100))
    part, available = f"{name}/0", Offsets(0, 100)
    at = datetime.fromtimestamp(1_700_000_000.030, UTC)
    assert source(broker, name).begin(part, available) == 0
    assert source(broker, name, start="latest").begin(part, available) == 100
    assert source(broker, name, start=at).begin(part, available) == 30
    assert source(broker, name, start=datetime(2100, 1, 1, tzinfo=UTC)).begin(part, available) == 100
    assert source(broker, name, start={part: 12}).begin(part, available) == 12
    with pytest.raises(SourceError, match="has no offset 120"):
        source(broker, name, start={part: 120}).begin(part, available)


def test_acknowledged_offsets_are_the_groups(broker: Broker, topic: Topic) -> None:
    name = topic(2)
    adapter = source(broker, name, group_id=f"group-{name}")
    adapter.acknowledge({f"{name}/0": 5, f"{name}/1": 7})
    adapter.acknowledge({f"{name}/0": 6})
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"group-{name}"})
    found = client.committed([TopicPartition(name, 0), TopicPartition(name, 1)], timeout=30)
    client.close()
    assert {p.partition: p.offset for p in found} == {0: 6, 1: 7}


def test_a_broker_that_is_killed_while_a_range_is_read(broker: Broker, topic: Topic) -> None:
    name = topic()
    write(broker, name, range(2000))
    adapter = source(broker, name)
    assert numbers(adapter, f"{name}/0", 0, 500) == [*range(500)]
    adapter.close()  # so that nothing is fetched ahead
    broker.kill()
    with pytest.raises(Unavailable):
        adapter.offsets({})
    with pytest.raises(Unavailable):
        numbers(adapter, f"{name}/0", 500, 2000)
    broker.start()
    found = patiently(lambda: numbers(adapter, f"{name}/0", 500, 2000), "test")
    assert found == [*range(500, 2000)]
    assert patiently(lambda: adapter.offsets({f"{name}/0": 2000}), "test") == {f"{name}/0": Offsets(0, 2000)}


DRIFTING = [{"n": i, "x": i / 2} | ({"more": 1} if i % 5 == 4 else {}) for i in range(20)]
DRIFTING += [{"n": 20, "y": 1.0}, {"x": 3.0}, {"z": 1}]


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are diverted here on purpose
@pytest.mark.parametrize("size", [None, 1, 7])
def test_messages_with_other_columns(broker: Broker, topic: Topic, size: int | None, tmp_path: Path) -> None:
    """Each message is judged for itself, in a run, a history and a query, however it is read."""
    name = topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for row in DRIFTING:
        producer.produce(name, json.dumps(row), partition=0)
    assert producer.flush(30) == 0

    def stream(**options: Any) -> hr.Stream:
        place = {"bootstrap": broker.bootstrap, "lifetime": hr.point("_offset"), "bad_rows": "divert"}
        return hr.read_kafka(name, "n LONG, x DOUBLE", **place, **options)

    def counts(of: dict[str, dict[str, int]]) -> list[int]:
        ((_, found),) = of.items()
        return [found[counter] for counter in ("drifted_rows", "missing_columns", "new_columns", "diverted")]

    widened = stream(on_drift="widen")
    run = widened.run(rows_per_batch=size)
    assert [(row["n"], row["x"]) for row in run.cht().to_pylist()][-3:] == [(19, 9.5), (20, None), (None, 3.0)]
    assert counts(run.counts) == [7, 4, 6, 1]
    assert hr.same_history(widened.history("duckdb").cht(), run.cht())
    diverted = stream(on_drift="divert", sparse=["n"]).run(rows_per_batch=size)
    assert counts(diverted.counts) == [6, 2, 6, 6]
    assert diverted.cht().num_rows == 17
    with pytest.raises(SchemaDrift, match=f"the columns of '{name}/0, offset 4' differ .* column 'more' is new"):
        stream(on_drift="raise").run(rows_per_batch=size)
    query = widened.start(
        hr.files(str(tmp_path / "out")), host="local", checkpoint=str(tmp_path / "state"), rows_per_batch=size
    )
    query.process_all_available()
    query.stop()
    assert counts(query.counts) == [7, 4, 6, 1]
    again = stream(on_drift="divert").start(  # the policy is no part of the query
        hr.files(str(tmp_path / "out")), host="local", checkpoint=str(tmp_path / "state")
    )
    again.process_all_available()
    again.stop()
    assert counts(again.counts) == [7, 4, 6, 1]
