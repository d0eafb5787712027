"""The law of upgrades: after whatever rows a query changes, it gives what it would have given from the start."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.plans import aggregates, meets, spans

import headrace as hr
from headrace import Stream
from headrace.changes import Changes
from headrace.errors import CheckpointError
from headrace.events import history
from headrace.host.driving.corrections import rows_of_files
from headrace.host.driving.query import Query
from headrace.io.sinks import FileSink
from headrace.store.storage import LocalStorage
from headrace.testing.same import assert_same_history
from headrace.testing.strategies import SCHEMA, batch_sizes, buckets, physical_streams, tables

EXAMPLES = max(5, settings().max_examples // 8)
#: At how many points a running query is upgraded: 50 by `make fuzz ARGS=tests/properties/test_upgrades.py`.
POINTS = min(50, max(3, settings().max_examples // 8))


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def dying(writes: int | None) -> Iterator[None]:
    """A process that dies after so many files of its checkpoint."""
    if writes is None:
        yield
        return
    left, create = writes, LocalStorage.create

    def counted(storage: LocalStorage, *args: Any, **options: Any) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return create(storage, *args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalStorage, "create", counted)
        with suppress(Killed):
            yield


class Folder:
    """Files of events that arrive piece by piece, and queries over them."""

    def __init__(self, place: str, pieces: list[pa.Table]) -> None:
        self.place, self.pieces, self.there = Path(place), pieces, 0
        (self.place / "in").mkdir()
        self.arrive(1)

    def arrive(self, count: int) -> None:
        """Let all pieces up to a number be there."""
        for number in range(self.there, count):
            file = self.place / "next.parquet"  # a running query must find whole files
            pq.write_table(self.pieces[number], file)
            os.utime(file, (number + 1, number + 1))
            file.rename(self.place / "in" / f"{number:03d}.parquet")
        self.there = max(self.there, count)

    def stream(self) -> Stream:
        return hr.read_events(f"{self.place}/in", SCHEMA, format="parquet", order="name")

    def step(self, *outputs: tuple[Stream, str], state: str = "state", **options: Any) -> None:
        query = self.started(*outputs, state=state, **options)
        assert query is not None
        query.process_all_available()
        query.stop()

    def started(self, *outputs: tuple[Stream, str], state: str = "state", **options: Any) -> Query | None:
        """A query that runs; None if the checkpoint is that of another one."""
        pairs = [(stream, FileSink("changes", (), f"{self.place}/{name}", "parquet")) for stream, name in outputs]
        try:
            return hr.start_all(pairs, host="local", checkpoint=str(self.place / state), files_per_batch=1, **options)
        except CheckpointError as error:
            if "belongs to another query" not in error.message:
                raise
            return None

    def replace(self, old: Query, output: tuple[Stream, str]) -> None:
        """Let another query take over from one that runs, unless both are the same."""
        try:
            self.step(output, upgrade="side by side")
        except CheckpointError as error:
            if "another query uses this checkpoint" not in error.message:
                raise
        old.stop()

    def changes(self, name: str) -> Changes:
        return rows_of_files(f"{self.place}/{name}", SCHEMA)

    def fresh(self, stream: Stream, name: str) -> Changes:
        """What a query gives that runs from the start over what is there."""
        self.step((stream, name), state=f"state of {name}")
        return self.changes(name)


@st.composite
def pieces(draw: st.DrawFn) -> list[pa.Table]:
    events = draw(physical_streams(max_events=14, min_events=3))
    rows, start, found = tables(events, SCHEMA), 0, []
    for size in draw(batch_sizes(len(events))):
        found.append(rows.slice(start, size))
        start += size
    return [piece for piece in found if piece.num_rows]


@settings(max_examples=EXAMPLES)
@given(data=st.data(), rows=pieces())
def test_backfill_at_any_batch(data: st.DataObject, rows: list[pa.Table]):
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(place, rows)
        below = folder.stream()
        common = data.draw(aggregates(below))
        kinds = st.one_of(aggregates(below), spans(below), meets(common, below), aggregates(common))
        plans = [data.draw(kinds) for _ in range(3)]
        points = sorted(data.draw(st.lists(st.integers(1, len(rows)), min_size=2, max_size=2)))
        folder.arrive(points[0])
        folder.step((plans[0], "out"), buckets=data.draw(buckets()))
        running = plans[0]
        for point, plan in zip(points, plans[1:], strict=True):
            with dying(data.draw(st.none() | st.integers(0, 30))):
                folder.step((plan, "out"), upgrade="backfill")
            folder.arrive(point)
            old = folder.started((running, "out")) if data.draw(st.booleans()) else None
            if old is not None:
                folder.replace(old, (plan, "out"))
            folder.step((plan, "out"), upgrade="backfill")
            running = plan
        folder.arrive(len(rows))
        folder.step((plans[-1], "out"))
        assert_same_history(history(folder.changes("out")), history(folder.fresh(plans[-1], "fresh")))


@settings(max_examples=POINTS)
@given(data=st.data(), rows=pieces())
def test_a_running_query_at_a_random_point(data: st.DataObject, rows: list[pa.Table]):
    """Input arrives while both queries run; where the new one takes over is left to the threads."""
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(place, rows)
        below = folder.stream()
        common = data.draw(aggregates(below))
        kinds = st.one_of(aggregates(below), spans(below), meets(common, below), aggregates(common))
        plans = data.draw(kinds), data.draw(kinds)
        old = folder.started((plans[0], "out"), buckets=data.draw(buckets()))
        assert old is not None
        folder.arrive(data.draw(st.integers(1, len(rows))))
        arrivals = Thread(target=folder.arrive, args=(len(rows),))
        arrivals.start()
        folder.replace(old, (plans[1], "out"))
        arrivals.join()
        folder.step((plans[1], "out"))
        assert_same_history(history(folder.changes("out")), history(folder.fresh(plans[1], "fresh")))


@settings(max_examples=EXAMPLES)
@given(data=st.data(), times=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=2, max_size=7))
def test_a_backfill_judges_late_rows_as_the_old_query(data: st.DataObject, times: list[list[int]]):
    """The same files read together give the same late rows, however many files the backfill would read together."""
    with tempfile.TemporaryDirectory() as place:
        read = hr.read_csv(f"{place}/in", "t LONG", lifetime=hr.point("t"), progress=hr.advance(delay=2), header=False)
        old, new = (read.window(hr.tumbling(size)).aggregate(n=hr.count()) for size in (5, 7))
        most = st.integers(1, 4)

        def step(stream: Stream, name: str, state: str, **options: Any) -> dict[str, dict[str, int]]:
            sink = FileSink("changes", (), f"{place}/{name}", "parquet")
            query = hr.start_all([(stream, sink)], host="local", checkpoint=f"{place}/{state}", **options)
            query.process_all_available()
            query.stop()
            assert query.driver.last is not None
            return dict(query.driver.last.record["counts"])

        Path(place, "in").mkdir()
        modified = data.draw(st.permutations(range(len(times))))
        cut = data.draw(st.integers(1, len(times)))
        for part in (range(cut), range(cut, len(times))):
            for number in part:
                file = Path(place, "in", f"{number}.csv")
                file.write_text("".join(f"{time}\n" for time in times[number]))
                os.utime(file, (modified[number], modified[number]))
            files = data.draw(most)
            step(old, "old", "state", files_per_batch=files)
            counts = step(new, "fresh", "fresh", files_per_batch=files)
        found = step(new, "new", "state", files_per_batch=data.draw(most), upgrade="backfill")
        assert found == counts
        schema = new.node.schema
        upgraded, fresh = (history(rows_of_files(f"{place}/{name}", schema)) for name in ("new", "fresh"))
        assert_same_history(upgraded, fresh)


@settings(max_examples=EXAMPLES)
@given(data=st.data(), rows=pieces())
def test_keep_at_any_batch(data: st.DataObject, rows: list[pa.Table]):
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(place, rows)
        common = data.draw(aggregates(folder.stream()))
        above = data.draw(spans(common).filter(_is_stateless))
        folder.arrive(data.draw(st.integers(1, len(rows))))
        folder.step((common, "out"), buckets=data.draw(buckets()))
        before = folder.fresh(above, "before")
        with dying(data.draw(st.none() | st.integers(0, 12))):
            folder.step((common, "out"), (above, "more"), upgrade="keep")
        folder.step((common, "out"), (above, "more"), upgrade="keep")
        folder.arrive(len(rows))
        folder.step((common, "out"), (above, "more"))
        assert_same_history(history(folder.changes("out")), history(folder.fresh(common, "fresh")))
        whole = Changes.concat([before, folder.changes("more")])
        assert_same_history(history(whole), history(folder.fresh(above, "fresh above")))


def _is_stateless(stream: Stream) -> bool:
    """Whether the operator on top has no state of its own."""
    return stream.node.linear
