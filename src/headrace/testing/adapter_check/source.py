"""The rules of sources, and their check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError, SourceError, Unavailable
from headrace.io.adapter import Offsets, SourceAdapter
from headrace.schema import Schema
from headrace.testing.adapter_check.calls import Range, RecordedSource, check_copy, check_text, copied, read_range
from headrace.testing.adapter_check.driven import check_source_query
from headrace.testing.adapter_check.processes import call_elsewhere
from headrace.testing.adapter_check.report import AdapterReport, Broken, Example, Skipped, run_rules
from headrace.testing.adapter_check.samples import Row, plain_rows, sample_rows

__all__ = ["check_source"]

Append = Callable[[str, pa.Table], pa.Table | None]
#: How many rows are appended at a time, to each partition but the last.
_APPENDS = (1, 2, 3)
_THREADS = 4


def check_source(
    adapter: SourceAdapter,
    append: Append,
    *,
    add: Callable[[], str] | None = None,
    expire: Callable[[str, int], None] | None = None,
    outage: Callable[[], AbstractContextManager[Any]] | None = None,
    sample: pa.Table | None = None,
    time: str | None = None,
    secrets: Sequence[str] = (),
    runs: int = 5,
    seed: int = 0,
) -> AdapterReport:
    """Check that an adapter keeps the contract of sources; raise with the calls that show a broken rule.

    The adapter reads a place that this test owns; it may have rows already. `append(partition, rows)` appends an Arrow
    table of rows to a partition, without the adapter. It may return the rows as the adapter should read them, if the
    place changes them.

    What is not given is not checked, and the report says so. `add()` adds a partition to the place and returns its
    name; `expire(partition, offset)` lets the place forget rows before an offset; `outage()` is a context in which the
    place does not answer. `sample` has rows to append, if those that are made up from the schema do not fit; `time` is
    the column with the time of a row, by default the first DATETIME or LONG; `secrets` are texts that `str(adapter)`
    must not show. At last a query runs over the adapter `runs` times, with a driver that dies.
    """
    if not isinstance(adapter, SourceAdapter):
        raise PlanError("this is not an adapter of a source", given=type(adapter).__name__)
    example = Example()
    check = _SourceCheck(adapter, append, example, sample, add, expire, outage, time, tuple(secrets), runs, seed)
    return run_rules(f"{type(adapter).__name__} ({adapter})", check, example, _RULES)


@dataclasses.dataclass(eq=False)
class _SourceCheck:
    """The adapter, the ways to its place, and what was appended so far."""

    adapter: SourceAdapter
    append: Append
    example: Example
    sample: pa.Table | None
    add: Callable[[], str] | None
    expire: Callable[[str, int], None] | None
    outage: Callable[[], AbstractContextManager[Any]] | None
    time: str | None
    secrets: tuple[str, ...]
    runs: int
    seed: int
    #: For every partition: the offsets up to which appends reached, from the first of ours on, and our rows.
    ends: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    rows: dict[str, list[Row]] = dataclasses.field(default_factory=dict)
    #: How many rows were appended before each of `ends`.
    counts: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()
    made: int = 0
    #: What the first reads of ranges gave.
    first: dict[tuple[str, int, int], Range] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = RecordedSource(self.adapter, self.example)

    @property
    def schema(self) -> Schema:
        return self.adapter.schema

    def appended(self, partition: str, count: int) -> None:
        """Append rows."""
        rows = sample_rows(self.schema, self.made, count, self.sample)
        self.made += count
        self.example.add(f"append({partition!r}, {count} rows)")
        stored = self.append(partition, rows)
        stored = rows if stored is None else stored
        self.columns = tuple(name for name in self.schema.names if name in stored.column_names)
        self.rows.setdefault(partition, []).extend(plain_rows(stored, self.columns))

    def look(self) -> dict[str, Offsets]:
        """How far the partitions reach; none that was there is missing, and none goes back."""
        found = self.source.offsets({name: ends[-1] for name, ends in self.ends.items()})
        for name, ends in self.ends.items():
            if name not in found:
                raise Broken(f"the partition {name!r} is missing")
            if found[name].end < ends[-1]:
                raise Broken(f"the end of {name!r} moved back from {ends[-1]} to {found[name].end}")
        for name, reach in found.items():
            if not 0 <= reach.first <= reach.end:
                raise Broken(f"{name!r} begins at {reach.first} and ends at {reach.end}")
        return found

    def grow(self, partition: str, count: int) -> None:
        """Append rows, and look how far the partition reaches then."""
        self.appended(partition, count)
        end = self.look()[partition].end
        if end <= self.ends[partition][-1]:
            raise Broken(f"{count} rows were appended to {partition!r}, and its end is still {end}")
        self.ends[partition].append(end)
        self.counts[partition].append(self.counts[partition][-1] + count)

    def filled(self) -> Iterator[str]:
        """The partitions with rows of ours."""
        return (name for name in self.ends if len(self.ends[name]) > 1)

    def ranges(self) -> Iterator[tuple[str, int, int, list[Row]]]:
        """Ranges between looks, the smallest first, with the rows that they must have."""
        for size in range(1, len(_APPENDS) + 1):
            for name in self.filled():
                ends, counts = self.ends[name], self.counts[name]
                for i in range(len(ends) - size):
                    yield name, ends[i], ends[i + size], self.rows[name][counts[i] : counts[i + size]]

    def whole(self, name: str) -> tuple[str, int, int]:
        """All rows of ours in a partition."""
        return name, self.ends[name][0], self.ends[name][-1]

    def read(self, part: tuple[str, int, int], source: RecordedSource | None = None) -> Range:
        """All columns of a range."""
        return (source or self.source).read(*part, self.schema.names)

    def compare(self, found: Range, expected: Range, what: str) -> None:
        """Raise unless two reads of a range are the same; a range that ends where its reader says may differ."""
        if expected.end is not None:
            return
        for name in ("rows", "offsets", "refused", "arrived"):
            given, wanted = getattr(found, name), getattr(expected, name)
            if given != wanted:
                raise Broken(f"{what} gives other {name}: {_short(given)} instead of {_short(wanted)}")


def _short(values: Sequence[Any]) -> str:
    return f"{list(values[:4])}{f' and {len(values) - 4} more' if len(values) > 4 else ''}"


# --- rules -----------------------------------------------------------------------------------------------------------


def _value(check: _SourceCheck) -> None:
    check_copy(check.adapter)
    if type(check.schema) is not Schema or not len(check.schema):
        raise Broken(f"schema is not a Schema with columns: {check.schema!r}")


def _text(check: _SourceCheck) -> None:
    check_text(check.adapter, check.secrets)


def _offsets(check: _SourceCheck) -> None:
    found = check.source.offsets({})
    if not found:
        raise Broken("there is no partition: the place needs one to which rows can be appended")
    for name, reach in check.look().items():
        check.ends[name], check.counts[name], check.rows[name] = [reach.end], [0], []
    names = sorted(found)
    for count in _APPENDS:
        for name in names[:-1] or names:
            check.example.begin()
            check.look()
            check.grow(name, count)
    check.example.begin()
    if check.source.offsets({}) != check.source.offsets({}):
        raise Broken("a second look differs, and nothing was appended between them")


def _rows(check: _SourceCheck) -> None:
    for name, start, end, expected in check.ranges():
        check.example.begin(f"append({name!r}, {len(expected)} rows)")
        found = check.source.read(name, start, end, check.schema.names)
        places = [check.schema.names.index(column) for column in check.columns]
        rows = [tuple(row[place] for place in places) for row in found.rows]
        check.first[name, start, end] = found
        if found.refused:
            raise Broken(f"rows are refused: {found.refused[0][1]}; sample= has rows that fit")
        if rows != expected:
            raise Broken(f"the range has {_short(rows)}, and {_short(expected)} were appended")
        if found.end is not None and found.end < end:
            raise Broken(f"the next range would start at {found.end}, before the end of this one")


def _empty(check: _SourceCheck) -> None:
    name = max(check.ends)
    if len(check.ends[name]) == 1:
        if check.look()[name].end != check.ends[name][0]:
            raise Broken(f"nothing was appended to {name!r}, and its end has moved")
        check.grow(name, 1)
        found = check.read(check.whole(name))
        if len(found.rows) != 1:
            raise Broken(f"its first row was appended, and {len(found.rows)} rows were read")


def _begin(check: _SourceCheck) -> None:
    for name, reach in check.look().items():
        start = check.source.begin(name, reach)
        if not reach.first <= start <= reach.end:
            raise Broken(f"{name!r} would be read from {start}, outside of what is stored")


def _limit(check: _SourceCheck) -> None:
    for name, start, end, _ in check.ranges():
        for rows in (1, 2, 1_000_000):
            check.example.begin()
            limit = check.source.limit(name, start, end, rows)
            if not start < limit <= end:
                raise Broken(f"a range must end after {start}, and at {end} at the latest")


def _again(check: _SourceCheck) -> None:
    for name, start, end, _ in check.ranges():
        first = check.first.get((name, start, end)) or check.read((name, start, end))
        check.example.begin(f"read({name!r}, {start}, {end}, {list(check.schema.names)}) = {first.text}")
        check.compare(check.read((name, start, end)), first, "the second call")


def _split(check: _SourceCheck) -> None:
    for name, start, end, _ in check.ranges():
        for rows in range(1, sum(_APPENDS)):
            check.example.begin()
            whole = check.read((name, start, end))
            at, parts = start, Range()
            while at < end:
                stop = check.source.limit(name, at, end, rows)
                part = check.read((name, at, stop))
                parts.rows += part.rows
                parts.offsets += part.offsets
                parts.refused += part.refused
                parts.arrived += part.arrived
                at = stop if part.end is None else part.end
            check.compare(parts, whole, "the range in parts")


def _columns(check: _SourceCheck) -> None:
    names = check.schema.names
    subsets = [(name,) for name in names] + list(pairwise(names)) + [names[1:]] * (len(names) > 3)
    for name, start, end, _ in check.ranges():
        whole = check.read((name, start, end))
        for subset in subsets:
            check.example.begin()
            part = check.source.read(name, start, end, subset)
            places = [names.index(column) for column in subset]
            rows = [tuple(row[place] for place in places) for row in whole.rows]
            check.compare(part, dataclasses.replace(whole, rows=rows), "reading some columns")


def _crash(check: _SourceCheck) -> None:
    """A copy that has made no call before reads what one that has made them all reads."""
    for name, start, end, _ in check.ranges():
        expected = check.read((name, start, end))
        for calls in range(4):
            check.example.begin()
            dead = RecordedSource(copied(check.adapter), check.example, "one process: ")
            steps: list[Callable[[], object]] = [
                lambda at=end, name=name, dead=dead: dead.offsets({name: at}),  # type: ignore[misc]
                lambda dead=dead, part=(name, start, end): dead.read_some(*part, check.schema.names),  # type: ignore[misc]
                lambda dead=dead, part=(name, start, end): check.read(part, dead),  # type: ignore[misc]
            ]
            for step in steps[:calls]:
                step()
            other = RecordedSource(copied(check.adapter), check.example, "another: ")
            check.compare(check.read((name, start, end), other), expected, "another process")


def _process(check: _SourceCheck) -> None:
    for name in check.filled():
        check.example.begin()
        expected = check.read(check.whole(name))
        check.example.add("the same in a new process")
        found = call_elsewhere(read_range, check.adapter, *check.whole(name), check.schema.names)
        check.compare(found, expected, "a new process")


def _growth(check: _SourceCheck) -> None:
    for name in list(check.filled()):
        check.example.begin()
        expected = check.read(check.whole(name))
        part = check.whole(name)
        reader = check.adapter.read(*part, list(check.schema.names))
        blocks = [next(reader)]
        check.example.add(f"read{part}, and after its first block:")
        check.grow(name, 1)
        blocks += list(reader)
        if sum(block.table.num_rows for block in blocks) != len(expected.rows):
            raise Broken("a range that is read slowly has other rows when rows are appended meanwhile")
        check.compare(check.read(part), expected, "after more rows were appended, the range")


def _threads(check: _SourceCheck) -> None:
    parts = [(name, start, end) for name, start, end, _ in check.ranges()]
    expected = [check.read(part) for part in parts]
    check.example.begin(f"read {len(parts)} ranges, each {_THREADS} times, by {_THREADS} threads")
    with ThreadPoolExecutor(_THREADS) as threads:
        calls = [
            (i, threads.submit(read_range, check.adapter, *part, check.schema.names))
            for _ in range(_THREADS)
            for i, part in enumerate(parts)
        ]
        for i, call in calls:
            check.compare(call.result(), expected[i], f"read{parts[i]} beside other threads")


def _new(check: _SourceCheck) -> None:
    if check.add is None:
        raise Skipped("add= was not given")
    before = {name: check.read(check.whole(name)) for name in check.filled()}
    check.example.begin()
    check.look()
    name = check.add()
    check.example.add(f"add() = {name!r}")
    found = check.look()
    if name not in found:
        raise Broken(f"the new partition {name!r} does not appear")
    check.ends[name], check.counts[name] = [found[name].first], [0]
    check.grow(name, 2)
    rows = check.read(check.whole(name)).rows
    if len(rows) != 2:
        raise Broken(f"two rows were appended to the new partition, and {len(rows)} were read")
    for old, expected in before.items():
        check.compare(check.read(check.whole(old)), expected, "beside a new partition,")


def _acknowledge(check: _SourceCheck) -> None:
    for name in check.filled():
        check.example.begin()
        low, middle, end = check.ends[name][0], check.ends[name][-2], check.ends[name][-1]
        expected = check.read((name, middle, end))
        other = RecordedSource(copied(check.adapter), check.example, "another process: ")
        for source, offset in ((check.source, middle), (check.source, middle), (other, middle), (other, low)):
            source.acknowledge({name: offset})
        reach = check.look()[name]
        if reach.first > middle:
            raise Broken(f"offsets from {middle} on were not acknowledged, and {name!r} now begins at {reach.first}")
        check.compare(check.read((name, middle, end)), expected, "after acknowledging what is before it, the range")


def _close(check: _SourceCheck) -> None:
    name = next(check.filled())
    part = name, check.ends[name][-2], check.ends[name][-1]
    expected = check.read(part)
    check.example.begin()
    check.source.close()
    check.source.close()
    check.look()
    check.compare(check.read(part), expected, "after close(), for the next query, the range")


def _unavailable(check: _SourceCheck) -> None:
    if check.outage is None:
        raise Skipped("outage= was not given")
    name = next(check.filled())
    part = name, check.ends[name][-2], check.ends[name][-1]
    expected = check.read(part)
    for call in (lambda: check.source.offsets({}), lambda: check.read(part)):
        check.example.begin()
        with check.outage():
            check.example.add("while the place does not answer:")
            try:
                call()
            except Unavailable:
                pass
            except Exception as error:
                raise Broken(f"it raised {type(error).__name__}: {error}; Unavailable lets it be repeated") from error
            else:
                raise Broken("the call succeeded, although the place does not answer")
        check.example.add("then it answers again:")
        check.look()
        check.compare(check.read(part), expected, "after the outage, the range")


def _query(check: _SourceCheck) -> None:
    check.example.begin()
    check_source_query(
        check.adapter, check.append, sorted(check.ends),
        sample=check.sample, time=check.time, runs=check.runs, seed=check.seed, example=check.example,
    )  # fmt: skip


def _gap(check: _SourceCheck) -> None:
    if check.expire is None:
        raise Skipped("expire= was not given")
    name = max(check.filled(), key=lambda name: len(check.ends[name]))
    start, kept, end = check.ends[name][0], check.ends[name][-2], check.ends[name][-1]
    check.example.begin(f"expire({name!r}, {kept})")
    check.expire(name, kept)
    reach = check.source.offsets({})[name]
    if not start < reach.first <= kept:
        raise Broken(f"rows before {kept} are no longer stored, and {name!r} begins at {reach.first}")
    for on_gap, adapter in _with_gaps(check.adapter).items():
        source = RecordedSource(adapter, check.example, f"on_gap={on_gap!r}: ")
        try:
            found = check.read((name, start, end), source)
        except SourceError:
            if on_gap == "continue":
                raise
            continue
        if on_gap == "raise":
            raise Broken("the first rows of the range are lost, and it raised no SourceError")
        if found.lost != reach.first - start:
            raise Broken(f"{reach.first - start} offsets are lost, and its blocks report {found.lost}")
        check.compare(found, check.read((name, reach.first, end), source), "the range after the gap")


def _with_gaps(adapter: SourceAdapter) -> dict[str, SourceAdapter]:
    """The adapter with each policy for gaps that it has."""
    fields = {field.name for field in dataclasses.fields(adapter)}  # type: ignore[arg-type]  # a rule before says so
    if "on_gap" not in fields:
        return {adapter.on_gap: adapter}
    return {way: dataclasses.replace(adapter, on_gap=way) for way in ("raise", "continue")}  # type: ignore[type-var]


_RULES = (
    ("value", "an adapter is a value: a pickled copy is equal to it", _value),
    ("text", "str() names the place, the same in every process, without secrets", _text),
    ("offsets", "offsets() has every partition, and its ends only grow", _offsets),
    ("rows", "read() returns the rows of a range in order, in the form of the contract", _rows),
    ("empty", "an empty partition has no rows, and those that it gets later are read", _empty),
    ("begin", "begin() is an offset that is stored", _begin),
    ("limit", "limit() is after the start of the range, and not after its end", _limit),
    ("again", "a range that is read again has the same rows and offsets", _again),
    ("split", "a range that is read in parts has the same rows and offsets", _split),
    ("columns", "a range has the same values, whichever columns are read", _columns),
    ("crash", "after a crash between any two calls, another process reads the same", _crash),
    ("process", "a new process reads the same", _process),
    ("growth", "a range stays as it is when rows are appended after it", _growth),
    ("threads", "several threads may read at once", _threads),
    ("new", "new partitions appear, and are read", _new),
    ("acknowledge", "acknowledging loses nothing that was not acknowledged, and may be repeated", _acknowledge),
    ("close", "after close() another query may use the adapter", _close),
    ("unavailable", "a place that does not answer raises Unavailable, and nothing is lost", _unavailable),
    ("query", "a query whose driver dies at any step gives the answer of one that lives", _query),
    ("gap", "rows that are no longer stored are an error, or counted", _gap),
)
