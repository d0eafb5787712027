"""CSV: rows of separated fields, read in one pass (`one_pass.py`), or as text that is converted column by column.

With a header, columns are found by name, in any order; without one they are the schema's, by position. An empty field
is null, `""` is empty text. Quoted fields may hold delimiters, quotes (doubled) and line ends. A row is refused when it
has the wrong number of fields, is not UTF-8, or holds a value that is not of its column's type. A quote that is never
closed spoils only its own line: reading continues at the next. Empty lines are not rows. Integers may be decimal or
`0x` hexadecimal; blanks around numbers and times are ignored.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from headrace.errors import SchemaError, nearest
from headrace.io.decoded import DecodedBlock, refuse_all, reports_drift, with_nulls
from headrace.io.drift import DriftJudge, DriftVerdict, no_drift
from headrace.io.one_pass import CsvPass
from headrace.io.records import (
    BLOCK_BYTES,
    BOM,
    MAX_LINE,
    Bounds,
    BrokenRecord,
    FastRead,
    Records,
    SplitRecords,
    blocks,
    count_lines,
    decode,
)
from headrace.schema import Field, Schema

__all__ = ["CsvDecoder", "first_records", "read_csv"]


_NONE = np.zeros(0, np.int64)


def read_csv(
    stream: Any,
    path: str,
    schema: Schema,
    fields: Sequence[Field],
    *,
    delimiter: str = ",",
    header: bool = True,
    rename: Mapping[str, str] | None = None,
    judged: Container[str] = (),
    size: int = BLOCK_BYTES,
    max_line: int = MAX_LINE,
    judge: DriftJudge = no_drift,
) -> Iterator[DecodedBlock]:
    """The decoded blocks of a CSV file; `rename` renames columns of the header, which `judge` judges.

    The values of the columns in `judged` are only checked, and may be null in the blocks.
    """
    decoder: CsvDecoder | None = None if header else CsvDecoder(schema.names, fields, delimiter, judged)
    verdict, absent = DriftVerdict(), list[Field]()
    row, line = 0, 1
    for block in blocks(stream, quoted=True, size=size, max_line=max_line):
        data = block
        if decoder is None:
            names, data = _header(block, delimiter)
            names = [(rename or {}).get(name, name) for name in names]
            verdict = judge(dict.fromkeys(names), ())
            if verdict.counts:
                yield reports_drift(verdict.counts)
            absent = [field for field in fields if field.name in verdict.absent or verdict.refused]
            fields = [field for field in fields if field not in absent]
            _check_header(names, fields, path)
            decoder = CsvDecoder(names, fields, delimiter, judged)
        line += count_lines(block[: len(block) - len(data)])
        records = Records(data, quoted=True, line=line)
        if verdict.refused:
            texts = [records.text(i) for i in range(len(records))]
            yield refuse_all(verdict.refused, row, texts, records.lines(len(texts)) if texts else _NONE)
            row, line = row + len(texts), line + records.line_count
            continue
        decoded, row = decode(records, decoder, row)
        line += records.line_count
        yield with_nulls(decoded, absent) if absent else decoded


def _header(block: bytes, delimiter: str) -> tuple[list[str], bytes]:
    """The names in the first row, and the rows after it."""
    data = block.lstrip(b"\r\n")
    end = min(position if position >= 0 else len(data) for position in (data.find(b"\n"), data.find(b"\r")))
    fields, _ = split_record(data[:end].decode("utf-8", errors="replace"), delimiter)
    while end < len(data) and data[end] in b"\r\n":
        end += 1
    return [(field or "").strip() for field in fields], data[end:]


def _check_header(names: Sequence[str], fields: Sequence[Field], path: str) -> None:
    for field in fields:
        if names.count(field.name) == 1:
            continue
        close = None if field.name in names else nearest(field.name, names)
        fault = "appears twice" if field.name in names else "is missing"
        raise SchemaError(
            f"column {field.name!r} {fault} in the header of {path!r}",
            given=field.name,
            allowed=", ".join(names),
            instead=f"{close} {field.type.value}" if close else "",
        )


class CsvDecoder:
    """Decodes rows with the fields `names` (the file's, in order) and reads `fields` of them."""

    def __init__(
        self, names: Sequence[str], fields: Sequence[Field], delimiter: str, judged: Container[str] = ()
    ) -> None:
        self.fields = fields
        self._positions = [list(names).index(field.name) for field in fields]
        self._width = len(names)
        self._delimiter = delimiter
        self._one_pass = CsvPass(fields, self._positions, self._width, delimiter, judged)
        labels = [str(i) for i in range(self._width)]
        self._labels = labels
        self._convert = pacsv.ConvertOptions(
            include_columns=[labels[i] for i in self._positions],
            column_types=dict.fromkeys(labels, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def fast(self, records: Records) -> FastRead:
        records.check_utf8()
        if not len(records.span):
            return FastRead(self.slow_schema().empty_table())
        table = self._one_pass.read(records)
        return self._as_text(records) if table is None else FastRead(table)

    def _as_text(self, records: Records) -> FastRead:
        """The rows as Arrow reads them, all columns as text."""
        span = pa.py_buffer(self._closed(records))
        broken: dict[int, BrokenRecord] = {}
        quoted = b'"' in records.data
        # One thread: Spark runs one worker per core, and with more threads Arrow does not number broken rows.
        table = pacsv.read_csv(
            pa.BufferReader(span),
            pacsv.ReadOptions(column_names=self._labels, block_size=span.size, use_threads=False),
            pacsv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=quoted and records.bounds.multiline,
                invalid_row_handler=lambda row: self._refuse(row, broken),
            ),
            self._convert,
        )
        if quoted and not _quotes_fit(records, len(table) + len(broken), self._delimiter):
            raise pa.ArrowInvalid("a row of several lines may be a mistake")
        return FastRead(table.rename_columns([field.name for field in self.fields]), broken)

    def _closed(self, records: Records) -> memoryview | bytes:
        """The records' bytes; with a line end if the last field is empty, which Arrow may otherwise read as quoted.

        Arrow skips a byte order mark at the start. Here it is a character, since that of the file is gone already: it
        gets another one before it.
        """
        span = records.span
        if span[: len(BOM)] == BOM:
            span = memoryview(BOM + span)
        if b'"' not in records.data or span[-1:] != self._delimiter.encode():
            return span
        if not split_record(records.text(len(records) - 1), self._delimiter)[1]:
            raise pa.ArrowInvalid("a quote is not closed")
        return bytes(span) + b"\n"

    def _refuse(self, row: Any, broken: dict[int, BrokenRecord]) -> str:
        if "\n" in row.text and not split_record(row.text, self._delimiter)[1]:
            return "error"  # an open quote has included the following lines, which are read on their own
        broken[row.number - 1] = BrokenRecord(_wrong_width(row.actual_columns, self._width), row.text)
        return "skip"

    def slow_schema(self) -> pa.Schema:
        return pa.schema([(field.name, pa.string()) for field in self.fields])

    def slow(self, record: bytes) -> list[Any] | BrokenRecord | SplitRecords:
        text = record.decode("utf-8", errors="replace")
        values, quotes_right = split_record(text, self._delimiter)
        first, newline, rest = record.partition(b"\n")
        if newline and not quotes_right:  # an open quote has included the following lines
            return SplitRecords(first.removesuffix(b"\r"), rest)
        if not _is_utf8(record):
            return BrokenRecord("the row is not UTF-8 text", text)
        if len(values) != self._width:
            return BrokenRecord(_wrong_width(len(values), self._width), text)
        return [values[i] for i in self._positions]


def _quotes_fit(records: Records, rows: int, delimiter: str) -> bool:
    """Whether each row is one line, or every quote opens or closes a field or is doubled.

    Arrow accepts other quotes; where they join several lines to one row, that is probably a mistake.
    """
    bounds = Bounds.of(bytes(records.span), quoted=False) if records.bounds.multiline else records.bounds
    if rows == len(bounds.starts):
        return True
    array = np.frombuffer(records.span, dtype=np.uint8)
    border = np.frombuffer(b'\n\r"' + delimiter.encode(), dtype=np.uint8)
    quotes = np.flatnonzero(array == border[2])
    outside = np.concatenate([quotes[::2] - 1, quotes[1::2] + 1])
    inside = outside[(outside >= 0) & (outside < len(array))]
    return len(quotes) % 2 == 0 and bool(np.isin(array[inside], border).all())


def _is_utf8(record: bytes) -> bool:
    try:
        return record.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


def _wrong_width(actual: int, expected: int) -> str:
    return f"the row has {actual} field{'s' if actual != 1 else ''}, expected {expected}"


def split_record(text: str, delimiter: str) -> tuple[list[str | None], bool]:
    """The fields of one record as Arrow splits them, and whether all quotes are in legal places.

    >>> split_record('a,"b,c",,""', ",")
    (['a', 'b,c', None, ''], True)
    """
    fields: list[str | None] = []
    position, right = 0, True
    while True:
        close = _closing_quote(text, position) if text.startswith('"', position) else -1
        if close < 0 and text.startswith('"', position):
            return [*fields, text[position + 1 :].replace('""', '"')], False
        end = text.find(delimiter, close + 1 if close >= 0 else position)
        end = len(text) if end < 0 else end
        if close >= 0:
            right = right and close + 1 == end
            fields.append(text[position + 1 : close].replace('""', '"') + text[close + 1 : end])
        else:
            right = right and "\n" not in text[position:end]
            fields.append(text[position:end] or None)
        if end == len(text):
            return fields, right
        position = end + 1


def _closing_quote(text: str, opening: int) -> int:
    close = text.find('"', opening + 1)
    while close >= 0 and text.startswith('"', close + 1):
        close = text.find('"', close + 2)
    return close


def first_records(data: bytes, delimiter: str) -> list[list[str | None]]:
    """The fields of the records of a first block, for inferring a schema."""
    records = Records(data, quoted=True)
    return [split_record(records.text(i), delimiter)[0] for i in range(len(records))]
