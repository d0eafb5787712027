"""DROP on a server: nothing goes that a statement of the catalog still needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.server.catalog import key_of
from headrace.server.texts import TextChanges
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog
from headrace.sql.bind.context import Context
from headrace.sql.bind.stored import parts_of
from headrace.sql.outcomes import Done, Outcome
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.view_statements import ViewStatements

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer

__all__ = ["DropStatements"]


class DropStatements(ViewStatements):
    """What a session of a server does to drop something."""

    server: HeadraceServer
    catalog: Catalog
    text: TextChanges

    def _drop(self, context: Context, part: s.Drop) -> Done:
        if key_of(part.kind, part.name.text) in self.server.unrecovered:
            self.server.drop(part.kind, part.name.text, self.text)
            return Done(part, f"{part.kind} {part.name.text} dropped")
        self._check_users(context, part)
        if part.kind == "secret":
            with context.at(part.name):
                self.server.access.secrets.drop(part.name.text)
            return Done(part, f"secret {part.name.text} dropped")
        if part.kind == "query":
            self._check_query_readers(context, part)
        outcome = super()._drop(context, part)
        if part.kind == "query":
            self.catalog.answers.pop(self.catalog.key(part.name.text, self.catalog.answers) or "", None)
        self._drop_unnamed()
        return outcome

    def _check_users(self, context: Context, part: s.Drop) -> None:
        """Refuse to drop what a statement of the catalog names, and needs at the next start."""
        users = [
            served.stored
            for served in list(self.server.objects.values())
            if any(_uses(one, part) for whole in parse(served.stored.text).statements for one in parts_of(whole))
        ]
        if users:
            names = [to_sql(s.Drop(user.kind, s.Name(user.name))) for user in users]
            raise context.error(
                part.name, f"{', '.join(name.removeprefix('DROP ') for name in names)} still needs {part.name.text}",
                given=to_sql(part), instead=f"{'; '.join(names)} before it",
            )  # fmt: skip

    def _check_query_readers(self, context: Context, part: s.Drop) -> None:
        readers = self.catalog.dependents(part.name.text)
        if readers and not part.cascade:
            raise context.error(
                part.name, f"{', '.join(map(str, readers))} still reads {part.name.text}", given=to_sql(part),
                instead=f"{to_sql(replace(part, cascade=True))}",
            )  # fmt: skip

    def _drop_unnamed(self) -> None:
        """Drop what the catalog names no more."""
        catalog = self.catalog
        named = {key_of("stream", name) for name in (*catalog.streams, *catalog.tables, *catalog.queries)}
        named |= {key_of("schema", name) for name in catalog.schemas}
        named |= {key_of("aggregate", name) for name in catalog.aggregates}
        for key, served in reversed(list(self.server.objects.items())):
            if key not in named:
                self.server.drop(served.stored.kind, served.stored.name, self.text)

    drop_statements: ClassVar[Mapping[type[s.Statement], Callable[[Any, Context, Any], Outcome]]] = {s.Drop: _drop}


def _uses(part: s.Part, drop: s.Drop) -> bool:
    """Whether a part of a statement has columns like what is dropped, calls it, or is the secret's value."""
    name = drop.name.text.lower()
    if isinstance(part, s.CreateStream) and part.like is not None:
        return (
            drop.kind in ("schema", "stream", "table", "view", "materialized view") and part.like.text.lower() == name
        )
    if not isinstance(part, s.Call):
        return False
    called = ".".join(one.text.lower() for one in part.name)
    if drop.kind == "secret":
        return called == "secret" and any(
            isinstance(one, s.Text) and one.value == drop.name.text for one in part.arguments
        )
    return drop.kind == "aggregate" and called == name
