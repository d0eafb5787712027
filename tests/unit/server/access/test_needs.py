"""What each statement needs, for every class of statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import AccessError
from headrace.server.access import ROUTES, STATEMENTS, check_role, needs
from headrace.server.access.needs import ROLES, SETTINGS, allows
from headrace.server.interface import Who
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import SETTINGS as KNOWN_SETTINGS
from headrace.sql.parse import parse_statement


def every(kind: type[s.Statement]) -> set[type[s.Statement]]:
    below = {found for child in kind.__subclasses__() for found in {child, *every(child)}}
    return {found for found in below if found.__module__.startswith("headrace.")}


def test_every_statement_has_a_line():
    assert every(s.Statement) == set(STATEMENTS)


def test_a_setting_that_is_listed_exists():
    assert set(SETTINGS) <= set(KNOWN_SETTINGS)


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("SELECT * FROM a", "reader"),
        ("SHOW STREAMS", "reader"),
        ("SHOW MODULES", "reader"),
        ("SUBSCRIBE a", "reader"),
        ("START QUERY a", "writer"),
        ("ALTER QUERY a SET trigger = '1 s'", "writer"),
        ("CREATE SECRET a AS 'x'", "admin"),
        ("DROP SECRET a", "admin"),
        ("SHOW CREATE a", "reader"),
        ("DESCRIBE a", "reader"),
        ("EXPLAIN SELECT * FROM a", "reader"),
        ("SET rows = 5", "reader"),
        ("SET time = TIMESTAMP '2024-01-01 00:00:00'", "writer"),
        ("SET host = spark", "admin"),
        ("SET master = 'local[2]'", "admin"),
        ("SET checkpoint = '/tmp/c'", "admin"),
        ("SET no_such_setting = 1", "admin"),
        ("VERIFY a", "writer"),
        ("QUERY q AS SELECT * FROM a", "writer"),
        ("SELECT * FROM a INTO b", "writer"),
        ("SELECT * FROM a INTO FILE ('in/out')", "writer"),
        ("SELECT * FROM a INTO FILE ('/etc/out')", "admin"),
        ("SELECT * FROM a INTO FILE (path => '/etc/out')", "admin"),
        ("SELECT * FROM a INTO CONSOLE", "admin"),
        ("CREATE SCHEMA x (a INT)", "writer"),
        ("CREATE STREAM x (a INT) SOURCE FILE ('in/a.csv')", "writer"),
        ("CREATE STREAM x (a INT) SOURCE FILE ('in/../../etc/passwd')", "admin"),
        ("CREATE STREAM x (a INT) SOURCE CSV (path => 'in/a.csv')", "writer"),
        ("CREATE STREAM x (a INT) SOURCE FILE ('s3://bucket/a.csv')", "admin"),
        ("CREATE STREAM x (a INT) SOURCE HOST ('localhost', 1234)", "admin"),
        ("CREATE STREAM x (a INT) SOURCE KAFKA ('broker', 'topic')", "admin"),
        ("CREATE STREAM x SOURCE GENERATOR ('trades')", "writer"),
        ("CREATE TABLE x (a INT)", "writer"),
        ("CREATE TABLE x SOURCE FILE ('/etc/passwd')", "admin"),
        ("CREATE VIEW x AS SELECT * FROM a", "writer"),
        ("INSERT INTO a VALUES (1)", "writer"),
        ("INSERT INTO FILE ('/etc/out') SELECT * FROM a", "admin"),
        ("UPDATE a SET b = 1", "writer"),
        ("DELETE FROM a", "writer"),
        ("TRUNCATE a", "writer"),
        ("MERGE a, b INTO c", "writer"),
        ("DROP STREAM a", "writer"),
    ],
)
def test_what_a_statement_needs(text: str, role: str, tmp_path: Path):
    def inside(place: str) -> bool:
        return "://" not in place and (tmp_path / place).resolve().is_relative_to(tmp_path / "in")

    assert needs(parse_statement(text), inside) == role


def test_an_unlisted_statement_is_for_administrators():
    class Unlisted(s.Statement):
        pass

    assert needs(Unlisted()) == "admin"


@pytest.mark.parametrize("needed", [*ROLES, None])
@pytest.mark.parametrize("role", ROLES)
def test_a_role_includes_those_below_it(role: str, needed: str | None):
    who = Who("a", role)  # type: ignore[arg-type]
    if allows(role, needed):  # type: ignore[arg-type]
        assert needed is None or ROLES.index(role) >= ROLES.index(needed)  # type: ignore[arg-type]
        check_role(who, needed, "this")  # type: ignore[arg-type]
    else:
        with pytest.raises(AccessError, match=f"this needs the role {needed}, and a is a {role}"):
            check_role(who, needed, "this")  # type: ignore[arg-type]


def test_routes_that_change_something_need_a_role():
    assert all(role is not None for (method, _), role in ROUTES.items() if method != "GET")
    assert {ROUTES[route] for route in ROUTES if "modules" in route[1] and route[0] != "GET"} == {"admin"}
