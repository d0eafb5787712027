"""`make bench-esl`: the four experiments of Stream Mill's paper, and how fast aggregates written in SQL are.

- Figures 4 and 5: an average and approximate frequent items over ROWS windows of growing size. Kept up by EXPIRE, as
  SQL that is compiled and by hand in Python; with a window of the aggregate's own; without EXPIRE, computed anew at
  each tuple in native code and in Python, and, of whole numbers, derived.
- Figures 6 and 7: a sum over 40 000 tuples that slides, in panes and without: what is remembered, and how fast it is.
- Throughput: the average over ROWS 999 PRECEDING of 1 000 groups, on the local host and on Spark.

Whatever is compared runs in this process in turns; rates are tuples in a second of processor time, so that other
processes on the machine do not show. `--plots` draws the pictures of `docs/pictures`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from benchmarks.measure import Row, Section, alternate, headrace_batches, local_batches, rates, say, spark_batches
from headrace import stdlib
from headrace.changes import Changes
from headrace.host.local.run import run_local
from headrace.host.spark.session import get_session
from headrace.operators.kernel import Kernel
from headrace.operators.ordered.over import OverKernel
from headrace.operators.ordered.stepping import Stepping
from headrace.operators.registry import kernel_of
from headrace.plan.nodes import Fold, Output, Over, walk
from headrace.progress import Progress
from headrace.schema import STAMPS

__all__ = ["measure"]

SIZES = (10, 100, 1_000, 10_000, 100_000)
SLIDES = (1, 10, 100, 1_000, 10_000, 40_000)
WINDOW = 40_000

AVERAGE = """
CREATE AGGREGATE running(next DOUBLE): DOUBLE {
    TABLE state(total DOUBLE, n LONG);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); }
    ITERATE: { UPDATE state SET total = total + next, n = n + 1; }
    TERMINATE: { INSERT INTO RETURN SELECT total / n FROM state; }
};
"""
BY_EXPIRE = """
CREATE WINDOW AGGREGATE running(next DOUBLE): DOUBLE {
    TABLE inwindow(wnext DOUBLE);
    TABLE state(total DOUBLE, n LONG);
    INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
    ITERATE: { UPDATE state SET total = total + next, n = n + 1; INSERT INTO RETURN SELECT total / n FROM state; }
    EXPIRE: { UPDATE state SET total = total - oldest(), n = n - 1; }
};
"""
OWN_WINDOW = """
CREATE AGGREGATE own_window(next DOUBLE): DOUBLE {{
    TABLE kept(place LONG, v DOUBLE, KEY (place));
    TABLE state(total DOUBLE, n LONG, place LONG);
    INITIALIZE: {{
        INSERT INTO state VALUES (next, 1, 1); INSERT INTO kept VALUES (1, next); INSERT INTO RETURN VALUES (next);
    }}
    ITERATE: {{
        UPDATE state SET place = place + 1, n = n + 1, total = total + next;
        UPDATE state SET n = n - 1, total = total - (SELECT k.v FROM kept AS k WHERE k.place = state.place - {size})
            WHERE n > {size};
        DELETE FROM kept WHERE place = (SELECT s.place FROM state AS s) - {size};
        INSERT INTO kept SELECT place, next FROM state;
        INSERT INTO RETURN SELECT total / n FROM state;
    }}
}};
"""
SUM = """
CREATE AGGREGATE total(next DOUBLE): DOUBLE ALGEBRAIC {
    TABLE state(total DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (next); }
    ITERATE: { UPDATE state SET total = total + next; }
    TERMINATE: { INSERT INTO RETURN SELECT total FROM state; }
};
CREATE WINDOW AGGREGATE total(next DOUBLE): DOUBLE ALGEBRAIC {
    TABLE inwindow(wnext DOUBLE);
    TABLE state(total DOUBLE);
    INITIALIZE: { INSERT INTO state VALUES (next); INSERT INTO RETURN VALUES (next); }
    ITERATE: { UPDATE state SET total = total + next; INSERT INTO RETURN SELECT total FROM state; }
    EXPIRE: { UPDATE state SET total = total - oldest(); }
};
"""


class ByHand(hr.IncrementalAggregate):
    """The average, written for the engine in Python."""

    input = "value DOUBLE"
    output = "DOUBLE"

    def initial(self) -> list[float]:
        return [0.0, 0]

    def add(self, state: list[float], items: list[float]) -> None:
        for item in items:
            state[0] += item
            state[1] += 1

    def remove(self, state: list[float], items: list[float]) -> None:
        for item in items:
            state[0] -= item
            state[1] -= 1

    def compute(self, state: list[float]) -> float:
        return state[0] / state[1]


class FrequentByHand(hr.IncrementalOperator):
    """Frequent items by a counting Bloom filter, written for the engine in Python."""

    input = "item LONG, share DOUBLE"
    output = "item LONG, n LONG"

    def initial(self) -> dict[str, Any]:
        return {"counts": Counter(), "n": 0, "last": None, "share": 0.0}

    def add(self, state: dict[str, Any], items: list[Any]) -> None:
        for item in items:
            for size in (1021, 1019, 1013):
                state["counts"][size, item.item % size] += 1
            state["n"] += 1
            state["last"], state["share"] = item.item, item.share

    def remove(self, state: dict[str, Any], items: list[Any]) -> None:
        for item in items:
            for size in (1021, 1019, 1013):
                state["counts"][size, item.item % size] -= 1
            state["n"] -= 1

    def compute(self, state: dict[str, Any]) -> list[tuple[int, int]]:
        item = state["last"]
        n = min(state["counts"][size, item % size] for size in (1021, 1019, 1013))
        return [(item, n)] if n >= state["share"] * state["n"] else []


def _made(text: str) -> Any:
    """An aggregate of a text, of either kind."""
    return hr.sql_aggregate(text)


# --- driving kernels --------------------------------------------------------------------------------------------------


def _stream(columns: str) -> hr.Stream:
    """A stream of which only the plan is wanted."""
    return hr.events([{"kind": "cti", "le": 0}], columns)


def _batches(rows: int, groups: int = 1) -> Iterator[tuple[Changes, Progress]]:
    """Tuples in order, without end."""
    random, begin = np.random.default_rng(7), 0
    while True:
        le = np.arange(begin, begin + rows, dtype=np.int64)
        items = np.minimum(random.zipf(1.3, rows), 100_000)
        table = pa.table({"k": random.integers(0, groups, rows), "x": random.random(rows), "thing": items})
        for stamp in STAMPS.names:
            table = table.append_column(stamp, pa.array(le))
        begin += rows
        yield Changes.inserts(le, le + 1, table), Progress(begin, begin - 1)


def _rate(kernel: Kernel, rows: int, warm: int, rounds: int, groups: int = 1) -> float:
    """Tuples in a second of processor time, once so many have come."""
    batches, processed = _batches(rows, groups), 0
    times: list[float] = []
    while len(times) < rounds:
        changes, now = next(batches)
        begin = time.process_time()
        kernel.step([changes], [now])
        took = time.process_time() - begin
        processed += rows
        if processed > max(warm, rows):
            times.append(took)
    return rows / statistics.median(times)


def _over(stream: hr.Stream, call: Any, size: int) -> Kernel:
    """The kernel of an aggregate over so many tuples."""
    query = stream.group_by("k").over(rows=size - 1).aggregate(answer=call)
    return kernel_of(next(node for node in walk(query.node) if node.describe().startswith(("Fold", "Over"))))


def _in_python(kernel: Any) -> Any:
    """The same, without native code."""
    kernel.folding = Stepping(kernel.node)
    return kernel


def _anew_in_python(stream: hr.Stream, call: Any, size: int) -> Kernel:
    """An aggregate without EXPIRE, over so many tuples, without native code."""
    query = stream.group_by("k").over(rows=size - 1).aggregate(answer=call)
    return OverKernel(next(node for node in walk(query.node) if isinstance(node, Over)))


# --- figures 4 and 5 --------------------------------------------------------------------------------------------------


def _averages(section: Section) -> dict[str, dict[int, float]]:
    stream, base = _stream("k LONG, x DOUBLE, thing LONG"), _made(AVERAGE)
    whole = _made(AVERAGE.replace("next DOUBLE", "next LONG").replace("total DOUBLE", "total LONG"))
    delta = _made(AVERAGE + BY_EXPIRE)
    found: dict[str, dict[int, float]] = {}
    for size in SIZES:
        own = stream.group_by("k").over().aggregate(answer=_made(OWN_WINDOW.format(size=size)).of("x"))
        kernels: dict[str, Callable[[], Kernel]] = {
            "SQL with EXPIRE, native": lambda size=size: _over(stream, delta.of("x"), size),  # type: ignore[misc]
            "SQL with EXPIRE, in Python": lambda size=size: _in_python(_over(stream, delta.of("x"), size)),  # type: ignore[misc]
            "by hand in Python": lambda size=size: _over(stream, ByHand().of("x"), size),  # type: ignore[misc]
            "SQL with a window of its own": lambda own=own: kernel_of(_fold_of(own)),  # type: ignore[misc]
            "SQL without EXPIRE, derived": lambda size=size: _over(stream, whole.of("thing"), size),  # type: ignore[misc]
            "SQL computed anew": lambda size=size: _over(stream, base.of("x"), size),  # type: ignore[misc]
            "SQL computed anew, in Python": lambda size=size: _anew_in_python(stream, base.of("x"), size),  # type: ignore[misc]
        }
        for name, create in kernels.items():
            # Those whose cost grows with the window: the small ones show it.
            slow = "anew" in name or name.endswith("of its own")
            if slow and size > 1_000:
                continue
            rows = max(200, min(20_000, 500_000 // size)) if slow else 50_000
            found.setdefault(name, {})[size] = _rate(create(), rows, size, 3)
        _say("average", size, found)
    _compare(section, "average", found)
    return found


def _fold_of(stream: hr.Stream) -> Fold:
    return next(node for node in walk(stream.node) if isinstance(node, Fold))


def _frequent(section: Section) -> dict[str, dict[int, float]]:
    stream = _stream("k LONG, x DOUBLE, thing LONG")
    found: dict[str, dict[int, float]] = {}
    modules: dict[str, Any] = {
        "SQL with EXPIRE, native": stdlib.LIBRARY["frequent_items"],
        "SQL with EXPIRE, in Python": stdlib.LIBRARY["frequent_items"],
        "by hand in Python": FrequentByHand(),
        "SQL computed anew": _base_only("frequent_items"),
    }
    for size in SIZES:
        for name, module in modules.items():
            naive = name.endswith("anew")
            if naive and size > 1_000:
                continue
            query = stream.group_by("k").over(rows=size - 1).operate(module, item="thing", share=hr.lit(0.01))
            rows = max(100, min(10_000, 100_000 // size)) if naive else 20_000
            kernel = kernel_of(_fold_of(query))
            kernel = _in_python(kernel) if name.endswith("EXPIRE, in Python") else kernel
            found.setdefault(name, {})[size] = _rate(kernel, rows, size, 3)
        _say("frequent items", size, found)
    _compare(section, "frequent items", found)
    return found


def _base_only(name: str) -> Any:
    """An aggregate of the library without its window version."""
    text = stdlib.LIBRARY[name].text.split("CREATE WINDOW", maxsplit=1)[0].rstrip().rstrip(";")
    return _made(text)


def _say(what: str, size: int, found: dict[str, dict[int, float]]) -> None:
    rates = ", ".join(f"{name} {by[size]:,.0f}/s" for name, by in found.items() if size in by)
    say.print(f"  {what}, {size:,} tuples: {rates}", highlight=False)


def _compare(section: Section, what: str, found: dict[str, dict[int, float]]) -> None:
    """How flat each is, and what SQL costs beside Python."""
    for name, by_size in found.items():
        first, last = min(by_size), max(by_size)
        ratio = by_size[first] / by_size[last]
        goal = "grows" if "anew" in name else "flat: 1"
        section.rows.append(
            Row(f"{what}: {name}, {first:,} → {last:,} tuples", headrace=f"{by_size[last]:,.0f}/s",
                ratio=f"{ratio:.2f} times dearer", goal=goal)
        )  # fmt: skip
        section.figures[f"{what}/{name}/growth"] = ratio
    hand = found["by hand in Python"]
    for name, comparison in (("native", "SQL ÷ by hand in Python"), ("in Python", "SQL ÷ by hand, both in Python")):
        sql = found[f"SQL with EXPIRE, {name}"]
        dearer = statistics.median(hand[size] / sql[size] for size in sql)
        goal = "≤ 1.2" if name == "native" else ""
        section.rows.append(Row(f"{what}: cost of {comparison}", ratio=f"{dearer:.2f}", goal=goal))
        section.figures[f"{what}/cost, {name}"] = dearer


# --- figures 6 and 7 --------------------------------------------------------------------------------------------------


def _slides(section: Section) -> dict[str, dict[int, tuple[float, float]]]:
    """For panes and without: rate and rows of state, by slide."""
    found: dict[str, dict[int, tuple[float, float]]] = {"in panes": {}, "without panes": {}}
    modules = {"in panes": _made(SUM), "without panes": _made(SUM.replace(" ALGEBRAIC", ""))}
    rows, count = 20_000, 6
    random = np.random.default_rng(7)
    table = pa.table({
        "kind": ["insert"] * rows * count, "le": np.arange(rows * count), "re": np.arange(rows * count) + 1,
        "x": random.random(rows * count),
    })  # fmt: skip
    for slide in SLIDES:
        stream = hr.events(table, "x DOUBLE", progress=hr.ordered(), batches=[rows] * count)
        queries = {
            name: stream.over(rows=WINDOW - 1, slide=slide).aggregate(answer=module.of("x"))
            for name, module in modules.items()
        }
        took: dict[str, list[float]] = {name: [] for name in queries}
        for _ in range(4):  # in turns; the first loads the code
            for name, query in queries.items():
                begin = time.process_time()
                done = run_local([Output(query.node, "out")], finish=False)
                took[name].append(time.process_time() - begin)
                found[name][slide] = (rows * count / min(took[name][1:] or took[name]), _state(done.statistics[-1]))
        panes, whole = found["in panes"][slide], found["without panes"][slide]
        section.rows.append(
            Row(f"sum over {WINDOW:,}, slide {slide:,}: panes, without",
                headrace=f"{panes[1]:,.0f} ÷ {whole[1]:,.0f} rows",
                ratio=f"{panes[0] / whole[0]:.2f} times the rate", goal="linear in the slide")
        )  # fmt: skip
        section.figures |= {f"slide/{slide}/rows": panes[1], f"slide/{slide}/rate": panes[0] / whole[0]}
    return found


def _state(statistics_: Sequence[dict[str, Any]]) -> float:
    """Rows of state of all operators but the one that admits events."""
    return float(sum(int(one.get("rows", 0)) for one in _operators(statistics_)))


def _operators(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, dict):
        if "rows" in found and "held_by" in found:
            yield found
        for one in found.values():
            yield from _operators(one)
    elif isinstance(found, (list, tuple)):
        for one in found:
            yield from _operators(one)


# --- throughput -------------------------------------------------------------------------------------------------------


def _throughput(section: Section) -> None:
    stream = _stream("k LONG, x DOUBLE, thing LONG")
    kernel = _over(stream, _made(AVERAGE + BY_EXPIRE).of("x"), 1_000)
    rate = _rate(kernel, 1_000_000, 2_000_000, 5, groups=1_000)
    section.rows.append(
        Row("average over 1 000 tuples, 1 000 groups, native, the operator alone", headrace=f"{rate / 1e6:.2f} M/s",
            goal="≥ 3 M/s")
    )  # fmt: skip
    section.figures["throughput/operator"] = rate


def _whole(section: Section, root: Path, rounds: int) -> None:
    """From Parquet files to answers that are dropped: in process, and on Spark beside reading and dropping."""
    folder, rows, files = root / "ticks", 1_000_000, 8
    _write(folder, files, rows)

    def query() -> hr.Stream:
        read = hr.read_parquet(str(folder), lifetime=hr.point("ts"), progress=hr.ordered())
        return read.group_by("k").over(rows=999).aggregate(answer=_made(AVERAGE + BY_EXPIRE).of("x"))

    local = rates({"local": local_batches(query())[2:]}, rows)["local"]
    section.rows.append(
        Row("the same in process, from files to answers", headrace=f"{local / 1e6:.2f} M/s", goal="≥ 3 M/s")
    )
    spark = get_session()

    def ceiling() -> Any:
        reader = spark.readStream.schema("k long, x double, ts timestamp").option("maxFilesPerTrigger", 2)
        return reader.parquet(str(folder))

    times = alternate(
        rounds,
        ceiling=lambda: spark_batches(spark, ceiling, "append"),
        headrace=lambda: headrace_batches(query(), 2),
    )
    found = rates(times, 2 * rows)
    share = found["headrace"] / found["ceiling"]
    section.rows.append(
        Row("the same on Spark ÷ reading and dropping", f"{found['ceiling'] / 1e6:.2f} M/s",
            f"{found['headrace'] / 1e6:.2f} M/s", f"{share:.2f}", "≥ 0.5")
    )  # fmt: skip
    section.figures |= {"throughput/local": local, "throughput/spark_share": share}


def _write(folder: Path, files: int, rows: int) -> None:
    """Parquet files of ticks in order, a million a second."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    for number in range(files):
        time_ = np.arange(number * rows, (number + 1) * rows) + 1_700_000_000_000_000
        stamps = pa.array(time_, pa.timestamp("us", "UTC"))
        table = pa.table({"k": random.integers(0, 1_000, rows), "x": random.random(rows), "ts": stamps})
        path = folder / f"{number:03}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def measure(root: Path, options: argparse.Namespace) -> Section:
    """All of it, as a section of the report."""
    section = Section("Aggregates written in SQL: the experiments of Stream Mill")
    averages, frequent = _averages(section), _frequent(section)
    slides = _slides(section)
    _throughput(section)
    _whole(section, root, getattr(options, "rounds", 2))
    if getattr(options, "plots", None):
        from benchmarks.esl_plots import draw

        draw(Path(options.plots), averages, frequent, slides)
    return section
