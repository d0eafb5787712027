"""`POST /sql`, and the routes that are statements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import anyio
from starlette.requests import Request
from starlette.responses import Response

from headrace.errors import ServerError
from headrace.server.http.bodies import content_type, read_body, text_of
from headrace.server.http.replies import JSON, accepts_arrow, arrow_response, json_response
from headrace.server.http.ways import Ways
from headrace.server.interface import Connection, Reply, RowsReply, Subscribed, Who
from headrace.sql.printer import to_sql
from headrace.sql.syntax import Name

__all__ = ["SQL", "shows", "sql"]

SQL = "application/sql"


async def sql(ways: Ways, request: Request, who: Who) -> Response:
    """Carry out the statements of the body."""
    kind = content_type(request, JSON, SQL)
    text = text_of(await read_body(request, ways.limits), kind, ways.limits)
    return await _carried_out(ways, request, who, text)


def shows(text: str) -> Callable[[Ways, Request, Who], object]:
    """A route that is one statement; about the query that the path names, if it names one."""

    async def show(ways: Ways, request: Request, who: Who) -> Response:
        of = request.path_params.get("name")
        about = "" if of is None else f" FOR {to_sql(Name(of, quoted=True))}"
        limit = request.query_params.get("limit")
        if limit is not None and not (limit.isascii() and limit.isdigit()):
            raise ServerError("the limit is a number of rows", given=limit, allowed="0, 1, 2, …")
        return await _carried_out(ways, request, who, f"{text}{about}{'' if limit is None else f' LIMIT {limit}'}")

    return show


async def _carried_out(ways: Ways, request: Request, who: Who, text: str) -> Response:
    encode = arrow_response if accepts_arrow(request) else json_response
    running: list[Connection] = []

    def run() -> Response:
        with ways.connected(who, request) as connection:
            running.append(connection)
            return encode(_replies(ways, connection, text))

    try:
        with anyio.fail_after(ways.limits.statement_seconds):
            response = await _unless_left(ways, request, run, running)
    except TimeoutError as error:
        if running:
            await ways.call(running[0].cancel)
        late = ways.limits.out_of_time()
        ways.note(request, who, text, late)
        raise late from error
    return response


async def _unless_left(
    ways: Ways, request: Request, run: Callable[[], Response], running: list[Connection]
) -> Response:
    """The response of a call in a thread, whose statements are cancelled if the client goes away."""
    outcome: list[Response | Exception] = []

    async def call() -> None:
        try:
            outcome.append(await ways.call(run))
        except Exception as error:  # noqa: BLE001 - of any kind: it is raised below, outside the group
            outcome.append(error)
        both.cancel_scope.cancel()

    async with anyio.create_task_group() as both:
        both.start_soon(call)
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if running:
            await ways.call(running[0].cancel)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _replies(ways: Ways, connection: Connection, text: str) -> list[Reply]:
    replies: list[Reply] = []
    with ExitStack() as opened:
        for reply in connection.execute(text):
            if isinstance(reply, RowsReply):
                ways.limits.check_reply(reply.table)
            if isinstance(reply, Subscribed):
                opened.callback(reply.subscription.close)
                raise ServerError(
                    "a subscription has a route of its own",
                    given="SUBSCRIBE",
                    instead="GET /subscribe/NAME?form=events",
                )
            replies.append(reply)
    return replies
