"""Clients of a server that cost as little as possible, in a process of their own: raw sockets in one event loop.

`python -m benchmarks.server_clients KIND PORT CONNECTIONS SECONDS` prints what it found as JSON.

- `requests`: inserts of one row, each a request that waits for its reply; how many were acknowledged.
- `lines`: inserts of one row, each a line, of which some hundreds are on their way; how many were acknowledged.
- `follow`: subscribers. It prints a line when all have begun, and then the latencies of rows whose `at` is the time at
  which they were sent, in microseconds of the monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

_ROW = b'{"a": 1, "b": "x"}'
_HOST = b"HTTP/1.1\r\nhost: localhost\r\n"
#: Lines on their way, of all connections.
_LINES = 2_000
_AT = re.compile(rb'"at": ?(\d+)')


class _Counting(asyncio.Protocol):
    """Sends again as many inserts as were acknowledged, until it is time."""

    def __init__(self, head: bytes, first: int, until: float) -> None:
        self.head, self.first, self.until, self.count = head, first, until, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.head)
        self.send(self.first)

    def data_received(self, data: bytes) -> None:
        acknowledged = data.count(b'"rows"')
        self.count += acknowledged
        if acknowledged and time.monotonic() < self.until:
            self.send(acknowledged)

    def send(self, inserts: int) -> None:
        raise NotImplementedError


class _Requests(_Counting):
    request = b"POST /streams/s/rows %scontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"

    def send(self, inserts: int) -> None:
        self.transport.write(self.request % (_HOST, len(_ROW), _ROW) * inserts)


class _Lines(_Counting):
    def send(self, inserts: int) -> None:
        data = (_ROW + b"\n") * inserts
        self.transport.write(b"%x\r\n%s\r\n" % (len(data), data))


class _Follower(asyncio.Protocol):
    """Keeps what arrives, and when."""

    def __init__(self) -> None:
        self.parts: list[tuple[float, bytes]] = []
        self.begun = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET /subscribe/q %s\r\n" % _HOST)

    def data_received(self, data: bytes) -> None:
        self.parts.append((time.monotonic(), data))
        if b'"at"' in data:
            self.begun.set()

    def latencies(self) -> list[float]:
        """Of each row that it has, in seconds."""
        return [now - int(at) / 1e6 for now, data in self.parts for at in _AT.findall(data) if at != b"0"]


async def _insert(kind: str, port: int, connections: int, seconds: float) -> int:
    until = time.monotonic() + seconds
    head = b"POST /streams/s/rows?batch=1 %scontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"

    def client() -> _Counting:
        if kind == "requests":
            return _Requests(b"", 1, until)
        return _Lines(head % _HOST, _LINES // connections, until)

    loop = asyncio.get_running_loop()
    clients = [(await loop.create_connection(client, "127.0.0.1", port))[1] for _ in range(connections)]
    await asyncio.sleep(until - time.monotonic())
    return sum(one.count for one in clients)


async def _follow(port: int, connections: int, seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    followers = [(await loop.create_connection(_Follower, "127.0.0.1", port))[1] for _ in range(connections)]
    await asyncio.gather(*(one.begun.wait() for one in followers))
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    return [late for one in followers for late in one.latencies()]


def main() -> None:
    """Be so many clients for so long."""
    kind, port, connections, seconds = sys.argv[1], *map(int, sys.argv[2:5])
    if kind == "follow":
        print(json.dumps(asyncio.run(_follow(port, connections, seconds))))
    else:
        print(json.dumps(asyncio.run(_insert(kind, port, connections, seconds)) / seconds))


if __name__ == "__main__":
    main()
