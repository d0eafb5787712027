"""Lines from a TCP server: over real sockets on this machine, with servers that break off, flood and send nonsense."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures.ports import refusing_port
from tests.fixtures.waiting import PATIENCE, until

import headrace as hr
from headrace import errors
from headrace.api.stream import Stream
from headrace.border import as_ticks
from headrace.io.files import list_files, listing
from headrace.io.formats import Format
from headrace.io.host_source import LineSplitter, Pauses, Receiver, Spool
from headrace.io.origins import HostRead
from headrace.plan.arrival import ARRIVAL, POSITION, stamped

QUICK = Pauses(0.005, 0.02)
Script = Callable[[socket.socket], None]


class Server:
    """Answers each connection with the next script, in turn; connections after the last one are closed at once."""

    def __init__(self, *scripts: Script, listener: socket.socket | None = None) -> None:
        self._scripts = list(scripts)
        self._listener = socket.create_server(("127.0.0.1", 0)) if listener is None else listener
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            with connection:
                if self._scripts:
                    try:
                        self._scripts.pop(0)(connection)
                    except OSError:
                        continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


def sends(data: bytes, *more: bytes) -> Script:
    """A script that sends all of this, piece by piece, and closes the connection."""

    def script(connection: socket.socket) -> None:
        for piece in (data, *more):
            connection.sendall(piece)
            time.sleep(0.002)

    return script


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*scripts: Script) -> Server:
        servers.append(Server(*scripts))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def origin(port: int, format: str = "csv", **options: int) -> HostRead:
    return HostRead("127.0.0.1", port, Format(format, header=False), **options)  # type: ignore[arg-type]


def spooled(folder: Path) -> list[bytes]:
    return [line for path in list_files(str(folder)) for line in Path(path).read_bytes().splitlines()]


def aside(folder: Path) -> list[str]:
    return [json.loads(line)["line"] for line in (folder / "_aside.jsonl").read_text().splitlines()]


# --- receiving -------------------------------------------------------------------------------------------------------


def test_lines_come_and_a_broken_connection_is_made_again(serve: Callable[..., Server], tmp_path: Path):
    server = serve(sends(b"a,1\nb,", b"2\nc,3\nhal"), sends(b""), sends(b"d,4\r\n\n  \ne,5\n"))
    receiver = Receiver(origin(server.port), tmp_path / "spool", pauses=QUICK)
    receiver.start()
    until(lambda: receiver.counts["lines"] == 5)
    receiver.stop()
    assert spooled(tmp_path / "spool") == [b"a,1", b"b,2", b"c,3", b"d,4", b"e,5"]  # nothing lost, nothing glued
    assert aside(tmp_path / "spool") == ["hal"]
    assert receiver.counts["half"] == 1
    assert receiver.counts["connections"] >= 3
    assert not receiver.failure


def test_a_server_that_comes_later_is_found(tmp_path: Path):
    with refusing_port() as listener:
        receiver = Receiver(origin(listener.getsockname()[1]), tmp_path, pauses=QUICK)
        receiver.start()
        until(lambda: receiver.counts["refused"] > 2)
        listener.listen()
        server = Server(sends(b"a,1\n"), listener=listener)
        until(lambda: receiver.counts["lines"] == 1)
        receiver.stop()
        server.close()


@pytest.mark.slow
def test_a_fast_sender_has_to_wait_for_the_query(serve: Callable[..., Server], tmp_path: Path):
    """The server cannot send more than buffers hold until files are taken; then all of it comes, in order."""
    total, most = 600_000, 5000
    sent = threading.Event()

    def flood(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        connection.sendall(b"".join(b"%d,some more text\n" % i for i in range(total)))
        sent.set()

    taken: list[str] = []
    host = origin(serve(flood).port, buffer_rows=most)
    receiver = Receiver(host, tmp_path, taken=lambda: len(taken), pauses=QUICK)
    receiver.start()
    until(lambda: receiver.counts["waits"] > 0)
    time.sleep(0.3)
    assert receiver.counts["lines"] == most
    assert not sent.is_set()
    found: list[int] = []
    while len(found) < total:
        new = list_files(str(tmp_path))[len(taken) :]
        lines = [int(line.split(b",")[0]) for path in new for line in Path(path).read_bytes().splitlines()]
        assert len(lines) <= most
        found += lines
        taken += new
        time.sleep(0.002)
    receiver.stop()
    assert found == list(range(total))


def test_lines_that_are_no_rows_are_diverted(serve: Callable[..., Server], tmp_path: Path):
    server = serve(sends(b"a,1\n" + b"x" * 500, b"y" * 500 + b"\n" + b'"open,2\n"b, c",3\n' + b"z" * 2000))
    receiver = Receiver(origin(server.port), tmp_path, once=True, longest=100)
    receiver.start()
    assert receiver.wait(PATIENCE)
    assert spooled(tmp_path) == [b"a,1", b'"b, c",3']
    assert {name: receiver.counts[name] for name in ("too_long", "unpaired", "half")} == {
        "too_long": 2, "unpaired": 1, "half": 0,
    }  # fmt: skip
    assert len(aside(tmp_path)) == 3


def test_stopping_leaves_no_thread_and_writes_down_what_came(serve: Callable[..., Server], tmp_path: Path):
    gate = threading.Event()

    def stays(connection: socket.socket) -> None:
        connection.sendall(b"a,1\nb,2\nand ha")
        gate.wait(PATIENCE)

    server = serve(stays)
    receiver = Receiver(origin(server.port), tmp_path, pauses=QUICK)
    receiver.start()
    until(lambda: receiver.counts["lines"] == 2)
    assert f"headrace-receive-{server.port}" in [thread.name for thread in threading.enumerate()]
    receiver.stop()
    gate.set()
    assert f"headrace-receive-{server.port}" not in [thread.name for thread in threading.enumerate()]
    assert spooled(tmp_path) == [b"a,1", b"b,2"]
    Receiver(origin(server.port), tmp_path).stop()  # another may have the spool, and need not even have started


def test_a_receiver_that_cannot_write_says_so(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "write", full)
    failed = threading.Event()
    receiver = Receiver(origin(serve(sends(b"a,1\n")).port), tmp_path, pauses=QUICK)
    receiver.on_failure = failed.set
    receiver.start()
    assert failed.wait(PATIENCE)
    assert receiver.wait(PATIENCE)
    assert isinstance(receiver.failure, OSError)


# --- the spool -------------------------------------------------------------------------------------------------------


def test_files_are_a_millisecond_apart_also_after_a_restart(tmp_path: Path):
    spool = Spool(tmp_path, "csv", 0)
    for number in range(5):
        spool.write([b"%d" % number])
    spool.close()
    (tmp_path / "_000.csv").write_text("half a file of a process that died")
    again = Spool(tmp_path, "csv", 3)
    assert again.waiting(3) == 2
    assert again.waiting(5) == 0
    again.write([b"5", b"6"])
    assert again.waiting(5) == 2
    again.close()
    times = [file.modified // 1000 for file in listing(str(tmp_path))]
    assert all(later - earlier >= 1000 for earlier, later in pairwise(times))
    assert spooled(tmp_path) == [b"%d" % i for i in range(7)]
    assert not list(tmp_path.glob("_0*"))


def test_two_receivers_do_not_share_a_spool(tmp_path: Path):
    spool = Spool(tmp_path, "csv", 0)
    with pytest.raises(errors.SourceError, match="another query"):
        Spool(tmp_path, "csv", 0)
    spool.close()


@given(st.lists(st.binary(max_size=12), max_size=12), st.lists(st.integers(0, 40), max_size=6), st.integers(1, 10))
@settings(max_examples=2 * settings().max_examples)
def test_lines_are_the_same_however_bytes_come(pieces: list[bytes], cuts: list[int], longest: int):
    data = b"\n".join(pieces)
    places = sorted(min(cut, len(data)) for cut in cuts)
    lines, found, too_long = LineSplitter(longest), [], 0
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        some, others = lines.take(data[start:end])
        found += some
        too_long += len(others)
    *whole, half = data.split(b"\n")
    ends = [line.removesuffix(b"\r") for line in whole]
    assert found == [line for line in ends if line.strip() and len(line) <= longest]
    # A line that is too long by its line end alone may be told either way.
    certain = sum(len(line) > longest for line in ends) + (len(half) > longest)
    assert certain <= too_long <= certain + sum(len(line) > longest for line in whole)
    assert lines.half() == (half if len(half) <= longest else b"")


def test_pauses_grow_up_to_a_limit():
    pauses = Pauses(0.1, 5.0)
    for attempt in range(100):
        length = min(5.0, 0.1 * 2**attempt)
        assert length / 2 <= pauses.before(attempt) <= length
    assert len({pauses.before(3) for _ in range(10)}) > 1


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_bounded_read_takes_all_until_the_server_closes(serve: Callable[..., Server], tmp_path: Path):
    data = b"a;1\nb;x\n\xff\xfe;3\nc;4;5\nd;6\nhalf"
    stream = hr.read_host("127.0.0.1", serve(sends(data)).port, "k STRING, t LONG", delimiter=";", spool=str(tmp_path))
    before = time.time_ns() // 1000
    run = stream.run()
    rows = as_ticks(run.cht()).to_pylist()
    assert sorted((row["k"], row["t"]) for row in rows) == [("a", 1), ("d", 6)]
    assert all(before <= row["le"] <= time.time_ns() // 1000 for row in rows)
    assert len(run.diverted()) == 3
    assert any("UTF-8" in reason for reason in run.diverted()["reason"].to_pylist())
    assert "headrace-receive" not in " ".join(thread.name for thread in threading.enumerate())
    # What was received is stored: its history is the same, without a server.
    history = Stream(stamped(stream.node)).history(engine="duckdb").cht()
    assert sorted(zip(history["k"].to_pylist(), history[POSITION].to_pylist(), strict=True)) == [("a", 0), ("d", 4)]
    assert history[ARRIVAL].to_pylist() == as_ticks(history)["le"].to_pylist()


def test_json_lines_with_a_time_of_their_own_and_a_limit(serve: Callable[..., Server]):
    server = serve(sends(b"".join(b'{"k": "a", "t": %d}\n' % i for i in range(50))))
    stream = hr.read_host(
        "127.0.0.1", server.port, "k STRING, t LONG", format="json", lifetime=hr.point("t"), limit=20
    )  # fmt: skip
    windows = stream.window(hr.tumbling(10)).aggregate(n=hr.count())
    assert [(row["le"], row["n"]) for row in windows.cht().to_pylist()] == [(0, 10), (10, 10)]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_server_may_have_nothing_to_say(serve: Callable[..., Server], format: str):
    assert hr.read_host("127.0.0.1", serve(sends(b"")).port, "k STRING", format=format).cht().num_rows == 0  # type: ignore[arg-type]


def test_two_hosts_are_received_at_the_same_time(serve: Callable[..., Server]):
    """Each server closes only when both have been connected to."""
    both = threading.Barrier(2, timeout=PATIENCE)

    def script(connection: socket.socket) -> None:
        connection.sendall(b"a\n")
        both.wait()

    ports = [serve(script).port for _ in range(2)]
    a, b = (hr.read_host("127.0.0.1", port, "k STRING") for port in ports)
    assert a.union(b).cht().num_rows == 2


def test_a_bounded_read_gives_up_when_nobody_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.io.host_source._PATIENCE", 0.0)
    with refusing_port() as nobody, pytest.raises(errors.SourceError, match="no server answers"):
        hr.read_host("127.0.0.1", nobody.getsockname()[1], "k STRING").cht()


def test_a_history_needs_what_was_received():
    with pytest.raises(errors.HistoryError, match="spool"):
        hr.read_host("127.0.0.1", 1, "k STRING").history(engine="duckdb").cht()


def test_the_plan_does_not_depend_on_where_lines_are_kept(tmp_path: Path):
    kept = hr.read_host("h", 9, "k STRING", spool=str(tmp_path))
    assert kept.node == hr.read_host("h", 9, "k STRING").node
    assert kept.node != hr.read_host("h", 9, "k STRING", delimiter=";").node
    assert "host h:9" in kept.explain()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"port": 0}, "port"),
        ({"port": "80"}, "port"),
        ({"host": ""}, "name"),
        ({"format": "parquet"}, "lines"),
        ({"buffer_rows": 0}, "counts"),
        ({"limit": -1}, "counts"),
        ({"schema": "k ARRAY<INT>"}, "lists"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], says: str):
    given = {"host": "h", "port": 9, "schema": "k STRING"} | options
    with pytest.raises(errors.HeadraceError, match=says):
        hr.read_host(**given)  # type: ignore[arg-type]
