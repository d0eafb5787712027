"""`GET /queries/{name}/trace`: the tables of a trace, or the answer to a question about it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import ServerError
from headrace.server.http.replies import accepts_arrow, arrow_response, json_response
from headrace.server.http.ways import Ways
from headrace.server.interface import RowsReply, Who
from headrace.tracing.asking import QUESTIONS, ask
from headrace.tracing.comparisons import comparisons_of
from headrace.tracing.traced import TracedRun

__all__ = ["TABLES", "traced_tables"]

TABLES = ("text", "operators", "batches", "edges", "changes")
_ANSWER = "answer"


async def traced_tables(ways: Ways, request: Request, who: Who) -> Response:
    """Trace a query, and reply with tables of the trace, and with the answer to a question."""
    name, given = request.path_params["name"], request.query_params
    tables = given.get("tables", TABLES[0]).split(",")
    if unknown := [table for table in tables if table not in TABLES]:
        raise ServerError("a trace has no such table", given=unknown[0], allowed=", ".join(TABLES))
    batches, rows, operator = _batches(given), _number(given, "batch_rows"), _number(given, "operator")
    _check_question(given)

    def replies() -> list[RowsReply]:
        with ways.tracing.use(who):
            trace = ways.server.trace(name, batch_rows=rows, batches=batches)
            shown = operator if "question" not in given else None
            found = [RowsReply(table, _table(trace, table, shown)) for table in tables]
            if "question" in given:
                found.append(RowsReply(_ANSWER, _answer(trace, given, operator or None)))
        for reply in found:
            ways.limits.check_reply(reply.table)
        return found

    found = await ways.call(replies)
    ways.note(request, who, f"TRACE {name}")
    return arrow_response(found) if accepts_arrow(request) else json_response(found)


def _table(trace: TracedRun, name: str, operator: int | None) -> pa.Table:
    if name == "text":
        return pa.table([pa.array(repr(trace).splitlines(), pa.string())], names=["trace"])
    if name == "changes" and operator is not None:
        return trace.of(operator or trace.record.output.number)
    table: pa.Table = getattr(trace, name)
    return table


def _check_question(given: Mapping[str, str]) -> None:
    question = given.get("question")
    if question is not None and question not in QUESTIONS:
        raise ServerError("there is no such question", given=question, allowed=", ".join(QUESTIONS))
    if question != "why_cti" and (question is None) == ("condition" in given):
        raise ServerError(
            "a question is about the event that fulfils a condition",
            given=f"question={question}" if question is not None else f"condition={given['condition']}",
            allowed="both, or neither",
            instead="question=why&condition=symbol = 'A'",
        )
    if "at" in given and question not in ("why", "why_not"):
        raise ServerError("a time belongs to a question about an answer", given=given["at"], allowed="why, why_not")


def _answer(trace: TracedRun, given: Mapping[str, str], operator: int | None) -> pa.Table:
    found = ask(
        trace,
        given["question"],
        lambda asked: comparisons_of(asked, given["condition"]),
        operator=operator,
        at=given.get("at"),
    )
    return pa.table([pa.array(found.splitlines(), pa.string())], names=[_ANSWER]) if isinstance(found, str) else found


def _batches(given: Mapping[str, str]) -> tuple[int, int] | None:
    text = given.get("batches")
    found = None if text is None else re.fullmatch(r"(\d{1,12})(?:\.\.(\d{1,12}))?", text, re.ASCII)
    if text is not None and found is None:
        raise ServerError("these are not numbers of batches", given=text, allowed="N, or N..M", instead="batches=2..4")
    return None if found is None else (int(found[1]), int(found[2] or found[1]))


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is not None and not (text.isascii() and text.isdigit() and len(text) < 13):
        raise ServerError(f"{name} is a number", given=text, allowed="0, 1, 2, …")
    return None if text is None else int(text)
