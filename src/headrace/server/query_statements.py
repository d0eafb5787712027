"""The statements of a server about its queries and secrets: START, STOP and ALTER QUERY, CREATE SECRET."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import nearest
from headrace.server.catalog import ObjectState, key_of
from headrace.server.interface import Who
from headrace.server.queries import QUERY_SETTINGS, ServedQuery
from headrace.server.retention import RETENTION, kept_of
from headrace.server.texts import TextChanges
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog
from headrace.sql.bind.context import Context
from headrace.sql.bind.values import constant
from headrace.sql.outcomes import Done, Outcome
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer, ServedObject

__all__ = ["QueryStatements"]


class QueryStatements:
    """What a session of a server does with queries that run, and with secrets."""

    server: HeadraceServer
    who: Who
    catalog: Catalog
    text: TextChanges

    def served_queries(self, context: Context, name: s.Name | None) -> list[ServedQuery]:
        """The query of a name, or all."""
        found = {served.stored.name: served.query for served in self.server.objects.values() if served.query}
        if name is None:
            return list(found.values())
        key = self.catalog.key(name.text, found)
        if key is None:
            raise context.error(
                name, f"there is no query {name.text!r}", given=name.text,
                allowed=", ".join(found) or "(none yet: QUERY q AS SELECT …)",
                instead=nearest(name.text, found) or "",
            )  # fmt: skip
        return [found[key]]

    def _served_query(self, context: Context, part: s.ServerStatement) -> ServedQuery:
        (query,) = self.served_queries(context, part.name)
        return query

    def _mark(self, query: ServedQuery, state: ObjectState) -> None:
        """Store the state of a query; of one that the running text creates, at the end of the text."""
        if query.stored.id in self.text.created:
            self.text.created[query.stored.id] = state
        else:
            self.server.stored.mark(query.stored.id, state)

    def _start_query(self, context: Context, part: s.StartQuery) -> Outcome:
        query = self._served_query(context, part)
        if part.stop:
            query.stop()
            self._mark(query, "stopped")
            self.server.query_log.note(query.name, f"stopped by {self.who.name}")
            return Done(part, f"query {query.name} was stopped; START QUERY {query.name} lets it go on")
        with context.at(part):
            query.start()
        self._mark(query, "there")
        self.server.query_log.note(query.name, f"started by {self.who.name}")
        return Done(part, f"query {query.name} runs")

    def _alter(self, context: Context, part: s.AlterQuery) -> Outcome:
        """Change a setting of a query, or how long a log keeps its rows."""
        served = self._altered(context, part)
        setting, known = part.setting.text.lower(), QUERY_SETTINGS if served.query is not None else (RETENTION,)
        if setting not in known:
            raise context.error(
                part.setting, f"a {part.kind} has no setting {setting!r}", given=setting, allowed=", ".join(known),
                instead=nearest(setting, known) or "",
            )  # fmt: skip
        value = to_sql(part.value) if isinstance(part.value, s.Duration) else constant(context, part.value)
        if setting == RETENTION:
            return self._alter_retention(context, part, served, value)
        assert served.query is not None
        return self._alter_query(context, part, served.query, value)

    def _altered(self, context: Context, part: s.AlterQuery) -> ServedObject:
        """The object that a statement names, which is of the kind that it names."""
        if part.kind == "query":
            query = self._served_query(context, part)
            return self.server.objects[key_of("query", query.name)]
        found = {one.stored.name: one for one in self.server.objects.values() if one.log is not None}
        key = self.catalog.key(part.name.text, found)
        if key is None or found[key].stored.kind != part.kind:
            right = [name for name, one in found.items() if one.stored.kind == part.kind]
            other = "" if key is None else f"ALTER {found[key].stored.kind.upper()} {to_sql(s.Name(key))} …"
            raise context.error(
                part.name, f"there is no {part.kind} {part.name.text!r} whose rows the server keeps",
                given=part.name.text, allowed=", ".join(right) or "(none)",
                instead=other or nearest(part.name.text, right) or "",
            )  # fmt: skip
        return found[key]

    def _alter_retention(self, context: Context, part: s.AlterQuery, served: ServedObject, value: Any) -> Outcome:
        with context.at(part.value):
            if value is not None:
                kept_of(value)
        settings = {**served.settings, RETENTION: value}
        if value is None:
            del settings[RETENTION]
        served.change_settings(settings)
        self.server.stored.set(served.stored.id, json.dumps(settings))
        if served.query is not None:
            self.server.query_log.note(served.stored.name, f"{RETENTION} = {value}, set by {self.who.name}")
        return Done(part, f"{part.kind} {served.stored.name}: {RETENTION} = {value}")

    def _alter_query(self, context: Context, part: s.AlterQuery, query: ServedQuery, value: Any) -> Outcome:
        setting = part.setting.text.lower()
        before, was_running = dict(query.settings), query.state == "running"
        query.settings[setting] = value
        if value is None:
            del query.settings[setting]
        with context.at(part):
            try:
                query.stop()
                query.start()
            except BaseException:
                query.settings = before
                if was_running:
                    query.start_if_possible()
                raise
        if not was_running:
            query.stop()
        self.server.stored.set(query.stored.id, json.dumps(query.settings))
        self.server.query_log.note(query.name, f"{setting} = {value}, set by {self.who.name}")
        return Done(part, f"query {query.name}: {setting} = {value}")

    def _create_secret(self, context: Context, part: s.CreateSecret) -> Outcome:
        secrets, name = self.server.access.secrets, part.name.text
        with context.at(part.name):
            if part.from_environment:
                secrets.refer(name, part.value, owner=self.who.name)
            else:
                secrets.store(name, part.value, owner=self.who.name)
        return Done(part, f"secret {name}")

    query_statements: ClassVar[Mapping[type[s.Statement], Callable[[Any, Context, Any], Outcome]]] = {
        s.StartQuery: _start_query,
        s.AlterQuery: _alter,
        s.CreateSecret: _create_secret,
    }
