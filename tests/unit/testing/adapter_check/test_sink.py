"""The kit on sinks: the sample adapter passes, and every planted fault is found by the rule that it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from tests.fixtures import faulty_sinks
from tests.fixtures.sqlite_place import SqlitePlace

from headrace.adapters import DeliveryId
from headrace.errors import PlanError
from headrace.testing import check_sink
from headrace.testing.adapter_check import BrokenContract
from headrace_sqlite import SqliteSink

FAULTS = [
    kind
    for kind in vars(faulty_sinks).values()
    if isinstance(kind, type) and issubclass(kind, faulty_sinks.Faulty) and kind is not faulty_sinks.Faulty
]
#: The encodings that show a fault; all would take longer.
ENCODINGS = {"ForgetsDeletes": ["upsert"], "DeletesAll": ["upsert"], "NullKeysDiffer": ["upsert"]}


@pytest.fixture(autouse=True)
def no_connections() -> Iterator[None]:
    yield
    for connection in faulty_sinks.CONNECTIONS.values():
        connection.close()
    faulty_sinks.CONNECTIONS.clear()


@pytest.mark.slow
def test_the_sample_adapter_keeps_all_rules(tmp_path: Path):
    report = SqlitePlace(tmp_path).check_sink(kills=10, runs=3)
    assert report.ok
    assert report.skipped == ()


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda kind: kind.__name__)
def test_every_planted_fault_is_found(fault: type[faulty_sinks.Faulty], tmp_path: Path):
    place, kills = SqlitePlace(tmp_path), 25 if fault.rule == "crash" else 2
    with pytest.raises(BrokenContract) as broken:
        place.check_sink(fault, encodings=ENCODINGS.get(fault.__name__, ["events"]), kills=kills)
    assert broken.value.report.broken == fault.rule, str(broken.value)


def test_there_are_many_faults():
    assert len(FAULTS) >= 15


@pytest.mark.slow
def test_the_message_shows_the_line_at_which_the_process_was_killed(tmp_path: Path):
    with pytest.raises(BrokenContract) as broken:
        SqlitePlace(tmp_path).check_sink(faulty_sinks.RecordsAfter, encodings=["events"])
    assert "its process is killed at" in str(broken.value)
    assert "before: self.record(delivery)" in str(broken.value) or "twice: " in str(broken.value)


@dataclass(frozen=True)
class AtLeastOnce(SqliteSink):
    """An honest sink that does not recognise what it has."""

    exactly_once: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"sqlite {self.table}"

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:  # noqa: ARG002 - the point of it
        faulty_sinks.Faulty.write(self, rows)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_sink_that_claims_less_is_held_to_that(tmp_path: Path):
    assert SqlitePlace(tmp_path).check_sink(AtLeastOnce, encodings=["changes"], kills=3, runs=2).ok


def test_encodings_that_are_not_accepted_are_left_out(tmp_path: Path):
    place = SqlitePlace(tmp_path)
    with pytest.raises(BrokenContract) as broken:
        place.check_sink(faulty_sinks.NeverRecords, encodings=["final"])
    assert broken.value.report.broken == "once"


def test_only_adapters_are_checked():
    with pytest.raises(PlanError, match="no adapter of a sink"):
        check_sink(lambda *_: None, lambda _: [])
