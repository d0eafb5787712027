"""Spark Connect: the same answers from a client that shares no process with Spark's driver."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace as hr
from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output

DRIVER = Path(__file__).with_name("connect_driver.py")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver = load(DRIVER)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("connect")
    (place / "data").mkdir()
    (place / "data" / "1.csv").write_text("k,t,v\na,5,1\na,31,2\nb,35,1\nc,7,1\nd,oops,1\n")
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """What the client saw."""
    answer = folder / "answer.json"
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(folder), str(answer)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(answer.read_text())
    return result


@pytest.mark.spark
def test_a_connect_client_gets_the_local_hosts_history(found: dict[str, Any]):
    assert found["connect"]
    right = hr.run(driver.queries())
    assert found["run"] == driver.rows_of(right, list(driver.queries()))
    assert found["counts"] == right.counts


@pytest.mark.spark
def test_sinks_of_the_clients_own_process_are_fed(found: dict[str, Any]):
    first = found["first"]
    assert first["memory"] == [{"le": 0, "re": 10, "k": "a", "n": 1}], "c is late, and the others' window is open"
    assert first["heard"] == 1
    assert first["progress"]["batch"] == 0
    assert first["progress"]["operators"][0]["held_by"]


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_query_goes_on_from_its_checkpoint(found: dict[str, Any], folder: Path):
    stream = driver.files(folder / "data").group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    events = read_events_output(str(folder / "out"), stream.schema)
    right = stream.run()
    assert not hr.history_diff(right.cht(), history(to_changes(events, stream.schema)), names=("local", "connect"))
    second = found["second"]
    assert second["progress"]["cti"] == hr.INFINITY
    assert second["counts"] == right.counts
    assert second["seconds"] == 2


@pytest.mark.spark
def test_a_workers_error_reaches_the_client_as_it_was(found: dict[str, Any]):
    kind, text = found["error"]
    assert kind == "LateEvent"
    assert "CTI 6" in text
