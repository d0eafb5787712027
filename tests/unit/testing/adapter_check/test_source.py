"""The kit on sources: the sample adapter passes, and every planted fault is found by the rule that it breaks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from tests.fixtures import faulty_sources
from tests.fixtures.sqlite_place import COLUMNS, SqlitePlace

from headrace.errors import PlanError
from headrace.testing import check_source
from headrace.testing.adapter_check import AdapterReport, BrokenContract
from headrace.testing.adapter_check.log import LogSource

FAULTS = [
    kind
    for kind in vars(faulty_sources).values()
    if isinstance(kind, type) and issubclass(kind, faulty_sources.Faulty) and kind is not faulty_sources.Faulty
]


@pytest.fixture(autouse=True)
def no_connections() -> Iterator[None]:
    yield
    for connection in faulty_sources.CONNECTIONS.values():
        connection.close()
    faulty_sources.CONNECTIONS.clear()


@pytest.mark.slow
def test_the_sample_adapter_keeps_all_rules(tmp_path: Path):
    report = SqlitePlace(tmp_path).check_source()
    assert report.ok
    assert report.skipped == ("gap",)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda kind: kind.__name__)
def test_every_planted_fault_is_found(fault: type[faulty_sources.Faulty], tmp_path: Path):
    with pytest.raises(BrokenContract) as broken:
        SqlitePlace(tmp_path).check_source(fault)
    report: AdapterReport = broken.value.report
    assert report.broken == fault.rule, str(broken.value)
    assert not report.ok
    assert all(finding.verdict in ("ok", "skipped") for finding in report.findings[:-1])


def test_there_are_many_faults():
    assert len(FAULTS) >= 15


def log_at(folder: Path, kind: type[LogSource] = LogSource) -> LogSource:
    source = kind(str(folder / "log"), COLUMNS)
    for name in ("a", "b"):
        source.add(name)
    return source


def check_log(source: LogSource, **options: object) -> AdapterReport:
    def add() -> str:
        source.add("new")
        return "new"

    @contextmanager
    def outage() -> Iterator[None]:
        gone = Path(source.path).rename(f"{source.path}.gone")
        yield
        gone.rename(source.path)

    return check_source(source, source.append, add=add, expire=source.expire, outage=outage, **options)


@pytest.mark.slow
def test_a_log_keeps_all_rules(tmp_path: Path):
    report = check_log(log_at(tmp_path))
    assert report.ok
    assert report.skipped == ()
    assert "all rules are kept" in str(report)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [faulty_sources.QuietGap, faulty_sources.UncountedGap])
def test_gaps_that_are_not_reported_are_found(fault: type[LogSource], tmp_path: Path):
    with pytest.raises(BrokenContract) as broken:
        check_log(log_at(tmp_path, fault), runs=1)
    assert broken.value.report.broken == "gap"


def test_the_message_shows_the_rule_and_the_smallest_calls(tmp_path: Path):
    with pytest.raises(BrokenContract) as broken:
        SqlitePlace(tmp_path).check_source(faulty_sources.EndTooLow)
    lines = str(broken.value).splitlines()
    assert "Faulty" not in lines[0]
    assert "EndTooLow (sqlite in_*) breaks a rule of the contract of adapters" in lines[0]
    assert lines[1].startswith("✗ rows")
    assert [line.strip() for line in lines[-2:]] == [
        "append('in_a', 1 rows)",
        "read('in_a', 0, 1, ['k', 'n', 'x', 'ok', 'ts']) = 0 rows",
    ]


def test_an_error_of_the_adapter_is_a_finding(tmp_path: Path):
    place = SqlitePlace(tmp_path)
    place.execute("DROP TABLE in_a")
    place.execute("DROP TABLE in_b")
    with pytest.raises(BrokenContract, match="there is no partition"):
        place.check_source()
    with pytest.raises(BrokenContract, match="a call raised OperationalError: no such table"):
        check_source(log_at(tmp_path), place.append)


def test_only_adapters_are_checked():
    with pytest.raises(PlanError, match="not an adapter of a source"):
        check_source(sqlite3, lambda *_: None)


@pytest.mark.slow
def test_rows_of_ones_own_and_a_place_that_has_rows(tmp_path: Path):
    source = log_at(tmp_path)
    rows = [{"k": "a", "n": number, "x": 0.5, "ok": True, "ts": number} for number in range(3)]
    sample = pa.Table.from_pylist(rows, source.schema.arrow)
    source.append("a", sample)
    assert check_source(source, source.append, sample=sample, time="n", runs=2).ok
