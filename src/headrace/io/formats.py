"""Reading files: one entry for every format.

`read_file` reads a file as blocks of decoded rows. For every format, the columns have the schema's Arrow types, rows
stay in file order, and rows that cannot be read are refused with the reason and do not stop the file. Only the
requested columns are decoded: a bad value in another column does not refuse its row.

A physical stream (rule 1.3) is an ordinary file whose schema has `kind STRING` and `le`, `re`, `re_new` as LONG; these
three accept ticks, ISO times, `inf`, `∞` and `-inf`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from headrace.errors import SchemaError
from headrace.io.conversion import TICK_COLUMNS, convert
from headrace.io.csv import first_records, read_csv
from headrace.io.decoded import DecodedBlock
from headrace.io.drift import DriftJudge, DriftRules, no_drift
from headrace.io.envelope import OP, TS, DebeziumDecoder
from headrace.io.files import MAX_EXPANSION, open_file, open_stream, source_errors
from headrace.io.hive import folder_columns
from headrace.io.json import json_records, read_json
from headrace.io.json_drift import FileDrift
from headrace.io.json_shapes import Form
from headrace.io.parquet import arrow_schema, parquet_schema, read_arrow, read_parquet
from headrace.io.records import MAX_LINE, blocks
from headrace.schema import Field, Schema, Type

__all__ = ["DecodedBlock", "Format", "first_row", "infer_schema", "read_file"]

_NAMES = ("csv", "json", "parquet", "arrow")
_ENDINGS = {"csv": "csv", "tsv": "csv", "txt": "csv", "json": "json", "jsonl": "json", "ndjson": "json",
            "parquet": "parquet", "pq": "parquet", "arrow": "arrow", "feather": "arrow", "ipc": "arrow"}  # fmt: skip
_COMPRESSED = ("gz", "bz2", "zst", "lz4")
_SAMPLE_BYTES = 1 << 20
_SAMPLE_LINES = 100
_DATE_TEXT = re.compile(r"-?[0-9]{4,}-[0-9]{2}-[0-9]{2}")
_GUESSES = (Type.LONG, Type.DOUBLE, Type.BOOLEAN, Type.DATETIME)


@dataclass(frozen=True)
class Format:
    """The format of a file.

    `delimiter` and `header` are for CSV. `nested` is for JSON: payload columns are under `"payload"`, as the writer
    of physical events puts them; None looks at the first line of each file. `envelope` is for JSON: lines are changes
    (`envelope.py`), and the columns those of the rows that they describe. `rename` pairs column names of the file
    with new names. `sparse` is for JSON: the columns that no row need have (`json_fields.py`); `*` is all of them.
    `on_drift` is the policy for files with other columns than the declared ones, and `whole` says that these are all
    columns of the first file (`drift.py`); both are no part of the format's text, so a query may go on with others.
    `max_line` and `max_expansion` are limits for text: the bytes of a line, and how many times its size a compressed
    file may decompress to.
    """

    name: str
    delimiter: str = ","
    header: bool = True
    nested: bool | None = False
    rename: tuple[tuple[str, str], ...] = ()
    max_line: int = MAX_LINE
    max_expansion: int = MAX_EXPANSION
    envelope: Literal["", "debezium"] = ""
    sparse: tuple[str, ...] = ()
    on_drift: Literal["", "raise", "divert", "widen"] = ""
    whole: bool = False

    def __post_init__(self) -> None:
        if self.envelope not in ("", "debezium") or (self.envelope and (self.name != "json" or self.nested)):
            raise SchemaError(
                "an envelope is for flat JSON",
                given=f"{self.name}, envelope={self.envelope!r}",
                allowed="'debezium'",
                instead="Format('json', envelope='debezium')",
            )
        for limit in ("max_line", "max_expansion"):
            if type(getattr(self, limit)) is not int or getattr(self, limit) < 1:
                raise SchemaError(
                    f"{limit} is a whole number from 1 on", given=getattr(self, limit), instead=f"{limit}=1000"
                )
        if self.name not in _NAMES:
            raise SchemaError(f"unknown file format {self.name!r}", given=self.name, allowed=", ".join(_NAMES))
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n':
            raise SchemaError(
                "a delimiter is one plain character", given=self.delimiter, allowed="such as ',', ';', '|' or a tab"
            )

    def __str__(self) -> str:
        plain = Format(self.name)
        options = [
            f"{n}={getattr(self, n)!r}"
            for n in ("delimiter", "header", "nested", "envelope")
            if getattr(self, n) != getattr(plain, n)
        ]
        options += [f"{old!r} as {new!r}" for old, new in self.rename]
        return self.name + (f"({', '.join(options)})" if options else "")

    @classmethod
    def of_path(cls, path: str) -> Format:
        """The format that a file's name suggests.

        >>> Format.of_path("ticks.csv.gz").name
        'csv'
        """
        parts = path.rpartition("/")[2].lower().split(".")
        ending = parts[-2] if parts[-1] in _COMPRESSED and len(parts) > 1 else parts[-1]
        if ending not in _ENDINGS:
            known = ", ".join(f".{name}" for name in _ENDINGS)
            raise SchemaError("the format of a file with this name is unknown", given=path, allowed=known)
        return cls(_ENDINGS[ending], delimiter="\t" if ending == "tsv" else ",")


def read_file(
    path: str,
    format: Format,
    schema: Schema,
    columns: Sequence[str] | None = None,
    row_filter: pc.Expression | None = None,
    judged: Container[str] = (),
    drift: DriftRules | None = None,
) -> Iterator[DecodedBlock]:
    """The file's rows in blocks of up to about a million.

    `columns` are the columns to read (None: all). Rows for which `row_filter` is not true are left out; it may use any
    column of the schema. A filtered Parquet file may number only the rows that pass. The values of the columns in
    `judged` are not used: a bad value in one of them refuses its row, and good ones may be null. `drift` judges the
    columns of the file; what differs is counted in a block without rows.
    """
    wanted = schema.names if columns is None else tuple(columns)
    fields = _fields(schema, wanted, row_filter)
    none = schema.arrow.empty_table().select(list(wanted))
    with source_errors(path):
        if format.name in ("parquet", "arrow"):
            with open_file(path) as file:
                read, judge = read_parquet if format.name == "parquet" else read_arrow, _judge(drift, path, schema)
                for block in read(file, path, fields, row_filter, wanted, dict(format.rename), judge):
                    yield block if block.table.num_columns else replace(block, table=none)
        else:
            with open_stream(path, format.max_expansion) as stream:
                for block in _read_text(stream, path, format, schema, fields, judged, drift):
                    rows = block.table.num_columns > 0
                    yield block.where(row_filter, wanted) if rows else replace(block, table=none)


def _fields(schema: Schema, wanted: Sequence[str], row_filter: pc.Expression | None) -> list[Field]:
    """The fields to decode: the wanted ones, those the filter may use, and at least one, to count rows."""
    text = "" if row_filter is None else str(row_filter)
    fields = [schema[name] for name in wanted]
    fields += [field for field in schema if field.name not in wanted and field.name in text]
    return fields or list(schema.fields[:1])


def _read_text(
    stream: Any, path: str, format: Format, schema: Schema, fields: Sequence[Field], judged: Container[str],
    drift: DriftRules | None,
) -> Iterator[DecodedBlock]:  # fmt: skip
    options: dict[str, Any] = {"max_line": format.max_line, "judged": judged}
    if format.name == "csv":
        how: dict[str, Any] = {"delimiter": format.delimiter, "header": format.header, "rename": dict(format.rename)}
        return read_csv(stream, path, schema, fields, judge=_judge(drift, path, schema), **how, **options)
    nested = not format.envelope and (_looks_nested(path) if format.nested is None else format.nested)
    options["drift"] = _file_drift(path, format, schema, drift, nested=nested)
    if format.envelope:
        return read_json(stream, fields, decoder=partial(DebeziumDecoder, fields), **options)
    return read_json(stream, fields, nested, **options)


def _judge(drift: DriftRules | None, path: str, schema: Schema) -> DriftJudge:
    return no_drift if drift is None else partial(drift.judge, path, schema.fields)


def _file_drift(path: str, format: Format, schema: Schema, drift: DriftRules | None, *, nested: bool) -> FileDrift:
    """The drift of a file of JSON lines; rows of changes are looked at in any case, because a search finds no rows."""
    judge = None if drift is None else _judge(drift, path, schema)
    thorough = drift is not None and bool(drift.policy or drift.whole or format.envelope)
    form: Form = format.envelope or ("nested" if nested else "")
    elsewhere = (OP, TS) if format.envelope else ()
    return FileDrift(schema.names, dict(format.rename), judge, form, elsewhere, thorough, path)


def _looks_nested(path: str) -> bool:
    """Whether the first line of a file of JSON lines has its payload under `"payload"`."""
    start = _sample(path, quoted=False).lstrip()
    try:
        return isinstance(json.loads(start.split(b"\n", 1)[0]).get("payload"), dict)
    except (ValueError, AttributeError):
        return False


def infer_schema(path: str, format: Format, below: str = "") -> Schema:
    """A schema that fits the file, from its own columns or from its first rows.

    Folders between `below`, which may be a pattern, and a Parquet file have values of more columns (`hive.py`).

    Whole numbers are LONG and others DOUBLE. A column that no column type holds (a decimal, an object, a list of
    lists) is an error that names it. Columns have the names of the file.
    """
    with source_errors(path):
        if format.name == "csv":
            return _infer_csv(_sample(path, quoted=True), format)
        if format.name == "json":
            return _infer_json(_sample(path, quoted=False))
        with open_file(path) as file:
            if format.name == "arrow":
                return _typed(arrow_schema(file))
            schema = _typed(parquet_schema(file))
        more = folder_columns(path, below) if below else ()
        return Schema((*schema, *(field for field in more if field.name not in schema)))


def starts_with_dates(path: str, format: Format) -> bool:
    """Whether the events of a file start at dates, and not at ticks, by the file's columns or its first rows."""
    name = next((old for old, new in format.rename if new == "le"), "le")
    with source_errors(path):
        if format.name == "csv":
            rows = first_records(_sample(path, quoted=True), format.delimiter)
            names = _names(rows, format.header)
            place = names.index(name) if name in names else len(names)
            starts: list[Any] = [row[place] for row in rows[format.header :] if len(row) > place]
        elif format.name == "json":
            starts = [_member(line, name) for line in _sample(path, quoted=False).split(b"\n")[:_SAMPLE_LINES]]
        else:
            with open_file(path) as file:
                schema = parquet_schema(file) if format.name == "parquet" else arrow_schema(file)
            return name in schema.names and pa.types.is_temporal(schema.field(name).type)
    return any(isinstance(start, str) and _DATE_TEXT.match(start) for start in starts)


def _member(line: bytes, name: str) -> Any:
    try:
        return json.loads(line).get(name)
    except (ValueError, AttributeError):  # no object: its row is refused when it is read
        return None


def first_row(path: str, delimiter: str) -> list[str]:
    """The fields of the first row of a CSV file, which may be its header."""
    rows = first_records(_sample(path, quoted=True), delimiter)
    return [(field or "").strip() for field in rows[0]] if rows else []


def _sample(path: str, *, quoted: bool) -> bytes:
    with open_stream(path) as stream:
        return next(blocks(stream, quoted=quoted, size=_SAMPLE_BYTES), b"")


def _infer_csv(data: bytes, format: Format) -> Schema:
    rows = first_records(data, format.delimiter) if data else []
    names = _names(rows, format.header)
    body = [row for row in rows[1 if format.header else 0 :] if len(row) == len(names)]
    fields = [Field(name, _guess(name, [row[i] for row in body])) for i, name in enumerate(names)]
    starts = [row[names.index("le")] for row in body] if "le" in names else []
    dates = any(starts) and all(_DATE_TEXT.match(start) for start in starts if start)
    return Schema(tuple(Field(f.name, Type.DATETIME) if dates and f.name in TICK_COLUMNS else f for f in fields))


def _names(rows: list[list[str | None]], header: bool) -> list[str]:
    if not rows:
        return []
    numbered = [f"c{i}" for i in range(len(rows[0]))]
    return (
        [(name or "").strip() or spare for name, spare in zip(rows[0], numbered, strict=True)] if header else numbered
    )


def _guess(name: str, values: list[str | None]) -> Type:
    if name in TICK_COLUMNS:
        return Type.LONG
    texts = pa.array(values, pa.string())
    if texts.null_count == len(texts) or name == "kind":
        return Type.STRING
    return next((kind for kind in _GUESSES if convert(texts, Field(name, kind)).bad is None), Type.STRING)


def _infer_json(data: bytes) -> Schema:
    records = json_records(data) if data else None
    if not records:
        return Schema(())
    objects = [records[i] for i in range(len(records)) if records[i].lstrip().startswith(b"{")]
    options = pajson.ReadOptions(block_size=len(data) + 1)
    return _typed(pajson.read_json(pa.BufferReader(b"\n".join(objects)), options).schema)


def _typed(arrow: pa.Schema) -> Schema:
    """The columns; times of events are dates if their starts are dates or texts, else ticks."""
    start = arrow.field("le").type if "le" in arrow.names else pa.int64()
    kind = pa.int64() if pa.types.is_integer(start) or pa.types.is_null(start) else pa.timestamp("us", "UTC")
    return Schema.of(pa.schema([field.with_type(kind) if field.name in TICK_COLUMNS else field for field in arrow]))
