"""Checkpoints that earlier versions have written continue with the current one, and give the answers of a whole run."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kept.archives import ARCHIVES, KeptArchive
from tests.kept.queries import FILES, HALF, QUERIES, run, write_input

import headrace as hr
from headrace.errors import CheckpointError
from headrace.host.driving.driver import Driver
from headrace.host.driving.versions import FORMAT, FORMATS, readable
from headrace.io.sinks import read_events_output
from headrace.store.bundle import VERSION

CASES = [(archive, query) for archive in ARCHIVES for query in QUERIES]
#: How a file of the store begins: a magic text, and its format.
_HEAD = struct.Struct("<8sQ")


@pytest.fixture(scope="module", autouse=True)
def whole_loops() -> Iterator[None]:
    """Loops end within their batch, also on a busy machine: rows are compared batch by batch."""
    bounded = Driver._bounded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "_bounded", lambda driver, trips, _: bounded(driver, trips, 0.0))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of the current version from the beginning: the folder, and the counts of each query."""
    folder = tmp_path_factory.mktemp("whole")
    counts: dict[str, Any] = {}

    def answer(query: str) -> tuple[Path, Any]:
        if query not in counts:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                write_input(folder, 0, FILES)
                counts[query] = run(query)
        return folder, counts[query]

    return answer


def _rows(folder: Path, batches: range) -> dict[int, Counter[str]]:
    """The rows of an output, batch by batch; their order within a batch is not defined."""
    found = {}
    for number in batches:
        files = sorted((folder / f"batch-{number:08d}").glob("*.jsonl"))
        found[number] = Counter(line for file in files for line in file.read_text().splitlines())
    return found


def _resume(archive: KeptArchive, query: str, folder: Path, patch: pytest.MonkeyPatch, host: str = "local") -> Any:
    """Continue a kept query with the second half of the input. The paths of the first half have moved."""
    archive.unpack(folder)
    patch.chdir(folder)
    write_input(folder, HALF, FILES)
    return run(query, host)


def _check(folder: Path, query: str, counts: Any, whole: Any) -> None:
    expected, all_counts = whole(query)
    second = range(HALF, FILES)
    old_dates = query == "dates" and not json.loads((folder / "state/dates/headrace.json").read_text()).get("dates")
    if not old_dates:
        assert _rows(folder / "out" / query, second) == _rows(expected / "out" / query, second)
    if query != "upsert":
        schema = QUERIES[query]().schema
        ours, theirs = (read_events_output(str(place / "out" / query), schema) for place in (folder, expected))
        assert ours.num_rows > 0
        assert hr.same_history(ours, theirs), hr.history_diff(ours, theirs)
    for part in ("diverted/0", "diverted/1"):
        kept, fresh = (_rows(place / "state" / query / part, range(FILES)) for place in (folder, expected))
        assert [sum(rows.values()) for rows in kept.values()] == [sum(rows.values()) for rows in fresh.values()]
    assert {source: dict(count) for source, count in counts.items()} == all_counts


@pytest.mark.parametrize(("archive", "query"), CASES, ids=[f"{archive.name}-{query}" for archive, query in CASES])
def test_a_kept_checkpoint_continues(
    archive: KeptArchive, query: str, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reason = archive.refused.get(query)
    if reason is not None:
        with pytest.raises(CheckpointError, match=reason):
            _resume(archive, query, tmp_path, monkeypatch)
        return
    _check(tmp_path, query, _resume(archive, query, tmp_path, monkeypatch), whole)


@pytest.mark.usefixtures("spark")
def test_the_first_checkpoints_continue_on_spark(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counts = _resume(ARCHIVES[0], "two_levels", tmp_path, monkeypatch, "spark")
    _check(tmp_path, "two_levels", counts, whole)


def test_what_is_written_now_is_kept(tmp_path: Path):
    """Fails if a format or the version changes without a kept checkpoint: `python -m tests.kept.write` writes it."""
    written = set()
    for archive in ARCHIVES:
        folder = tmp_path / archive.name
        archive.unpack(folder)
        about = json.loads((folder / "state/window/headrace.json").read_text())
        heads = [_HEAD.unpack(p.read_bytes()[: _HEAD.size]) for p in (folder / "state").rglob("store/commits/*")]
        assert heads
        written |= {(about["format"], about.get("headrace"), version) for _, version in heads}
    assert (FORMAT, hr.__version__, VERSION) in written, "python -m tests.kept.write, and a line in archives.py"
    assert {version for _, _, version in written} == set(range(1, VERSION + 1))
    assert {number for number, known in FORMATS.items() if known.is_read} == {number for number, _, _ in written}


def test_the_last_two_minor_versions_are_kept():
    major, minor = map(int, hr.__version__.split(".")[:2])
    due = {f"{major}.{earlier}" for earlier in range(max(1, minor - 2), minor + 1)}
    assert due <= {archive.version.rpartition(".")[0] for archive in ARCHIVES}


def test_every_archive_is_in_the_list():
    assert {path.name for path in Path(__file__).parent.glob("*.xz")} == {archive.path.name for archive in ARCHIVES}


@pytest.mark.parametrize(
    ("about", "parts"),
    [
        (
            {"format": 2},
            ["format 2, written by a preview", "read by that preview only", "another checkpoint directory"],
        ),
        ({"format": 9, "headrace": "7.1.0"}, ["written by Headrace 7.1.0", "read by Headrace 7.1.0, and later ones"]),
        ({"format": 9}, [f"written by a Headrace after {hr.__version__}", "format 3 (Headrace 0.1.0 and later)"]),
        ({}, ["format None, written by an unknown program"]),
    ],
)
def test_another_format_names_the_versions_that_read_it(about: dict[str, Any], parts: list[str]):
    with pytest.raises(CheckpointError) as caught:
        readable("state/q", about)
    for part in [*parts, f"this is Headrace {hr.__version__}"]:
        assert part in str(caught.value)


def test_a_checkpoint_shows_who_created_it_and_who_wrote_it_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = next(archive for archive in ARCHIVES if archive.name == "0.1.0")
    _resume(archive, "window", tmp_path, monkeypatch)
    shown = str(hr.checkpoint("state/window").show())
    assert "format 3, created by Headrace 0.1.0 or earlier" in shown
    assert f", with Headrace {hr.__version__}" in shown
