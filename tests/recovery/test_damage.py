"""A checkpoint or a sink that something was taken from, or changed in: the exact answer, or an error that names it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.errors import CheckpointError, HeadraceError, SinkError, StoreError, Superseded
from headrace.events import history, to_changes
from headrace.io.sinks import read_events_output
from headrace.store.bundle import Bundle

pytestmark = pytest.mark.usefixtures("spark")
FILES, ROWS, KEYS = 6, 4000, 2000


def write_input(folder: Path, first: int, last: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        draw = np.random.default_rng(number)
        times = draw.integers(number * 100, number * 100 + 150, ROWS)
        table = pa.table({"t": times, "k": draw.integers(0, KEYS, ROWS), "v": draw.integers(0, 9, ROWS)})
        pq.write_table(table, folder / f"_{number}")
        os.utime(folder / f"_{number}", (number + 1, number + 1))
        (folder / f"_{number}").rename(folder / f"{number}.parquet")


def counts(folder: Path) -> hr.Stream:
    """So many keys that segments are files of their own."""
    stream = hr.read_parquet(str(folder / "in"), lifetime=hr.point("t"), progress=hr.advance(delay=200))
    return stream.group_by("k").window(hr.tumbling(50)).aggregate(n=hr.count(), s=hr.sum("v"))


def run(folder: Path) -> None:
    query = counts(folder).start(
        hr.files(str(folder / "out")), checkpoint=str(folder / "state"), files_per_batch=1, buckets=2
    )
    try:
        query.process_all_available()
    finally:
        query.stop()


def answer(folder: Path) -> pa.Table:
    schema = counts(folder).schema
    return history(to_changes(read_events_output(str(folder / "out"), schema), schema))


@pytest.fixture(scope="module")
def begun(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001 - it must run
    """A query that has read its first files and was stopped."""
    folder = tmp_path_factory.mktemp("begun")
    write_input(folder / "in", 0, FILES)
    run(folder)
    return folder


def largest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def blocks(path: Path) -> list[tuple[int, int]]:
    """Where the blocks of a file of the store begin, and how long they are; between them there may be bytes unused."""
    return [(start, size) for start, size, _ in Bundle.open(path.name, pa.py_buffer(path.read_bytes())).blocks.values()]


def alter(path: Path, *places: tuple[int, int]) -> None:
    """Alter a bit in the middle of some blocks, or of all of them: those that nobody wants to read are not missed."""
    data = bytearray(path.read_bytes())
    for start, size in places or blocks(path):
        data[start + size // 2] ^= 1
    path.write_bytes(data)


def flip(path: Path) -> None:
    alter(path, max(blocks(path), key=lambda block: block[1]))


def flip_all(folder: Path) -> None:
    """Alter every block of every file: segments are read when their rows are wanted, and not all of them are."""
    for path in folder.iterdir():
        alter(path)


def newest(folder: Path) -> Path:
    return max(folder.iterdir())


Damage = Callable[[Path], object]
DAMAGES: dict[str, tuple[Damage, type[HeadraceError], str]] = {
    "a commit in between": (
        lambda f: sorted((f / "state/store/commits").iterdir())[2].unlink(), CheckpointError, "batches 2 are missing"
    ),
    "all commits": (lambda f: shutil.rmtree(f / "state/store/commits"), CheckpointError, "lacks commits"),
    "the store": (lambda f: shutil.rmtree(f / "state/store"), SinkError, "commits were lost"),
    "a batch of the sink": (lambda f: shutil.rmtree(f / "out/batch-00000002"), SinkError, "batch 2 is missing"),
    "two batches of the sink": (
        lambda f: [shutil.rmtree(f / f"out/batch-0000000{n}") for n in (1, 3)], SinkError, "2 of its 6 batches"
    ),
    "the sink": (lambda f: shutil.rmtree(f / "out"), SinkError, "has begun already"),
    "a commit cut short": (lambda f: cut(newest(f / "state/store/commits")), StoreError, "commits/"),
    "a commit altered": (lambda f: alter(newest(f / "state/store/commits")), StoreError, "commits/"),
}  # fmt: skip
LATER: dict[str, tuple[Damage, type[HeadraceError], str]] = {
    "segments cut short": (lambda f: cut(largest(f / "state/store/data")), StoreError, "damaged"),
    "segments altered": (lambda f: flip_all(f / "state/store/data"), StoreError, "damaged"),
    "segments missing": (lambda f: largest(f / "state/store/data").unlink(), StoreError, "missing"),
}


def copied(begun: Path, target: Path) -> Path:
    """The same directories once more, under the same names for the query: files keep their times."""
    shutil.copytree(begun, target / "saved", copy_function=shutil.copy2)
    return target / "saved"


@pytest.fixture
def damaged(begun: Path, tmp_path: Path) -> Iterator[Path]:
    """The query's folder, to be damaged; afterwards it is as it was."""
    saved = copied(begun, tmp_path)
    yield begun
    shutil.rmtree(begun)
    shutil.copytree(saved, begun, copy_function=shutil.copy2)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_refused_by_name_at_the_start(name: str, damaged: Path):
    damage, error, text = DAMAGES[name]
    damage(damaged)
    with pytest.raises(error, match=text):
        run(damaged)


def forget_workers() -> None:
    """Let no worker have the state in memory: it must come from the store."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    session.range(0, 8, 1, 8).mapInArrow(_forget, "id long").collect()


def _forget(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from headrace.host.driving import tasks

    tasks._STAGES.clear()
    yield from batches


@pytest.mark.parametrize("name", LATER)
def test_damaged_segments_are_never_a_wrong_answer(name: str, damaged: Path):
    damage, error, text = LATER[name]
    damage(damaged)
    forget_workers()
    write_input(damaged / "in", FILES, FILES + 1)
    with pytest.raises(error, match=text):
        run(damaged)


def test_one_altered_byte_is_found_by_verify_and_is_never_a_wrong_answer(damaged: Path):
    """A segment is checked when its rows are wanted: until then the answer is exact."""
    flip(largest(damaged / "state/store/data"))
    assert any("checksum" in text for text in hr.checkpoint(damaged / "state").verify()["problems"])
    forget_workers()
    write_input(damaged / "in", FILES, FILES + 1)
    try:
        run(damaged)
    except StoreError as error:
        assert "damaged" in error.message  # noqa: PT017
    else:
        assert not hr.history_diff(counts(damaged).run(finish=False).cht(), answer(damaged), names=("local", "spark"))


def test_what_is_whole_goes_on_with_the_exact_answer(damaged: Path):
    forget_workers()
    write_input(damaged / "in", FILES, FILES + 2)
    last = newest(damaged / "out")
    assert last.name == f"batch-{FILES - 1:08d}"
    run(damaged)
    assert not hr.history_diff(counts(damaged).run(finish=False).cht(), answer(damaged), names=("local", "spark"))


def test_the_second_of_two_drivers_owns_the_query(damaged: Path):
    """A lock keeps two drivers apart; where it does not (another machine, a file system without locks), epochs do."""
    write_input(damaged / "in", FILES, FILES + 1)
    sink, state = str(damaged / "out"), str(damaged / "state")
    first = counts(damaged).start(hr.files(sink), checkpoint=state, files_per_batch=1)
    first.process_all_available()
    Path(state, "lock").unlink()
    second = counts(damaged).start(hr.files(sink), checkpoint=state, files_per_batch=1)
    try:
        write_input(damaged / "in", FILES + 1, FILES + 2)
        second.process_all_available()
        with pytest.raises(Superseded, match="another process"):
            first.await_termination(60)
        write_input(damaged / "in", FILES + 2, FILES + 3)
        second.process_all_available()
    finally:
        second.stop()
        first.stop()
    assert not hr.history_diff(counts(damaged).run(finish=False).cht(), answer(damaged), names=("local", "spark"))
