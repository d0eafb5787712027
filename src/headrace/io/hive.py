"""Folders named after values, as Hive, Spark and DuckDB have them: `day=2024-05-01/symbol=A/part-00000.parquet`.

A sink divides its rows into such folders (`divided`). Its files keep all columns, so that nothing depends on how the
text of a folder is read. Files that others wrote often lack the columns of their folders: readers take the values from
the path (`folder_values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from glob import has_magic
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from headrace.columnar import factorize
from headrace.io.decoded import as_python
from headrace.schema import Field, Type

__all__ = ["divided", "folder_columns", "folder_values"]

#: The folder of rows without a value.
_NULL = "__HIVE_DEFAULT_PARTITION__"
#: What a value in a folder's name is taken for, if no schema declares it.
_NUMBER = re.compile(r"-?[1-9]\d{0,17}|0")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
#: Characters that mean something in paths or patterns are written as Hive does.
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


def divided(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder, in their order, after the path of the folder; without names, there is one folder."""
    if not names or not rows.num_rows:
        yield "", rows
        return
    codes = factorize(rows.select(list(names)))[0]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) != 0])
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        piece = rows.take(pa.array(order[start:end]))
        yield "/".join(f"{_written(name)}={_folder(piece[name][0])}" for name in names), piece


def _folder(value: Any) -> str:
    found = as_python(value)
    if found is None or found == "":
        return _NULL
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, datetime):
        found = found.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return _written(str(found))


def _written(text: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


def folder_values(path: str) -> dict[str, str | None]:
    """The values in the names of a file's folders, as texts; None is null."""
    found = (part.partition("=") for part in path.split("/")[:-1])
    return {unquote(name): None if text == _NULL else unquote(text) for name, sign, text in found if sign and name}


def folder_columns(path: str, below: str) -> tuple[Field, ...]:
    """The columns in the names of a file's folders, without those that `below`, the user's path, spells out."""
    given = {name for name, text in folder_values(f"{below.rstrip('/')}/").items() if not has_magic(text or "")}
    return tuple(Field(name, _type(text)) for name, text in folder_values(path).items() if name not in given)


def _type(text: str | None) -> Type:
    if text is not None and _NUMBER.fullmatch(text):
        return Type.LONG
    return Type.DATE if text is not None and _DATE.fullmatch(text) else Type.STRING
