"""State larger than memory: it belongs to the files of the checkpoint, and batches take as long as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fixtures.growing_state import KINDS, run, write_events

from headrace.io.sinks import Nowhere

#: Small batches, and segments to match: what a batch needs for itself is in proportion to both.
BATCHES, ROWS, BLOCK = 260, 20_000, 32_768


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("growing") / "events"
    write_events(folder, BATCHES, ROWS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["groups", pytest.param("join", marks=pytest.mark.volume("traces of two sides; how they are kept is the same"))],
)
def test_state_is_three_times_the_memory_of_its_process(kind: str, events: Path, tmp_path: Path):
    batches = run(kind, events, tmp_path / "checkpoint", BLOCK)
    last = batches[-1]
    assert last["state"] > 50 * BATCHES * ROWS
    assert last["state"] >= 3 * last["anonymous"]
    # Processor time, since others use the machine, too. From the early batches to the late ones state grows fivefold.
    early, late = (sorted(b["cpu"] for b in some) for some in (batches[25:75], batches[-50:]))
    assert late[45] <= 2.5 * early[45], "all but the slowest batches"
    assert late[25] <= 2.5 * early[25], "the median batch"


@pytest.mark.slow
def test_progress_says_what_a_machine_had_to_fetch(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def answered(machine: str) -> int:
        """Run the query over one more file on a machine; how many bytes of state that had to fetch."""
        number = len(list((tmp_path / "events").iterdir())) if (tmp_path / "events").exists() else 0
        write_events(tmp_path / f"more-{number}", 1, 5_000)
        (tmp_path / "events").mkdir(exist_ok=True)
        (tmp_path / f"more-{number}" / "00000.parquet").rename(tmp_path / "events" / f"{number}.parquet")
        monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / machine))
        query = KINDS["groups"](str(tmp_path / "events")).start(Nowhere(), host="local", checkpoint=s3, buckets=2)
        query.process_all_available()
        query.stop()
        return int(query.progress()["fetched"])

    assert answered("one") == 0
    assert answered("one") == 0
    fetched = answered("two")
    assert fetched > 200_000
    assert answered("two") == 0
    assert 0 < answered("one") < 2 * fetched, "what was written on the other one"
