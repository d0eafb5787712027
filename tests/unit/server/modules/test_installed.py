"""Modules on a server: installed by administrators, used by name, each query with the version that it began with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.wheels import tallies, wheel

from headrace.errors import AccessError, ModuleError, SqlError
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who

ROWS = "CREATE TABLE items (class STRING, price LONG); INSERT INTO items VALUES ('a', 1), ('a', 2), ('b', 5)"
AGGREGATE = """
CREATE AGGREGATE f(x LONG) : LONG {
    TABLE t(n LONG);
    INITIALIZE: { INSERT INTO t VALUES (tests.weighted(x)); }
    ITERATE: { UPDATE t SET n = n + x; }
    TERMINATE: { INSERT INTO RETURN SELECT n FROM t; }
}"""
SUMS = "SELECT class, tests.tally(price) AS n FROM items GROUP BY class"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], ServerConnection]]:
    """Start a server, or another one over the same directory in its place."""
    running: list[HeadraceServer] = []

    def started() -> ServerConnection:
        for server in running:
            server.stop()
        running[:] = [HeadraceServer(tmp_path / "data", durable=False)]
        running[0].start()
        return running[0].connect(Who("ann", "admin"), "10.0.0.7")

    yield started
    for server in running:
        server.stop()


def asked(client: ServerConnection, text: str) -> list[dict[str, Any]]:
    replies = list(client.execute(text))
    assert isinstance(replies[-1], RowsReply)
    return list(replies[-1].table.to_pylist())


def sums(client: ServerConnection, what: str) -> dict[str, int]:
    return {row["class"]: row["n"] for row in asked(client, f"SELECT * FROM {what}")}


def carried_out(client: ServerConnection, text: str) -> None:
    for _ in client.execute(text):
        pass


def shown(client: ServerConnection) -> list[tuple[str, ...]]:
    rows = [row for row in asked(client, "SHOW MODULES") if row["checksum"]]
    return [(row["module"], row["kind"], row["version"], row["state"], row["used_by"]) for row in rows]


def folders(client: ServerConnection) -> list[str]:
    return sorted(path.name for path in client.server.modules.folder.glob("*"))


@pytest.mark.slow
def test_a_module_is_used_by_name(start: Callable[[], ServerConnection]):
    client = start()
    said = client.install_modules(tallies())
    assert said.message.startswith("tallies 1.0 (sha256 ")
    assert said.message.endswith("is installed: tests.tally, tests.weighted")
    carried_out(client, ROWS)
    assert asked(client, "SELECT tests.tally(price, factor => 3) AS n FROM items") == [{"n": 24}]
    assert asked(client, "SELECT tests.weighted(price) AS n FROM items WHERE class = 'b'") == [{"n": 5}]
    assert shown(client) == [
        ("tests.tally", "aggregate", "1.0", "current", ""), ("tests.weighted", "function", "1.0", "current", ""),
    ]  # fmt: skip
    others = {row["module"]: row for row in asked(client, "SHOW MODULES")}
    assert (others["time_weighted_avg"]["package"], others["time_weighted_avg"]["checksum"]) == ("headrace", "")
    with pytest.raises(SqlError, match=r"tests\.taly"):
        asked(client, "SELECT tests.taly(price) AS n FROM items")
    with pytest.raises(SqlError, match="do not travel with an aggregate"):
        carried_out(client, AGGREGATE)


@pytest.mark.slow
def test_a_query_keeps_the_version_that_it_began_with(start: Callable[[], ServerConnection]):
    client = start()
    client.install_modules(tallies())
    carried_out(client, f"{ROWS}; CREATE VIEW now AS {SUMS}; CREATE MATERIALIZED VIEW old AS {SUMS}")
    carried_out(client, "CREATE MATERIALIZED VIEW over AS SELECT class, n + 1000 AS n FROM now")
    client.install_modules(tallies("value * 10", "2.0"))
    carried_out(client, f"CREATE MATERIALIZED VIEW new AS {SUMS}")
    carried_out(client, "INSERT INTO items VALUES ('b', 6)")
    for _ in range(2):
        assert sums(client, "old") == {"a": 3, "b": 11}
        assert sums(client, "over") == {"a": 1003, "b": 1011}
        assert sums(client, "now") == sums(client, "new") == {"a": 30, "b": 110}
        assert [line[2:] for line in shown(client) if line[0] == "tests.tally"] == [
            ("1.0", "kept", "old, over"), ("2.0", "current", "now, new"),
        ]  # fmt: skip
        client = start()
    carried_out(client, "INSERT INTO items VALUES ('b', 1)")  # the states of before are taken up again
    assert (sums(client, "old"), sums(client, "new")) == ({"a": 3, "b": 12}, {"a": 30, "b": 120})
    plans = {name: client.server.objects[name].query.node.fingerprint for name in ("old", "new")}  # type: ignore[union-attr]
    assert plans["old"] != plans["new"]
    carried_out(client, "DROP MATERIALIZED VIEW old; DROP MATERIALIZED VIEW over")
    client = start()
    assert len(folders(client)) == 1
    assert {line[2] for line in shown(client)} == {"2.0"}


def test_a_function_of_another_version_is_another_function(start: Callable[[], ServerConnection]):
    client = start()
    carried_out(client, ROWS)
    for version in ("1.0", "1.1"):  # the same code
        client.install_modules(tallies(version=version))
        name = f"v{version[-1]}"
        carried_out(client, f"CREATE MATERIALIZED VIEW {name} AS SELECT tests.weighted(price) AS n FROM items")
    nodes = [client.server.objects[name].query.node for name in ("v0", "v1")]  # type: ignore[union-attr]
    assert nodes[0] != nodes[1]


def test_an_older_version_becomes_current_again(start: Callable[[], ServerConnection]):
    client = start()
    client.install_modules(tallies())
    assert client.install_modules(tallies()).message.endswith("is the current version: tests.tally, tests.weighted")
    carried_out(client, f"{ROWS}; CREATE MATERIALIZED VIEW old AS {SUMS}")
    client.install_modules(tallies("value * 10", "2.0"))
    assert "tallies 1.0" in client.install_modules(tallies()).message
    assert [line[2:] for line in shown(client)] == [("1.0", "current", "old")] * 2
    assert asked(client, "SELECT tests.tally(price) AS n FROM items") == [{"n": 8}]
    assert len(folders(client)) == 2
    client = start()
    assert len(folders(client)) == 1  # nothing uses the other one
    assert asked(client, "SELECT tests.tally(price) AS n FROM items") == [{"n": 8}]


@pytest.mark.slow
def test_what_is_in_use_is_not_removed(start: Callable[[], ServerConnection]):
    client = start()
    client.install_modules(tallies())
    carried_out(client, f"{ROWS}; CREATE VIEW v AS {SUMS}; QUERY q AS {SUMS}; CREATE TABLE t AS {SUMS}")
    client.install_modules(tallies(version="2.0"))
    with pytest.raises(ModuleError, match="view v, query q still use tallies") as caught:
        client.remove_modules("Tallies")
    assert caught.value.instead == "DROP VIEW v; DROP QUERY q before it"
    carried_out(client, "DROP VIEW v; DROP QUERY q")
    assert "removed" in client.remove_modules("tallies").message
    assert folders(client) == []
    assert not [name for name in sys.modules if name.startswith("headrace_wheel_tallies")]
    with pytest.raises(SqlError):
        asked(client, SUMS)
    with pytest.raises(ModuleError, match="there is no package 'tallies'"):
        client.remove_modules("tallies")
    client = start()
    assert (sums(client, "t"), shown(client)) == ({"a": 3, "b": 5}, [])


def test_a_version_must_fit_the_views(start: Callable[[], ServerConnection]):
    client = start()
    client.install_modules(tallies())
    carried_out(client, f"{ROWS}; CREATE VIEW v AS {SUMS}")
    other = {
        "tallies/__init__.py": "import headrace as hr\nfrom headrace.modules.builtin import TimeWeightedAverage as C\n"
    }
    with pytest.raises(ModuleError, match="the view v would not fit tallies 2"):
        client.install_modules(wheel(other, {"tests.other": "tallies:C"}, version="2.0"))
    assert (len(folders(client)), sums(client, "v")) == (1, {"a": 3, "b": 5})


@pytest.mark.parametrize(
    ("files", "entries", "says"),
    [
        ({"p/__init__.py": "1 / 0"}, {"a.b": "p:C"}, "a.b of tallies 1.0 .* cannot be used: ZeroDivisionError"),
        ({"p/__init__.py": "raise SystemExit(3)"}, {"a.b": "p:C"}, "cannot be used: SystemExit: 3"),
        ({"p/__init__.py": "import nothing_like_it"}, {"a.b": "p:C"}, "No module named 'nothing_like_it'"),
        ({"p/__init__.py": ""}, {"a.b": "p:C"}, "module 'p' has no attribute 'C'"),
        ({"p/__init__.py": "class C: pass"}, {"a.b": "p:C"}, "which is no module"),
        ({"p/__init__.py": "import headrace\nclass C(headrace.Aggregate): pass"}, {"a.b": "p:C"}, "no input fields"),
        ({"p/__init__.py": "import nothing as"}, {"a.b": "p:C"}, "is no Python"),
        ({"p/__init__.py": ""}, {"sum": "p:C"}, "Headrace SQL has a module or function 'sum' already"),
        ({"p/__init__.py": ""}, {"SUM": "p:C"}, "Headrace SQL has a module or function 'SUM' already"),
        ({"p/__init__.py": ""}, {"time_weighted_avg": "p:C"}, "a package of the server's Python has"),
    ],
)  # fmt: skip
def test_a_wheel_that_cannot_be_used_leaves_nothing(
    start: Callable[[], ServerConnection], files: dict[str, str], entries: dict[str, str], says: str
):
    client = start()
    with pytest.raises(ModuleError, match=says):
        client.install_modules(wheel(files, entries))
    assert (folders(client), shown(client)) == ([], [])
    assert not [name for name in sys.modules if name.startswith("headrace_wheel_tallies")]


def test_names_of_another_package_are_taken(start: Callable[[], ServerConnection]):
    client = start()
    client.install_modules(tallies())
    with pytest.raises(ModuleError, match=r"tallies 1\.0 .* has a module or function 'tests\.tally' already"):
        client.install_modules(tallies(package="others"))
    assert len(folders(client)) == 1


def test_what_an_interrupted_install_left_is_removed(start: Callable[[], ServerConnection], monkeypatch: Any):
    client = start()
    client.install_modules(tallies())

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # as if the process died before the catalog has it
        patched.setattr(client.server.modules, "_discard", lambda _: None)
        patched.setattr(client.server.stored.packages, "install", killed)
        with pytest.raises(KeyboardInterrupt):
            client.install_modules(tallies(version="2.0"))
    folder = client.server.modules.folder
    (folder / ".headrace_wheel_half").mkdir()
    assert len(folders(client)) == 3
    client = start()
    assert len(folders(client)) == 1
    assert {line[2] for line in shown(client)} == {"1.0"}


def test_a_module_that_is_gone_stops_only_what_uses_it(start: Callable[[], ServerConnection]):
    client = start()
    client.install_modules(tallies())
    carried_out(client, f"{ROWS}; CREATE MATERIALIZED VIEW old AS {SUMS}")
    client.server.stop()
    (path,) = client.server.modules.folder.rglob("helpers.py")
    text = path.read_text()
    path.write_text("import nothing_like_it")
    client = start()
    assert "old" in client.server.unrecovered
    assert asked(client, "SELECT count(*) AS n FROM items") == [{"n": 3}]
    with pytest.raises(ModuleError, match="still use"):
        client.remove_modules("tallies")
    path.write_text(text)
    assert sums(start(), "old") == {"a": 3, "b": 5}


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_only_administrators_bring_code(start: Callable[[], ServerConnection], role: Any):
    server = start().server
    client = server.connect(Who("bob", role), "10.0.0.8")
    with pytest.raises(AccessError, match="INSTALL MODULES needs the role admin"):
        client.install_modules(tallies())
    with pytest.raises(AccessError, match="REMOVE MODULES needs the role admin"):
        client.remove_modules("tallies")
    assert [row for row in asked(client, "SHOW MODULES") if row["checksum"]] == []


def test_the_audit_log_has_installs(start: Callable[[], ServerConnection]):
    client = start()
    client.install_modules(tallies())
    client.remove_modules("tallies")
    with pytest.raises(ModuleError):
        client.install_modules(b"nothing")
    entries = client.server.access.audit.entries()
    assert [(entry.who, entry.origin, entry.outcome) for entry in entries] == [
        ("ann", "10.0.0.7", "MODULE"), ("ann", "10.0.0.7", "done"), ("ann", "10.0.0.7", "done"),
    ]  # fmt: skip
    texts = [entry.statement for entry in entries]
    assert texts[0].startswith("INSTALL MODULES sha256 ")
    assert texts[1] == "REMOVE MODULES tallies"
    assert texts[2].startswith("INSTALL MODULES tallies 1.0 sha256 ")
