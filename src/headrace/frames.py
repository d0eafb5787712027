"""Data frames of pandas, Polars and others as Arrow tables, and back. These libraries are loaded when they are used."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal

import pyarrow as pa

from headrace.errors import PlanError, SchemaError, UnknownColumn

__all__ = ["FRAMES", "FrameKind", "frame_kind", "frame_of", "frame_table"]

FrameKind = Literal["arrow", "pandas", "polars", "spark"]
FRAMES: tuple[FrameKind, ...] = ("arrow", "pandas", "polars", "spark")


def frame_kind(value: Any) -> str:
    """What kind of frame a value is: `arrow`, `pandas`, `polars`, `lazy` (of Polars) or `spark`; empty if it is none.

    Everything else that hands out Arrow data is `arrow`, too.
    """
    module, name = type(value).__module__.partition(".")[0], type(value).__name__
    if module == "pyspark" and hasattr(value, "isStreaming"):
        return "spark"
    if module == "polars" and name in ("DataFrame", "LazyFrame"):
        return "polars" if name == "DataFrame" else "lazy"
    if hasattr(value, "columns") and hasattr(value, "to_dict") and hasattr(value, "index"):
        return "pandas"
    return "arrow" if hasattr(value, "__arrow_c_stream__") or isinstance(value, pa.RecordBatch) else ""


def frame_table(frame: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a frame that is in this process: these columns, by default all.

    The levels of an index of pandas that have names are columns like the others.
    """
    kind = frame_kind(frame)
    if kind == "pandas":
        return _from_pandas(frame, columns)
    if kind in ("polars", "arrow"):
        table = frame.to_arrow() if kind == "polars" else frame if isinstance(frame, pa.Table) else pa.table(frame)
        return table.select(_places(table.column_names, columns, "table.rename_columns(['a', 'b'])"))
    raise PlanError(
        "this is not a frame in memory",
        given=type(frame).__name__,
        allowed="an Arrow table, a data frame of pandas or Polars",
        instead={"lazy": "frame.collect()", "spark": "frame.toArrow()"}.get(kind, "pandas.DataFrame(...)"),
    )


def _from_pandas(frame: Any, columns: Sequence[str] | None) -> pa.Table:
    levels = [place for place, name in enumerate(frame.index.names) if name is not None]
    if levels:
        frame = frame.reset_index(level=levels, allow_duplicates=True)
    names = [str(name) for name in frame.columns]
    # A copy: Arrow would share the memory of the frame, which may be changed later.
    frame = frame.iloc[:, _places(names, columns, "frame.loc[:, ~frame.columns.duplicated()]")].copy()
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:  # such as values of several types
        raise SchemaError(
            f"Arrow cannot hold this frame: {'; '.join(map(str, error.args))}",
            given=", ".join(f"{name} {dtype}" for name, dtype in frame.dtypes.items()),
            allowed="columns with values of one type, which Arrow has",
            instead="a schema without the column, or frame.astype({'column': str})",
        ) from error


def _places(names: Sequence[str], columns: Sequence[str] | None, unique: str) -> list[int]:
    """Where a frame has these columns; `unique` is what to write so that every column has a name of its own."""
    chosen = list(names if columns is None else columns)
    for name in chosen:
        if name not in names:
            raise UnknownColumn.of(name, names, "the frame")
        if names.count(name) > 1:
            raise SchemaError(
                f"the frame has {names.count(name)} columns {name!r}",
                given=", ".join(names),
                allowed="columns with names of their own",
                instead=unique,
            )
    return [names.index(name) for name in chosen]


def frame_of(table: pa.Table, kind: FrameKind, spark: Any = None) -> Any:
    """A table as a frame of this kind; one of Spark in the session `spark`, by default the one that is there."""
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        return _polars().from_arrow(table)
    if kind == "spark":
        session = spark if spark is not None else import_module("pyspark.sql").SparkSession.builder.getOrCreate()
        return session.createDataFrame(table)
    return table


def _polars() -> Any:
    try:
        return import_module("polars")
    except ImportError as error:
        raise PlanError(
            "Polars is not installed",
            given="a data frame of Polars",
            allowed="frames of pandas, Arrow tables",
            instead="pip install polars",
        ) from error
