"""What statements and messages reply with."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import psycopg
import pytest
from tests.fixtures.waiting import until
from tests.unit.server.postgres import raw_client as raw
from tests.unit.server.postgres.raw_client import SYNC, RawClient, fields, message, values
from tests.unit.server.postgres.stand_in import StandIn

from headrace.server.postgres import PostgresListener, listening

SCRIPT = (
    "CREATE TABLE t (id INT PRIMARY KEY, name STRING, x DOUBLE); INSERT INTO t VALUES (1, 'a', 1.5), (2, NULL, NULL)"
)


@pytest.fixture
def server() -> StandIn:
    return StandIn(SCRIPT)


@pytest.fixture
def listener(server: StandIn) -> Iterator[PostgresListener]:
    with listening(server, port=0) as found:
        yield found


@pytest.fixture
def client(listener: PostgresListener) -> Iterator[RawClient]:
    with RawClient(listener.port) as found:
        yield found


def test_several_statements_in_one_message(client: RawClient):
    found = client.query("SELECT id FROM t ORDER BY id; INSERT INTO t VALUES (3, 'c', 0.5); SELECT 'x;y' AS s")
    assert "".join(kind for kind, _ in found) == "TDDCCTDCZ"
    assert [body for kind, body in found if kind == "C"] == [b"SELECT 2\0", b"INSERT 0 1\0", b"SELECT 1\0"]
    assert client.query(" ; -- nothing")[0][0] == "I"


def test_an_error_ends_the_text_and_has_its_place(client: RawClient):
    found = client.query("SELECT 1; SET application_name = 'x'; SELECT nope FROM t; SELECT 2")
    assert "".join(kind for kind, _ in found) == "TDCSCEZ"
    error = fields(found[-2][1])
    assert error["C"] == "42703"
    assert "SELECT 1; SET application_name = 'x'; SELECT nope"[int(error["P"]) - 1 :] == "nope"
    assert "allowed: id, name, x" in error["D"]
    assert client.error("SELEC 1")["C"] == "42601"
    assert client.error("SELECT * FROM nowhere")["C"] == "42P01"
    assert client.error("BREAK") | {"S": "", "V": ""} == {
        "S": "", "V": "", "C": "XX000", "M": "the server has failed: its log says more",
    }  # fmt: skip


def test_notes_are_notices(client: RawClient):
    found = client.query("SELECT 1 AS noted")
    assert fields(next(body for kind, body in found if kind == "N"))["M"] == "a note"


def test_transactions_are_accepted_and_undo_nothing(client: RawClient):
    assert client.query("BEGIN")[-1] == ("Z", b"T")
    client.query("INSERT INTO t VALUES (5, 'e', 0.0)")
    found = client.query("ROLLBACK")
    assert "cannot be undone" in fields(next(body for kind, body in found if kind == "N"))["M"]
    assert client.rows("SELECT id FROM t WHERE id = 5") == [(b"5",)]
    assert client.tags("BEGIN; SELECT 1; COMMIT; START TRANSACTION; SAVEPOINT a; ROLLBACK TO a; RELEASE a; END") == [
        "BEGIN", "SELECT 1", "COMMIT", "BEGIN", "SAVEPOINT", "ROLLBACK", "RELEASE", "COMMIT",
    ]  # fmt: skip


def test_a_failed_transaction_waits_for_its_end(client: RawClient):
    client.query("BEGIN")
    assert client.query("SELECT nope FROM t")[-1] == ("Z", b"E")
    assert client.error("SELECT 1")["C"] == "25P02"
    assert client.error("SHOW TimeZone")["C"] == "25P02"
    assert client.tags("COMMIT") == ["ROLLBACK"]
    assert client.rows("SELECT 1") == [(b"1",)]


def test_settings(client: RawClient):
    assert client.rows("SET application_name = 'x'; SHOW application_name") == [(b"x",)]
    assert client.rows("RESET application_name; SHOW application_name") == [(b"",)]
    assert client.rows("SHOW transaction isolation level") == [(b"read committed",)]
    harmless = "SET client_encoding TO 'UTF8'; SET NAMES 'utf8'; SET DateStyle = ISO, MDY; SET extra_float_digits=3"
    assert client.tags(harmless) == ["SET"] * 4
    assert client.error("SET client_encoding = 'LATIN1'")["C"] == "22023"
    assert client.error("SET server_version = '1'")["C"] == "55P02"
    assert client.error("SET statement_timeout = 'soon'")["C"] == "22023"
    notices = [fields(body)["M"] for kind, body in client.query("SET TIME ZONE 'Asia/Tokyo'") if kind == "N"]
    assert notices == ["TimeZone has no effect: times are written in UTC"]
    assert not [one for one in client.query("SET TimeZone = 'UTC'") if one[0] == "N"]
    assert len(client.rows("SHOW ALL")) > 20
    assert client.tags("DISCARD ALL; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY") == ["DISCARD ALL", "SET"]


def test_own_settings_go_to_the_server(client: RawClient):
    assert client.rows("SHOW SETTINGS")
    assert client.rows("SHOW TABLES") == [(b"t", b"id INT, name STRING, x DOUBLE")]
    assert client.error("SET nonsense_of_ours = 1")["S"] == "ERROR"


def test_the_extended_protocol(client: RawClient):
    client.send(
        raw.parse("s", "SELECT id, name FROM t WHERE id = $1 OR name = '$1'", [23]),
        raw.describe("S", "s"), raw.bind("", "s", [b"\0\0\0\x01"], [1], [1, 0]), raw.describe("P", ""), raw.execute(""),
        SYNC,
    )  # fmt: skip
    found = client.until("Z")
    assert "".join(kind for kind, _ in found) == "1tT2TDCZ"
    assert found[1][1] == struct.pack("!hi", 1, 23)
    assert values(found[5][1]) == (b"\0\0\0\x01", b"a")
    client.send(raw.bind("", "s", [b"2"]), raw.execute(""), SYNC)
    assert [values(body) for kind, body in client.until("Z") if kind == "D"] == [(b"2", None)]
    client.send(message("C", b"Ss\0"), raw.bind("", "s", [b"2"]), SYNC)
    found = client.until("Z")
    assert fields(found[1][1])["C"] == "26000"


def test_portals_give_some_rows_at_a_time(client: RawClient):
    client.send(raw.parse("", "SELECT id FROM t ORDER BY id"), raw.bind("p", ""), raw.execute("p", 1))
    client.send(raw.execute("p", 1), raw.execute("p", 1), SYNC)
    assert client.letters() == "12DsDsCZ"


def test_after_an_error_messages_are_skipped_until_sync(client: RawClient):
    client.send(raw.parse("", "SELECT nope FROM t"), raw.bind("", ""), raw.describe("P", ""), raw.execute(""))
    client.send(raw.parse("", "SELECT 1"), raw.bind("", ""), raw.execute(""), SYNC)
    assert client.letters() == "12EZ"
    client.send(raw.parse("", "SELECT 1; SELECT 2"), SYNC, raw.bind("", "none"), SYNC, raw.execute("none"), SYNC)
    assert client.letters() + client.letters() + client.letters() == "EZEZEZ"
    client.send(raw.parse("", "SELECT $2"), raw.bind("", "", [b"1"]), SYNC)
    assert client.letters() == "1EZ"


def test_an_error_of_a_bound_statement_has_its_place_in_what_was_sent(client: RawClient):
    text = "SELECT id, $1 AS s FROM t WHERE nope = 1"
    client.send(raw.parse("", text), raw.bind("", "", [b"a text that is longer"]), raw.execute(""), SYNC)
    error = next(fields(body) for kind, body in client.until("Z") if kind == "E")
    assert text[int(error["P"]) - 1 :].startswith("nope")


def test_empty_statements_and_flush(client: RawClient):
    client.send(raw.parse("", ""), raw.bind("", ""), raw.describe("P", ""), raw.execute(""), message("H"))
    assert [client.message()[0] for _ in range(4)] == ["1", "2", "n", "I"]
    client.send(SYNC)
    assert client.letters() == "Z"


@pytest.mark.parametrize(
    ("text", "oids"),
    [
        ("SELECT id FROM t WHERE name = $1", [25]),
        ("SELECT id FROM t WHERE id = $1 AND x > $2", [1700, 1700]),
        ("SELECT id FROM t LIMIT $1", [20]),
        ("INSERT INTO t VALUES ($1, $2, $3)", [23, 25, 701]),
        ("INSERT INTO t (name, id) VALUES ($1, $2), ($3, $4)", [25, 23, 25, 23]),
    ],
)
def test_types_of_parameters_that_the_client_does_not_say(client: RawClient, text: str, oids: list[int]):
    client.send(raw.parse("s", text), raw.describe("S", "s"), SYNC)
    found = next(body for kind, body in client.until("Z") if kind == "t")
    assert list(struct.unpack(f"!h{len(oids)}i", found))[1:] == oids


def test_a_subscription_is_fetched(server: StandIn, client: RawClient):
    server.publish(1.0, 2.0, cursor="c2")
    server.publish(3.0, cursor="c3")
    client.query("SET subscribe_timeout = '50 ms'; DECLARE c CURSOR FOR SUBSCRIBE t")
    assert client.rows("FETCH 1 FROM c") == [(b"insert", b"0", b"1", b"c2.1")]
    assert client.rows("FETCH FORWARD 10 FROM c") == [
        (b"insert", b"1", b"2", b"c2"), (b"insert", b"0", b"3", b"c3"),
    ]  # fmt: skip
    assert client.tags("FETCH ALL c; MOVE 5 IN c; CLOSE c") == ["FETCH 0", "MOVE 0", "CLOSE CURSOR"]
    assert server.subscriptions[0].closed
    assert client.error("FETCH c")["C"] == "34000"
    assert client.error("FETCH BACKWARD 1 FROM c")["C"] == "0A000"
    assert client.error("DECLARE c CURSOR")["C"] == "42601"


def test_fetch_waits_for_rows(server: StandIn, client: RawClient):
    client.query("SET subscribe_timeout = '120 s'; DECLARE c CURSOR FOR SUBSCRIBE t")
    threading.Timer(0.2, server.publish, [7.0]).start()
    assert [row[2] for row in client.rows("FETCH ALL FROM c")] == [b"7"]


def test_cursors_end_with_their_transaction_unless_they_are_held(server: StandIn, client: RawClient):
    client.query("BEGIN; DECLARE a CURSOR FOR SUBSCRIBE t; DECLARE b CURSOR WITH HOLD FOR SELECT id FROM t; COMMIT")
    assert server.subscriptions[0].closed
    assert client.tags("FETCH 1 FROM b; FETCH ALL FROM b; FETCH ALL FROM b") == ["FETCH 1", "FETCH 1", "FETCH 0"]


def copy_until_cancelled(client: psycopg.Connection, lines: list[tuple[str | None, ...]]) -> None:
    with client.cursor().copy("COPY (SUBSCRIBE t) TO STDOUT") as copy:
        for row in copy.rows():
            lines.append(row)
            if len(lines) == 2:
                client.cancel_safe()


def test_a_subscription_is_copied_until_it_is_cancelled(server: StandIn, listener: PostgresListener):
    server.publish(1.0, 2.0, cursor="a\tb")
    with psycopg.connect(f"host=127.0.0.1 port={listener.port} user=me", autocommit=True) as client:
        lines: list[tuple[str | None, ...]] = []
        with pytest.raises(psycopg.errors.QueryCanceled):
            copy_until_cancelled(client, lines)
        assert lines == [("insert", "0", "1", None), ("insert", "1", "2", "a\tb")]
        assert server.subscriptions[0].closed
        with client.cursor().copy("COPY (SELECT id FROM t ORDER BY id) TO STDOUT") as copy:
            assert list(copy.rows()) == [("1",), ("2",)]


def test_a_client_that_goes_away_ends_its_copy(server: StandIn, listener: PostgresListener):
    client = RawClient(listener.port)
    client.send(message("Q", b"COPY (SUBSCRIBE t) TO STDOUT\0"))
    assert client.message()[0] == "H"
    client.socket.close()
    until(lambda: server.connections[0].closed)
    assert server.subscriptions[0].closed


def test_what_needs_a_cursor_or_is_not_there_says_so(server: StandIn, client: RawClient):
    error = client.error("SUBSCRIBE t")
    assert (error["C"], "DECLARE c CURSOR" in error["H"]) == ("0A000", True)
    assert server.subscriptions[0].closed
    assert client.error("COPY t FROM STDIN")["C"] == "0A000"
    assert client.error("DEALLOCATE nothing")["C"] == "26000"
    client.send(message("F", b"\0"))
    client.send(SYNC)
    assert client.letters() == "EZ"


def test_psycopg_prepares_pipelines_and_reads_in_binary(listener: PostgresListener):
    with psycopg.connect(f"host=127.0.0.1 port={listener.port} user=me") as client:
        for number in range(8):  # after some, it prepares
            found = client.execute("SELECT id FROM t WHERE id = %s", [number % 2 + 1], binary=True).fetchall()
            assert found == [(number % 2 + 1,)]
        with client.pipeline():
            cursors = [client.execute("SELECT id, x FROM t WHERE id = %s", [number]) for number in (1, 2)]
            assert [cursor.fetchall() for cursor in cursors] == [[(1, 1.5)], [(2, None)]]
        with client.cursor("named") as cursor:
            cursor.execute("SELECT id FROM t ORDER BY id")
            assert [cursor.fetchone(), *cursor.fetchall()] == [(1,), (2,)]
        assert client.execute("SELECT id FROM t WHERE name = ANY(%s)", [["a", "b"]]).fetchall() == [(1,)]
