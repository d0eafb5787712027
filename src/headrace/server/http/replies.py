"""Replies as JSON or Arrow.

JSON is a list of replies, with each row as an object. Times are ISO texts. Numbers that readers with 64-bit floats
would round (integers beyond 2^53, DECIMAL with more than 15 digits) are texts, and so are `"NaN"`, `"Infinity"` and the
end `"inf"` of a lifetime without one.

Arrow is one stream for each reply, one after the other; the metadata of its schema has the tag and the message.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from starlette.requests import Request
from starlette.responses import Response

from headrace.border import shown_time
from headrace.io.encode import json_objects
from headrace.server.interface import Reply, RowsReply, Said, SubscribedRows
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["ARROW", "JSON", "JSON_LINES", "accepts_arrow", "arrow_response", "event_data", "json_response", "rows_json"]

ARROW, JSON, JSON_LINES = "application/vnd.apache.arrow.stream", "application/json", "application/x-ndjson"


def accepts_arrow(request: Request) -> bool:
    """Whether a client asks for Arrow."""
    return ARROW in request.headers.get("accept", "")


def json_response(replies: Sequence[Reply]) -> Response:
    """`{"replies": [{"tag", "columns", "rows", "notes"} | {"tag", "message", "count"}]}`."""
    return Response(b'{"replies": [' + b", ".join(map(_reply_json, replies)) + b"]}", media_type=JSON)


def _reply_json(reply: Reply) -> bytes:
    if isinstance(reply, RowsReply):
        columns = [{"name": field.name, "type": str(field.type)} for field in reply.table.schema]
        about = json.dumps({"tag": reply.tag, "columns": columns, "notes": list(reply.notes)})
        return about[:-1].encode() + b', "rows": ' + rows_json(reply.table) + b"}"
    said = {"message": reply.message, "count": reply.count} if isinstance(reply, Said) else {}
    return json.dumps({"tag": reply.tag, **said}).encode()


def rows_json(table: pa.Table) -> bytes:
    """Rows as a list of objects."""
    texts = [json_objects(batch, exact=True) for batch in table.combine_chunks().to_batches()]
    return b"[" + b", ".join(_joined(part) for part in texts if len(part)) + b"]"


def _joined(texts: pa.Array) -> bytes:
    """The texts with commas between them, without a Python object for each."""
    whole = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), ", ")
    return bytes(whole[0].as_buffer().to_pybytes())


def event_data(piece: SubscribedRows) -> bytes:
    """`{"snapshot", "cti", "rows"}`: the data of a server-sent event."""
    schema = piece.rows.schema
    dates = "le" in schema.names and pa.types.is_timestamp(schema.field("le").type)
    cti: int | str | None = shown_time(piece.cti, dates=dates)
    cti = {INFINITY: "inf", NEG_INFINITY: None}.get(piece.cti, cti)
    about = json.dumps({"snapshot": piece.snapshot, "cti": cti})
    return about[:-1].encode() + b', "rows": ' + rows_json(piece.rows) + b"}"


def arrow_response(replies: Sequence[Reply]) -> Response:
    """The replies as Arrow streams, one after the other."""
    body = io.BytesIO()
    for reply in replies:
        table = reply.table if isinstance(reply, RowsReply) else pa.table({})
        about = {"headrace.tag": reply.tag}
        if isinstance(reply, RowsReply) and reply.notes:
            about["headrace.notes"] = json.dumps(list(reply.notes))
        if isinstance(reply, Said):
            about |= {"headrace.message": reply.message, "headrace.count": json.dumps(reply.count)}
        schema = table.schema.with_metadata({**(table.schema.metadata or {}), **about})
        with pa.ipc.new_stream(body, schema) as stream:
            stream.write_table(table.replace_schema_metadata(schema.metadata))
    return Response(body.getvalue(), media_type=ARROW)
