"""Threads never show in an answer, and an error in one is raised where it would be without it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import PlanError
from headrace.host.local import run as local_run
from headrace.host.local.run import run_local
from headrace.host.result import Result
from headrace.host.threads import Room, ahead
from headrace.io.decoded import DecodedBlock
from headrace.io.files import ListedFile
from headrace.io.generator import Ticks, plain_ticks, write_files
from headrace.io.origins import Files
from headrace.meter import Work
from headrace.optimizer import RULES
from headrace.plan.nodes import Output, Source, walk
from headrace.progress import Progress
from headrace.stages import intake
from headrace.testing import check_output


@pytest.fixture
def trades(tmp_path: Path) -> hr.Stream:
    config = Ticks(900, seed=3, symbols=7, rate_per_second=10, disorder=0.3, late=0.02, max_delay="3 s")
    write_files(plain_ticks(config), str(tmp_path / "trades"), 9)
    return hr.read_parquet(str(tmp_path / "trades"), lifetime=hr.point("ts"), progress=hr.advance("3 s", late="divert"))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_PIECE", 7)
    monkeypatch.setattr(intake, "_TOGETHER", 5)


def _queries(trades: hr.Stream) -> dict[str, hr.Stream]:
    lasting = trades.set_duration("2 s")
    return {
        "filter": trades.where(col("quantity") > 100),
        "average": trades.group_by("symbol").window(hr.tumbling("5 s")).aggregate(p=hr.avg("price"), n=hr.count()),
        "join": lasting.join(lasting.where(col("quantity") > 500).select("symbol", large=col("quantity")), on="symbol"),
        "sessions": trades.group_by("symbol").window(hr.session("1 s")).aggregate(n=hr.count()),
        "diverted": trades.diverted(),
    }


def _batches(result: Result) -> list[tuple[list, Progress]]:
    """The rows of every batch, in any order, and its progress."""
    return [(sorted(map(str, changes.to_table().to_pylist())), progress) for changes, progress in result.batches]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("name", ["filter", "average", "join", "sessions", "diverted"])
@pytest.mark.parametrize(("buckets", "threads"), [(1, 2), (2, 2), (3, 4)])
def test_the_number_of_threads_does_not_show(trades: hr.Stream, name: str, buckets: int, threads: int):
    outputs = [Output(_queries(trades)[name].node, "out")]
    alone = run_local(outputs, buckets=buckets, threads=1)
    together = run_local(outputs, buckets=buckets, threads=threads)
    assert together.counts == alone.counts
    assert _batches(together.results["out"]) == _batches(alone.results["out"])


@pytest.mark.usefixtures("small_pieces")
def test_live_queries_read_files_in_threads(trades: hr.Stream):
    query = _queries(trades)["average"]
    with pytest.warns(hr.errors.RowsNotUsed):
        expected = query.run(threads=1).cht()
    answers = hr.memory()
    query.start(answers, host="local", files_per_batch=4).finish()
    assert answers.cht().equals(expected)


def test_rows_of_large_files_have_a_bucket_for_every_thread(trades: hr.Stream, monkeypatch: pytest.MonkeyPatch):
    def buckets(name: str, threads: int) -> int:
        return local_run._useful_buckets([Output(_queries(trades)[name].node, "out")], RULES, threads)

    assert buckets("join", 2) == 1
    monkeypatch.setattr(local_run, "_LARGE", 1000)
    assert buckets("join", 2) == 2
    assert buckets("join", 1) == 1
    assert buckets("average", 2) == 1  # stages get partial results


def test_users_functions_are_called_by_the_thread_that_runs_the_query(trades: hr.Stream):
    callers = set()

    @hr.udf(takes="DOUBLE", returns="DOUBLE")
    def price(p: float) -> float:
        callers.add(threading.current_thread())
        return p

    run_local([Output(trades.select(p=price(col("price"))).node, "out")], threads=4)
    assert callers == {threading.current_thread()}


def test_who_ends_early_stops_the_thread_before_it_is_awaited():
    stopped = threading.Event()

    def items() -> Iterator[bool]:
        yield True
        yield stopped.wait(30)

    taken = ahead(items(), lambda: 1, stopped.set)
    assert next(taken)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        taken.throw(KeyboardInterrupt)
    assert time.monotonic() - begun < 20


def test_a_bad_file_is_an_error_after_the_batches_before_it(tmp_path: Path):
    for number in range(4):
        pq.write_table(pa.table({"t": [number]}), tmp_path / f"{number}.parquet")
    (tmp_path / "2.parquet").write_bytes(b"PAR1 is not enough")
    stream = hr.read_parquet(str(tmp_path / "*.parquet"), schema="t LONG", lifetime=hr.point("t"))
    messages = []
    for threads in (1, 3):
        with pytest.raises(hr.errors.HeadraceError) as caught:
            stream.run(threads=threads)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_items_come_in_order_and_not_too_far_ahead():
    given, taken = itertools.count(), []

    def items() -> Iterator[int]:
        for number in given:
            taken.append(number)
            yield number

    source = ahead(items(), lambda: 2)
    assert [next(source) for _ in range(3)] == [0, 1, 2]
    source.close()
    assert len(taken) <= 6


def test_as_many_items_wait_as_there_is_room_for():
    room = Room(100, 3)
    assert room.items(0) == 1  # no size is known
    room.fill(20)
    assert room.items(0) == 3
    room.fill(45)
    assert (room.items(0), room.items(1)) == (0, 1)
    room.free(20)
    assert room.items(0) == 1
    assert room.peak == 65


@pytest.mark.parametrize(("waiting", "ahead_at_most"), [(1, 2), (1 << 30, 6)])
def test_rows_that_wait_for_slow_stages_are_bounded_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int, ahead_at_most: int
):
    for number in range(20):
        pq.write_table(pa.table({"t": [number] * 1000}), tmp_path / f"{number:02}.parquet")
    stream = hr.read_parquet(str(tmp_path), schema="t LONG", lifetime=hr.point("t"), order="name")
    read, run, begun, far = local_run.read_counted, local_run.Runner.run, [], []

    def reads(source: Source, file: ListedFile, work: Work) -> Iterator[DecodedBlock]:
        begun.append(file)
        return read(source, file, work)

    def slowly(runner: local_run.Runner, taken: local_run.TakenBatch) -> None:
        time.sleep(0.02)
        far.append(len(begun) - len(far))  # this batch, and those that are ahead
        run(runner, taken)

    monkeypatch.setattr(local_run, "_WAITING", waiting)
    monkeypatch.setattr(local_run, "read_counted", reads)
    monkeypatch.setattr(local_run.Runner, "run", slowly)
    assert stream.window(hr.tumbling(5)).aggregate(n=hr.count()).run(threads=2).cht()["n"].to_pylist() == [5000] * 4
    assert max(far) <= ahead_at_most + 1
    assert max(far) > 1  # the next batch is read meanwhile


def test_a_clock_is_called_by_the_thread_that_runs_the_query(trades: hr.Stream):
    callers = set()

    def clock() -> int:
        callers.add(threading.current_thread())
        return 0

    run_local([Output(_queries(trades)["average"].node, "out")], clock=clock, threads=4)
    assert callers == {threading.current_thread()}


def test_an_error_is_raised_where_its_item_would_be():
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError

    source = ahead(items(), lambda: 2)
    assert [next(source), next(source)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(source)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace-ahead")]


def test_outputs_without_a_stage_have_the_progress_of_their_batch(tmp_path: Path):
    """Loops let a batch run several times, while later batches are judged in another thread."""
    for t in range(6):
        (tmp_path / f"{t}.csv").write_text(f"t,u,a,b\n{2 * t},{2 * t + 50},{t},{t + 1}\n")
    schema = "t LONG, u LONG, a LONG, b LONG"
    plain = hr.read_csv(str(tmp_path), schema, lifetime=hr.interval("t", "u"), progress=hr.ordered()).select("a", "b")
    nexts = plain.select(c=col("a"), d=col("b"))
    loop = hr.recurse(plain, lambda found: found.join(nexts, on={"b": "c"}).select(a=col("a"), b=col("d")))
    outputs = [Output(plain.node, "plain"), Output(loop.node, "loop")]
    alone, together = (run_local(outputs, buckets=2, threads=threads) for threads in (1, 3))
    for name in ("plain", "loop"):
        check_output(together.results[name].events())
        assert _batches(together.results[name]) == _batches(alone.results[name])


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2"])
def test_threads_are_a_count(trades: hr.Stream, threads: object):
    with pytest.raises(PlanError, match="threads must be at least 1"):
        trades.run(threads=threads)  # type: ignore[arg-type]


def test_reading_ahead_ends_with_the_block_at_which_a_run_is_stopped(
    trades: hr.Stream, monkeypatch: pytest.MonkeyPatch
):
    (source,) = (node for node in walk(trades.node) if isinstance(node, Source))
    assert isinstance(source.origin, Files)
    file, stopped = source.origin.files()[0], threading.Event()
    read = local_run.read_counted

    def blocks(source: Source, file: ListedFile, work: Work) -> Iterator[DecodedBlock]:
        (block,) = read(source, file, work)
        yield block.slice(0, 10)
        stopped.set()
        yield from (block.slice(start, 10) for start in range(10, 100, 10))

    monkeypatch.setattr(local_run, "read_counted", blocks)
    assert sum(block.table.num_rows for block, _ in local_run._whole(source, file, work=Work(), stopped=stopped)) == 10


def test_a_run_that_fails_leaves_no_thread(trades: hr.Stream, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(local_run.Runner, "run", fail)
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        run_local([Output(_queries(trades)["join"].node, "out")], buckets=2, threads=3)
    assert set(threading.enumerate()) <= before
