"""A source of the kit's own: a directory with a folder for each partition, whose files have rows.

A file is named after the offset of its first row; offsets are the numbers of the rows, from 0. So it is a small log, as
Kafka has them, which tests can append to, and let forget its first rows.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from headrace.errors import SourceError, Unavailable
from headrace.io.adapter import Offsets, SourceAdapter
from headrace.io.decoded import DecodedBlock, decoded
from headrace.schema import Schema

__all__ = ["LogSource"]


@dataclass(frozen=True)
class LogSource(SourceAdapter):
    """The rows of a log of files."""

    path: str
    columns: str
    on_gap: Literal["raise", "continue"] = "raise"

    @property
    def schema(self) -> Schema:
        return Schema.of(self.columns)

    def __str__(self) -> str:
        return f"log {self.columns}"

    # --- what the place does -----------------------------------------------------------------------------------------

    def add(self, partition: str) -> None:
        """Add a partition."""
        (Path(self.path) / partition).mkdir(parents=True, exist_ok=True)

    def append(self, partition: str, rows: pa.Table) -> None:
        """Append rows to a partition."""
        end = self._reach(partition).end
        place = Path(self.path) / partition / f"{end:012d}"
        with pa.OSFile(f"{place}.new", "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        Path(f"{place}.new").rename(f"{place}-{end + rows.num_rows:012d}.arrow")

    def expire(self, partition: str, offset: int) -> None:
        """Forget the files whose rows are all before an offset."""
        for start, end, file in self._files(partition):
            if end <= offset and end < self._reach(partition).end:
                file.unlink()
            assert start < end

    # --- what the adapter does ---------------------------------------------------------------------------------------

    def offsets(self, positions: Mapping[str, int]) -> Mapping[str, Offsets]:  # noqa: ARG002 - it looks at all
        if not Path(self.path).is_dir():
            raise Unavailable("the directory of the log is not there", given=self.path)
        return {folder.name: self._reach(folder.name) for folder in sorted(Path(self.path).iterdir())}

    def read(
        self, partition: str, start: int, end: int, columns: Sequence[str]
    ) -> Generator[DecodedBlock, None, int | None]:
        if not Path(self.path).is_dir():
            raise Unavailable("the directory of the log is not there", given=self.path)
        lost = max(0, self._reach(partition).first - start)
        if lost and self.on_gap == "raise":
            raise SourceError(f"{lost} offsets of {partition} are no longer stored", given=f"from {start}")
        for first, _, file in self._files(partition):
            with pa.memory_map(str(file)) as source:
                rows = pa.ipc.open_file(source).read_all().select(list(columns))
            low, high = max(start - first, 0), min(end - first, rows.num_rows)
            if low < high:
                block = decoded(rows.slice(low, high - low), np.arange(first + low, first + high), self.schema)
                yield block if not lost else DecodedBlock(block.table, block.refused, block.rows, lost=lost)
                lost = 0
        if lost:
            empty = self.schema.arrow.empty_table().select(list(columns))
            yield DecodedBlock(empty, decoded(empty, np.arange(0), self.schema).refused, np.arange(0), lost=lost)
        return None

    def _files(self, partition: str) -> list[tuple[int, int, Path]]:
        files = sorted((Path(self.path) / partition).glob("*.arrow"))
        return [(*map(int, file.stem.split("-")), file) for file in files]  # type: ignore[misc]  # two numbers

    def _reach(self, partition: str) -> Offsets:
        files = self._files(partition)
        return Offsets(files[0][0], files[-1][1]) if files else Offsets(0, 0)
