"""Calls to an adapter, recorded for the report; results in a form that can be compared."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headrace.errors import without_secrets
from headrace.io.adapter import Offsets, SinkAdapter, SourceAdapter
from headrace.io.decoded import REFUSED, DecodedBlock
from headrace.schema import Schema
from headrace.testing.adapter_check.report import Broken, Example
from headrace.testing.adapter_check.samples import Row, plain_rows

__all__ = ["Range", "RecordedSource", "check_copy", "check_text", "copied", "read_range"]

_SECRET = ("password", "passwd", "secret", "token", "credential")


@dataclass
class Range:
    """What a range has: its rows, their offsets, the refused rows, and how many offsets were lost."""

    rows: list[Row] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    refused: list[Row] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    lost: int = 0
    #: What `read` returned: where the next range starts.
    end: int | None = None

    @property
    def text(self) -> str:
        """For the report."""
        more = f", {len(self.refused)} refused" if self.refused else ""
        lost = f", {self.lost} lost" if self.lost else ""
        at = f" at {', '.join(map(str, self.offsets[:6]))}{'…' if len(self.offsets) > 6 else ''}" if self.rows else ""
        return f"{len(self.rows)} rows{at}{more}{lost}{'' if self.end is None else f', returns {self.end}'}"


def read_range(adapter: SourceAdapter, partition: str, start: int, end: int, columns: Sequence[str]) -> Range:
    """All of a range; raises if a block does not have the form that it must have."""
    found = Range()
    reader = adapter.read(partition, start, end, list(columns))
    while True:
        try:
            block = next(reader)
        except StopIteration as ended:
            found.end = ended.value
            return found
        if type(block) is not DecodedBlock:
            raise Broken(f"read({partition!r}, {start}, {end}, …) yields a {type(block).__name__}, not a DecodedBlock")
        problem = _problem(block, adapter.schema, columns, start, end, found.offsets[-1:])
        if problem:
            raise Broken(f"read({partition!r}, {start}, {end}, {list(columns)}) has a block {problem}")
        found.rows += plain_rows(block.table, columns)
        found.offsets += block.rows.tolist()
        found.refused += plain_rows(block.refused, ["row", "reason", "raw"])
        found.arrived += [] if block.arrived is None else block.arrived.tolist()
        found.lost += block.lost


def _problem(
    block: DecodedBlock, schema: Schema, columns: Sequence[str], start: int, end: int, last: Sequence[int]
) -> str:
    """What is wrong with a block; empty if nothing is."""
    if block.table.column_names != list(columns):
        return f"with the columns {block.table.column_names}"
    wrong = [name for name in columns if block.table.schema.field(name).type != schema[name].type.arrow]
    if wrong:
        kinds = [f"{name} is {block.table.schema.field(name).type}" for name in wrong]
        return f"whose columns do not have the types of the schema: {', '.join(kinds)}; `decoded` converts them"
    if block.refused.schema.names != REFUSED.names:
        return f"whose refused rows have the columns {block.refused.schema.names}"
    lengths = {"rows": block.rows, "lines": block.lines, "arrived": block.arrived}
    for name, values in lengths.items():
        if values is not None and len(values) != block.table.num_rows:
            return f"of {block.table.num_rows} rows with {len(values)} {name}"
    offsets = np.concatenate([np.array(last, np.int64), block.rows])
    if len(block.rows) and not (start <= int(block.rows.min()) and int(block.rows.max()) < end):
        return f"with offsets outside the range: {block.rows.tolist()[:6]}"
    if (np.diff(offsets) <= 0).any():
        return f"whose offsets do not grow: {offsets.tolist()[:6]}"
    return ""


class RecordedSource:
    """A source adapter whose calls are recorded."""

    def __init__(self, adapter: SourceAdapter, example: Example, name: str = "") -> None:
        self.adapter, self.example, self.name = adapter, example, name

    def _record(self, call: str) -> None:
        self.example.add(f"{self.name}{call}")

    def offsets(self, positions: Mapping[str, int]) -> dict[str, Offsets]:
        """How far the partitions reach."""
        self._record(f"offsets({dict(positions)})")
        found = dict(self.adapter.offsets(dict(positions)))
        shown = ", ".join(f"{name!r}: {reach.first} to {reach.end}" for name, reach in sorted(found.items()))
        self.example.calls[-1] += f" = {{{shown}}}"
        return found

    def limit(self, partition: str, start: int, end: int, rows: int) -> int:
        """The end of a range."""
        self._record(f"limit({partition!r}, {start}, {end}, {rows})")
        found = self.adapter.limit(partition, start, end, rows)
        self.example.calls[-1] += f" = {found}"
        return found

    def begin(self, partition: str, available: Offsets) -> int:
        """Where a new partition is read from."""
        self._record(f"begin({partition!r}, {available})")
        found = self.adapter.begin(partition, available)
        self.example.calls[-1] += f" = {found}"
        return found

    def read(self, partition: str, start: int, end: int, columns: Sequence[str]) -> Range:
        """All of a range."""
        self._record(f"read({partition!r}, {start}, {end}, {list(columns)})")
        found = read_range(self.adapter, partition, start, end, columns)
        self.example.calls[-1] += f" = {found.text}"
        return found

    def read_some(self, partition: str, start: int, end: int, columns: Sequence[str]) -> None:
        """The first block of a range; then the reader is given up."""
        self._record(f"read({partition!r}, {start}, {end}, {list(columns)}), given up after its first block")
        reader = self.adapter.read(partition, start, end, list(columns))
        next(reader, None)
        reader.close()

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Everything before these offsets is committed."""
        self._record(f"acknowledge({dict(positions)})")
        self.adapter.acknowledge(dict(positions))

    def close(self) -> None:
        """The query has ended."""
        self._record("close()")
        self.adapter.close()


# --- rules of both kinds of adapters ---------------------------------------------------------------------------------


def copied(adapter: Any) -> Any:
    """A copy, as another process gets it."""
    try:
        return pickle.loads(pickle.dumps(adapter))  # noqa: S301 - what was just pickled
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Broken(f"it cannot be pickled, so it cannot be sent to a worker: {error}") from error


def check_copy(adapter: SourceAdapter | SinkAdapter) -> None:
    """A copy is equal; the value cannot be changed."""
    other = copied(adapter)
    if not dataclasses.is_dataclass(adapter):
        raise Broken(f"{type(adapter).__name__} is not a dataclass: write @dataclass(frozen=True) above it")
    if not type(adapter).__dataclass_params__.frozen:  # type: ignore[attr-defined]  # dataclasses have it
        raise Broken("its fields can be changed: write @dataclass(frozen=True) above the class")
    if type(other) is not type(adapter) or other != adapter:
        raise Broken(f"a pickled copy is not equal to it: {_shown(other)}")
    if hash(other) != hash(adapter):
        raise Broken("a pickled copy has another hash")


def check_text(adapter: SourceAdapter | SinkAdapter, secrets: Sequence[str]) -> None:
    """The text is the class's own, the same in all copies, and has no secrets."""
    if type(adapter).__str__ in (object.__str__, SourceAdapter.__str__):
        raise Broken("str() shows all fields, addresses and passwords among them: write __str__, which names the place")
    text = str(adapter)
    if str(copied(adapter)) != text or str(copy.copy(adapter)) != text:
        raise Broken(f"str() of a copy is another: {str(copied(adapter))!r} instead of {text!r}")
    fields = {f.name: getattr(adapter, f.name) for f in dataclasses.fields(adapter)}  # type: ignore[arg-type]
    hidden = [value for name, value in fields.items() if any(word in name.lower() for word in _SECRET)]
    for secret in [*secrets, *(value for value in hidden if isinstance(value, str) and value)]:
        if secret in text:
            raise Broken(f"str() shows a secret: {text.replace(secret, '***')!r}")
    if without_secrets(text) != text:
        raise Broken(f"str() shows a secret: {without_secrets(text)!r}")


def _shown(adapter: object) -> str:
    return without_secrets(str(adapter))
