"""JSON in texts: values at the end of a path. What is no JSON has no values: NULL, and no path exists in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Int64s
from headrace.expr.arrow import json_scan as scan
from headrace.expr.arrow.columns import Datum, Kernel, from_numpy
from headrace.expr.json_path import json_steps

__all__ = ["JSON"]

_KINDS = {
    "value": tuple(range(scan.OBJECT, scan.NULL + 1)),
    "object": (scan.OBJECT,),
    "array": (scan.ARRAY,),
    "scalar": (scan.TEXT, scan.NUMBER, scan.TRUTH, scan.NULL),
}


class _JsonValues:
    """The values at the end of a path in each text of a column."""

    def __init__(self, text: Datum, path: str = "$", *, counting: bool = False) -> None:
        self.text = text.cast(pa.string())
        rows = len(self.text)
        self.begins, self.ends, self.kinds, self.counts = (np.zeros(rows, np.int64) for _ in range(4))
        offsets, self.data = _buffers(self.text)
        steps = json_steps(path)
        keys = pa.array([step if isinstance(step, str) else "" for step in steps], pa.string())
        places = np.array([scan.KEY if isinstance(step, str) else step for step in steps], np.int64)
        room = np.empty(int(np.diff(offsets).max(initial=0)), np.uint8)
        scan.find(
            offsets, self.data, places, *_buffers(keys), int(counting), self.begins, self.ends, self.kinds,
            self.counts, room,
        )  # fmt: skip

    def of(self, *kinds: int) -> NDArray[np.bool_]:
        """Where the text has a value of one of these kinds."""
        there = np.isin(self.kinds, kinds)
        return there & np.asarray(self.text.is_valid()) if self.text.null_count else there

    def texts(self, chosen: NDArray[np.bool_], *, plain: bool) -> pa.Array:
        """The chosen values as texts; if `plain`, texts without quotes."""
        places = np.zeros(len(chosen), np.int64)
        out = np.empty(int((self.ends - self.begins)[chosen].sum()), np.uint8)
        scan.copied(self.data, self.begins, self.ends, chosen.astype(np.int64), int(plain), out, places)
        whole = chosen & (places >= 0)
        offsets = np.concatenate(([0], np.where(places < 0, -1 - places, places))).astype(np.int32)
        values = pa.StringArray.from_buffers(len(chosen), pa.py_buffer(offsets), pa.py_buffer(out))
        return values if whole.all() else pc.if_else(pa.array(whole), values, pa.scalar(None, pa.string()))


def _buffers(texts: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The offsets and bytes of texts."""
    _, places, data = texts.buffers()
    if len(texts) == 0:
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    offsets = np.frombuffer(places, np.int32, len(texts) + 1, texts.offset * 4)
    return offsets, np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)


def _truths(text: Datum, truths: NDArray[Any]) -> pa.Array:
    return from_numpy(truths, np.asarray(text.is_valid()) if text.null_count else None, pa.bool_())


def json_get(text: Datum, path: Datum) -> Datum:
    found = _JsonValues(text, path.as_py())
    return found.texts(found.of(*_KINDS["value"]), plain=False)


def json_text(text: Datum, path: Datum) -> Datum:
    found = _JsonValues(text, path.as_py())
    return found.texts(found.of(scan.OBJECT, scan.ARRAY, scan.TEXT, scan.NUMBER, scan.TRUTH), plain=True)


def json_value(text: Datum, path: Datum) -> Datum:
    found = _JsonValues(text, path.as_py())
    return found.texts(found.of(scan.TEXT, scan.NUMBER, scan.TRUTH), plain=True)


def json_query(text: Datum, path: Datum) -> Datum:
    found = _JsonValues(text, path.as_py())
    return found.texts(found.of(scan.OBJECT, scan.ARRAY), plain=False)


def json_exists(text: Datum, path: Datum) -> Datum:
    return _truths(text, _JsonValues(text, path.as_py()).of(*_KINDS["value"]))


def json_array_length(text: Datum) -> Datum:
    found = _JsonValues(text, counting=True)
    counts: Int64s = found.counts
    return from_numpy(counts.astype(np.int32), found.of(scan.ARRAY), pa.int32())


def is_json(text: Datum, kind: Datum) -> Datum:
    return _truths(text, _JsonValues(text).of(*_KINDS[kind.as_py()]))


JSON: dict[str, Kernel] = {
    "json_get": json_get,
    "json_text": json_text,
    "json_value": json_value,
    "json_query": json_query,
    "json_exists": json_exists,
    "json_array_length": json_array_length,
    "is_json": is_json,
}
