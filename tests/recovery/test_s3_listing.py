"""Sources on S3: how much is listed while files keep arriving, and a store that fails or is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import obstore
import pytest
from tests.fixtures.s3_proxy import Proxy, Trouble, before
from tests.fixtures.s3_server import S3Server

import headrace as hr
from headrace.events import history, to_changes
from headrace.host.driving.positions import FilePositions
from headrace.io import new_names
from headrace.io.files import list_files
from headrace.io.sinks import read_events_output
from headrace.plan.nodes import Source
from headrace.store import objects
from headrace.store.objects import ObjectStorage


@pytest.fixture
def proxy(s3_server: S3Server, s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:  # noqa: ARG001 - sets keys
    with before(s3_server.endpoint, silence=4.0) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


def numbers_of(place: str) -> hr.Stream:
    return hr.read_csv(place, "t LONG, v LONG", lifetime=hr.point("t"), progress=hr.advance(delay=50))


async def put_all(client: obstore.store.S3Store, keys: list[str]) -> None:
    turns = asyncio.Semaphore(16)

    async def put(key: str) -> None:
        async with turns:
            await obstore.put_async(client, key, b"t,v\n")

    await asyncio.gather(*map(put, keys))


@pytest.mark.slow
def test_of_many_files_only_the_last_are_listed_with_each_batch(s3: str, s3_server: S3Server, proxy: Proxy):
    """2,100 files are three requests for who lists them all."""
    client, prefix = s3_server.client(), s3.rpartition("/")[2]
    asyncio.run(put_all(client, [f"{prefix}/in/{number:06}.csv" for number in range(2100)]))
    node = numbers_of(f"{s3}/in").node
    assert isinstance(node, Source)
    read = FilePositions(node)
    read.take(read.pending())
    assert read.read == 2100
    assert len(proxy.listings) == 3
    proxy.requests.clear()
    proxy.keys = 0
    for number in range(2100, 2140):
        obstore.put(client, f"{prefix}/in/{number:06}.csv", b"t,v\n")
        files = read.pending()
        assert [file.path for file in files] == [f"{s3}/in/{number:06}.csv"]
        read.take(files)
    assert len(proxy.listings) <= 80, "two with each batch, not three and one to see whether the place is a file"
    assert sum("start-after" in query for query in proxy.listings) >= 27
    assert proxy.keys < 40 * 2100 / 2
    obstore.put(client, f"{prefix}/in/000000-late.csv", b"t,v\n")
    assert [file.path for file in read.pending(thorough=True)] == [f"{s3}/in/000000-late.csv"]


def test_a_query_reads_files_with_late_names(s3: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    """As if a store listed five names at a time: after most batches only the last names are listed."""
    monkeypatch.setattr(new_names, "_PAGE", 5)
    monkeypatch.setattr(new_names, "_AGAIN", 2)
    source = ObjectStorage(f"{s3}/in")
    names = [*(f"b-{number:03}" for number in range(30)), "a-000", *(f"b-{number:03}" for number in range(30, 33))]
    stream = numbers_of(f"{s3}/in")
    for number in range(22):
        assert source.create(f"{names[number]}.csv", f"t,v\n{number},{number}\n".encode())
    memory = hr.memory()
    query = stream.start(memory, host="local")
    query.process_all_available()
    for number in range(22, len(names)):
        assert source.create(f"{names[number]}.csv", f"t,v\n{number},{number}\n".encode())
        query.process_all_available()
        assert query.files_taken(str(stream.node.origin)) == number + 1
    query.finish()
    query.stop()
    assert sum("start-after" in query for query in proxy.listings) > 5
    assert sorted(memory.cht()["v"].to_pylist()) == list(range(len(names)))


@pytest.mark.parametrize("trouble", ["503", "500", "closed"])
def test_requests_that_fail_are_repeated(s3: str, proxy: Proxy, trouble: Trouble):
    """Every third request fails: of the listing, the reading, the state and the outputs."""
    source = ObjectStorage(f"{s3}/in")
    for number in range(3):
        assert source.create(f"{number}.csv", f"t,v\n{number},{number}\n".encode())
    numbers = count()
    stream = numbers_of(f"{s3}/in/").window(hr.tumbling(1)).aggregate(s=hr.sum("v"))
    proxy.trouble = lambda *_: trouble if next(numbers) % 3 == 0 else None
    query = stream.start(hr.files(f"{s3}/out"), checkpoint=f"{s3}/state", host="local")
    query.finish()
    query.stop()
    proxy.trouble = lambda *_: None
    found = history(to_changes(read_events_output(f"{s3}/out", stream.schema), stream.schema))
    assert sorted(found["s"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("what", ["listing", "reading"])
def test_a_store_that_is_silent_is_asked_again(s3: str, proxy: Proxy, what: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(objects, "_SILENCE", timedelta(seconds=0.5))
    assert ObjectStorage(f"{s3}/in").create("a.csv", b"t,v\n1,5\n")
    first = count()

    def silent(method: str, target: str) -> Trouble | None:
        asked = method == "GET" and ("list-type" in target) == (what == "listing")
        return "silent" if asked and next(first) == 0 else None

    proxy.trouble = silent
    assert list_files(f"{s3}/in/") == [f"{s3}/in/a.csv"]
    assert numbers_of(f"{s3}/in/").cht()["v"].to_pylist() == [5]
    assert next(first) > 1
