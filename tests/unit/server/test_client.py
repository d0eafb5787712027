"""`hr.connect`: statements, rows and subscriptions over a socket, and errors as the server raised them."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.standing_in import StandIn, answer

import headrace as hr
from headrace import errors
from headrace.server.arrow_messages import ArrowMessages
from headrace.server.client import Client
from headrace.server.http import HttpServer, HttpSettings
from headrace.server.interface import RowsReply, Said
from headrace.server.problems import error_from_json, error_to_json

SETTINGS = HttpSettings(heartbeat=0.05)


@pytest.fixture
def server() -> StandIn:
    return StandIn()


@pytest.fixture
def client(server: StandIn) -> Iterator[Client]:
    with HttpServer(server, port=0, settings=SETTINGS) as http, hr.connect(http.url) as found:
        yield found


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def test_statements_give_tables(client: Client):
    table = client.sql("INSERT INTO numbers VALUES (1); SELECT * FROM numbers")
    assert table.slice(0, 1).equals(answer().slice(0, 1))
    assert client.sql("INSERT INTO numbers VALUES (1)").num_columns == 0
    assert client.sql("").num_columns == 0
    said, rows = client.replies("INSERT INTO numbers VALUES (1); SELECT * FROM numbers")
    assert said == Said("INSERT", "1 row", 1)
    assert isinstance(rows, RowsReply)
    assert (rows.tag, rows.notes, rows.table.schema.metadata) == ("SELECT", ("a note",), None)
    assert client.health()["ok"] is True


def test_errors_are_those_of_the_server(client: Client):
    with pytest.raises(errors.SqlError, match="nothing to drop") as caught:
        client.sql("SHOW STREAMS;\n  DROP STREAM x")
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert "^^^^" in str(caught.value)
    with pytest.raises(errors.ServerError, match="there is no stream 'none'"):
        client["none"].insert({"n": 1})
    with pytest.raises(errors.UnknownColumn):
        client["numbers"].insert({"m": 1})
    with pytest.raises(errors.ServerError, match="its log says why"):
        client.sql("VERIFY numbers")


def test_errors_without_a_server():
    with pytest.raises(errors.ServerError, match="no address of a server"):
        hr.connect("localhost:8080")
    with hr.connect("http://127.0.0.1:1", patience=0) as client:
        with pytest.raises(errors.Unavailable, match="does not answer"):
            client.sql("SHOW STREAMS")
        with pytest.raises(errors.Unavailable, match="does not answer"):
            client["numbers"].insert({"n": 1})
        with pytest.raises(errors.Unavailable, match="does not answer"):
            next(iter(client["numbers"].subscribe()))


def test_rows_go_in_in_any_form(server: StandIn, client: Client):
    stream = client.stream("numbers")
    table = pa.table({"n": pa.array([3])})
    for rows in ({"n": 1}, [{"n": 2}], table, table.to_batches()[0], pd.DataFrame({"n": [4]})):
        assert stream.insert(rows) == 1
    assert server.streams["numbers"] == [1, 2, 3, 3, 4]
    assert [stream.publish([{"n": 5}, {"n": 6}], key="k") for _ in range(2)] == [2, 2]
    assert server.streams["numbers"][5:] == [5, 6]
    assert stream.to_pandas()["n"].tolist() == [1, (1 << 53) + 1]


def test_the_history_so_far(server: StandIn, client: Client):
    assert client["numbers"].cht().num_rows == 0
    server.add("numbers", [1, 2])
    assert client["numbers"].cht().column_names == ["le", "re", "n"]
    assert client["numbers"].cht()["n"].to_pylist() == [1, 2]


def test_a_subscription_continues_when_the_server_starts_again(server: StandIn):
    server.add("numbers", list(range(10)))
    http = HttpServer(server, port=0, settings=SETTINGS)
    http.start()
    with hr.connect(http.url) as client:
        subscriber = client["numbers"].subscribe(rows=4)
        batches = iter(subscriber)
        assert numbers(list(islice(batches, 3))) == list(range(10))
        assert (subscriber.cursor, subscriber.cti) == ("10", 10)
        http.stop()
        server.add("numbers", [10, 11])
        with HttpServer(server, port=http.port, settings=SETTINGS):
            assert numbers([next(batches)]) == [10, 11]
        batches.close()  # type: ignore[attr-defined]


def test_a_snapshot_is_given_when_it_is_whole(server: StandIn, client: Client):
    server.add("numbers", [1, 2, 3])
    subscriber = client["numbers"].subscribe(rows=1)
    batches = iter(subscriber)
    assert numbers([next(batches), next(batches)]) == [1, 2]
    assert subscriber.cursor is None, "until the last batch, there is no place to continue from"
    assert (numbers([next(batches)]), subscriber.cursor) == ([3], "3")
    batches.close()  # type: ignore[attr-defined]


def test_a_subscription_in_an_event_loop(server: StandIn, client: Client):
    server.add("numbers", [1])

    async def read() -> list[int]:
        found = []
        async for batch in client["numbers"].subscribe():
            found += batch.column("n").to_pylist()
            if found[-1] == 3:
                break
            server.add("numbers", [found[-1] + 1])
        return found

    assert asyncio.run(read()) == [1, 2, 3]


def test_a_subscription_raises_what_ends_it(server: StandIn, client: Client):
    server.add("numbers", [-1])
    with pytest.raises(errors.SubscriptionError, match="it ends here"):
        next(iter(client["numbers"].subscribe()))
    server.first = 7
    with pytest.raises(errors.SubscriptionError, match="no longer kept"):
        next(iter(client["numbers"].subscribe(cursor="3")))
    assert [frame["n"].tolist() for frame in islice(_frames(server, client), 1)] == [[1]]


def _frames(server: StandIn, client: Client) -> Iterator[pd.DataFrame]:
    server.first, server.streams["numbers"] = 0, [1]
    return client["numbers"].subscribe().frames()


def test_headrace_loads_no_web_library():
    code = "import sys, headrace; print([name for name in ('httpx', 'starlette', 'uvicorn') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@given(st.integers(1, 50), st.lists(st.integers(0, 40), max_size=5))
def test_batches_are_found_however_their_bytes_arrive(size: int, lengths: list[int]):
    out = pa.BufferOutputStream()
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    with pa.ipc.new_stream(out, schema) as stream:
        for number, length in enumerate(lengths):
            batch = pa.record_batch([pa.array(range(length), pa.int64()), pa.array(["x"] * length)], schema=schema)
            stream.write_batch(batch, custom_metadata={"cursor": str(number)} if number % 2 else None)
    whole = out.getvalue().to_pybytes()
    messages = ArrowMessages()
    found = [one for at in range(0, len(whole), size) for one in messages.feed(whole[at : at + size])]
    assert [batch.num_rows for batch, _ in found] == lengths
    assert [about.get(b"cursor") for _, about in found] == [
        str(n).encode() if n % 2 else None for n in range(len(lengths))
    ]


@given(st.binary(max_size=60))
def test_bytes_that_are_no_stream_are_an_error(data: bytes):
    try:
        found = list(ArrowMessages().feed(data))
    except (errors.ServerError, pa.ArrowInvalid, OSError):
        return
    assert found == []


KINDS = [
    kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.HeadraceError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_its_class(kind: type[errors.HeadraceError]):
    given = datetime(2024, 1, 1, tzinfo=UTC)
    error = kind("what happened", given=given, allowed="a", instead="b")
    found = error_from_json(error_to_json(error))
    assert (type(found), found.message, found.allowed, found.instead) == (kind, "what happened", "a", "b")
    assert found.given == str(given)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)  # noqa: S301 - our own
    assert type(error_from_json({"code": "NEW_IN_A_LATER_VERSION", "message": "x"})) is errors.ServerError
