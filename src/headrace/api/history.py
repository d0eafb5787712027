"""A query over history: the same plan as batch SQL, on Spark or in process (rule 10.1).

    backfill = vwap.history(engine="spark")
    backfill.dataframe().write.parquet("vwap")

A stream of files gives the history that the live query gives when it reads all the files in order. Rows that the live
query diverts as late are diverted here too, unless `late="include"`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.border import LIFETIME, TimeColumns, checked_time_columns, shown
from headrace.display.words import columns_text, plan_text
from headrace.errors import HistoryError, SinkError, nearest
from headrace.history.dialect import dialect_of
from headrace.history.duckdb import DuckDBHistory
from headrace.history.inputs import LATE, Late
from headrace.history.script import HistoryScript, HistoryStatement
from headrace.history.translate import translate
from headrace.host.live_tables import as_of_now
from headrace.io.json_fields import check_fields
from headrace.io.origins import check_frames
from headrace.meter import Work, working
from headrace.plan.nodes import Node, sources_of

if TYPE_CHECKING:
    from headrace.host.spark.history import SparkHistory

__all__ = ["ENGINES", "Engine", "History"]

Engine = Literal["spark", "duckdb"]
ENGINES: tuple[str, ...] = get_args(Engine)


@dataclass(frozen=True)
class History:
    """A query as batch SQL; nothing runs until `cht`, `dataframe` or `write`."""

    node: Node
    engine: Engine = "spark"
    late: Late = "decide"
    master: str | None = None

    def __post_init__(self) -> None:
        _check("engine", self.engine, ENGINES)
        _check("late", self.late, LATE)
        if self.master is not None and self.engine != "spark":
            raise HistoryError(
                "only Spark has a master", given=f"master={self.master!r}, engine={self.engine!r}",
                allowed="master with engine='spark'", instead=f"history(engine='spark', master={self.master!r})",
            )  # fmt: skip
        object.__setattr__(self, "node", as_of_now(self.node))
        check_frames(self.node, named=False)
        _ = self._script  # a plan that cannot be translated raises here, and not after Spark has started

    def __repr__(self) -> str:
        return f"History on {self.engine} of {columns_text(self.node.schema)}\n  {plan_text(self.node)}"

    @cached_property
    def _script(self) -> HistoryScript:
        return translate(self.node, dialect_of(self.engine), late=self.late)

    @property
    def statements(self) -> list[HistoryStatement]:
        """The steps: each a relation, the query that gives its rows, and the operator it stands for."""
        return list(self._script)

    def sql(self, dialect: Engine | None = None) -> str:
        """The statements as a script to read, for this engine or another."""
        if dialect is None or dialect == self.engine:
            return self._script.text()
        _check("dialect", dialect, ENGINES)
        return translate(self.node, dialect_of(dialect), late=self.late).text()

    def cht(self, *, time_columns: TimeColumns = LIFETIME) -> pa.Table:
        """Run it and give the history: `le`, `re` and the payload; `time_columns` name its columns of times."""
        names = checked_time_columns(time_columns)
        return shown(self._ticks(), dates=self.node.dates, time_columns=names)

    def _ticks(self) -> pa.Table:
        with self._working():
            if self.engine == "spark":
                return self._spark().cht(self.node, late=self.late)
            self._check_fields()
            duckdb = DuckDBHistory()
            try:
                return duckdb.cht(self.node, late=self.late)
            finally:
                duckdb.close()

    def dataframe(self, *, time_columns: TimeColumns = LIFETIME) -> Any:
        """The history as a Spark data frame, which Spark computes when its rows are used.

        Where two names differ only in case (`A` and `a`), the second column gets an underscore: `a_`.
        """
        if self.engine != "spark":
            raise HistoryError(
                "only Spark gives a data frame", given=f"engine={self.engine!r}", allowed="engine='spark'",
                instead="cht(), which gives an Arrow table",
            )  # fmt: skip
        return self._spark().dataframe(self.node, late=self.late, time_columns=checked_time_columns(time_columns))

    def write(self, directory: str | Path, *, time_columns: TimeColumns = LIFETIME) -> None:
        """Write the history as Parquet files into a new directory; on Spark the workers write."""
        with self._working():
            self._write(str(directory), checked_time_columns(time_columns))

    def _write(self, place: str, names: TimeColumns) -> None:
        if self.engine == "spark" and "://" in place:
            self._spark().write(self.node, place, "errorifexists", late=self.late, time_columns=names)
            return
        check_new(Path(place))
        if self.engine == "spark":
            there = Path(place).absolute().as_uri()
            self._spark().write(self.node, there, "append", late=self.late, time_columns=names)
        else:
            write_parquet(self.cht(time_columns=names), Path(place))

    def _check_fields(self) -> None:
        for source in sources_of(self.node):
            check_fields(source)

    def _working(self) -> AbstractContextManager[Work]:
        return working(f"history on {self.engine}")

    def _spark(self) -> SparkHistory:
        self._check_fields()
        # Spark is loaded only when it is needed.
        from headrace.host.spark.history import SparkHistory
        from headrace.host.spark.session import get_session  # for the same reason

        return SparkHistory(get_session(self.master))


def check_new(directory: Path) -> None:
    """Raise unless this directory is new or empty: a history never mixes with other files."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise SinkError("a history is written into a new or empty directory", given=str(directory))


def write_parquet(history: pa.Table, directory: Path) -> None:
    """Write a history as one file into a new directory."""
    check_new(directory)
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(history, directory / "part-00000.parquet", write_page_checksum=True)


def _check(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value in allowed:
        return
    close = nearest(str(value), allowed)
    raise HistoryError(
        f"unknown {option} for a history",
        given=value,
        allowed=", ".join(allowed),
        instead=f"{option}={close!r}" if close else "",
    )
