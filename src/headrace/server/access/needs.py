"""What statements and routes need: a table of roles over the classes of statements, and one over the routes.

A reader looks, a writer changes what the server holds, and an administrator changes what the server is and reaches out
of it: tokens, secrets, modules, settings of the server, and places outside the roots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.errors import AccessError
from headrace.server.interface import Role, Who
from headrace.sql import syntax as s
from headrace.sql.syntax import tables as changing

__all__ = ["ROLES", "ROUTES", "SETTINGS", "STATEMENTS", "allows", "check_role", "needs"]

#: From the one that may do least.
ROLES: tuple[Role, ...] = ("reader", "writer", "admin")

#: The role that a statement needs at least. What it contains may need more: see `needs`.
STATEMENTS: Mapping[type[s.Statement], Role] = {
    s.Ask: "reader",
    s.Show: "reader",
    s.ShowCreate: "reader",
    s.Describe: "reader",
    s.Explain: "reader",
    s.Set: "reader",
    s.Verify: "writer",
    s.CreateSchema: "writer",
    s.CreateStream: "writer",
    s.CreateTable: "writer",
    s.CreateView: "writer",
    s.CreateAggregate: "writer",
    s.Drop: "writer",
    s.Insert: "writer",
    s.Merge: "writer",
    s.Split: "writer",
    changing.ChangeTable: "writer",
    changing.InsertValues: "writer",
    changing.InsertSelect: "writer",
    changing.UpdateTable: "writer",
    changing.DeleteFrom: "writer",
    changing.Truncate: "writer",
    s.ServerStatement: "writer",
    s.StartQuery: "writer",
    s.AlterQuery: "writer",
    s.Subscribe: "reader",
    s.CreateSecret: "admin",
}

#: The settings that others than administrators may SET, for their own connection.
SETTINGS: Mapping[str, Role] = {
    "emit": "reader",
    "tick": "reader",
    "rows": "reader",
    "view": "reader",
    "timeout": "reader",
    "record": "reader",
    "time": "writer",
    "on_error": "writer",
    "buckets": "writer",
    "batch_rows": "writer",
}

#: The role that a route needs; None if it is open to all. `/sql` checks each statement, too.
ROUTES: Mapping[tuple[str, str], Role | None] = {
    ("GET", "/health"): None,
    ("GET", "/ready"): None,
    ("GET", "/openapi.json"): None,
    ("GET", "/docs"): None,
    ("GET", "/"): None,
    ("GET", "/ui/"): None,
    ("GET", "/ui/{name}"): None,
    ("GET", "/ui/data/about"): "reader",
    ("POST", "/ui/data/check"): "reader",
    ("GET", "/ui/data/queries"): "reader",
    ("GET", "/ui/data/query"): "reader",
    ("GET", "/ui/data/query/plan"): "reader",
    ("GET", "/ui/data/query/checkpoint"): "reader",
    ("POST", "/ui/data/traces"): "reader",
    ("GET", "/ui/data/traces/{name}/{part}"): "reader",
    ("GET", "/metrics"): "reader",
    ("GET", "/queries"): "reader",
    ("GET", "/queries/{name}/batches"): "reader",
    ("GET", "/queries/{name}/diverted"): "reader",
    ("GET", "/queries/{name}/log"): "reader",
    ("GET", "/queries/{name}/rates"): "reader",
    ("GET", "/queries/{name}/state"): "reader",
    ("GET", "/queries/{name}/trace"): "reader",
    ("GET", "/streams"): "reader",
    ("GET", "/modules"): "reader",
    ("POST", "/modules"): "admin",
    ("DELETE", "/modules/{name}"): "admin",
    ("GET", "/subscribe/{name}"): "reader",
    ("POST", "/sql"): "reader",
    ("POST", "/streams/{name}/rows"): "writer",
}

#: Sources and sinks that are files; of all others only `GENERATOR` reads nothing.
_FILES = frozenset({"FILE", "CSV", "JSON", "PARQUET", "EVENTS"})
_NOTHING = frozenset({"GENERATOR"})


def allows(role: Role, needed: Role | None) -> bool:
    """Whether a role is enough."""
    return needed is None or ROLES.index(role) >= ROLES.index(needed)


def needs(statement: s.Statement, inside: Callable[[str], bool] = lambda _: False) -> Role:
    """The role that a statement needs; `inside` says whether a path or URL is under the roots of the server.

    >>> from headrace.sql.parse import parse_statement
    >>> [needs(parse_statement(text)) for text in ("SELECT * FROM a", "QUERY q AS SELECT * FROM a", "SET host = spark")]
    ['reader', 'writer', 'admin']
    """
    found = {STATEMENTS.get(type(statement), "admin")}
    if isinstance(statement, s.Set):
        found.add(SETTINGS.get(statement.name.text.lower(), "admin"))
    if isinstance(statement, s.Ask) and (statement.name is not None or statement.query.into is not None):
        found.add("writer")
    if isinstance(statement, s.Drop) and statement.kind == "secret":
        found.add("admin")
    found |= {_place_needs(part, inside) for part in _parts(statement) if isinstance(part, s.SourceClause | s.Into)}
    return max(found, key=ROLES.index)


def check_role(who: Who, needed: Role | None, what: str) -> None:
    """Raise `AccessError` unless the client has that role."""
    if not allows(who.role, needed):
        raise AccessError(
            f"{what} needs the role {needed}, and {who.name} is a {who.role}",
            given=who.role,
            allowed=" or ".join(role for role in ROLES if allows(role, needed)),
            instead=f"a token that `headrace token create --role {needed}` makes",
        )


def _place_needs(part: s.SourceClause | s.Into, inside: Callable[[str], bool]) -> Role:
    kind = part.kind.text.upper()
    if kind in _NOTHING:
        return "writer"
    named = [argument.value for argument in part.named if argument.name.text.lower() == "path"]
    path = next(iter([*part.arguments, *named]), None)
    return "writer" if kind in _FILES and isinstance(path, s.Text) and inside(path.value) else "admin"


def _parts(statement: s.Part) -> Iterator[s.Part]:
    waiting = [statement]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += part.parts()
