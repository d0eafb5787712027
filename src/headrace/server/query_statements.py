"""The statements of a server about its queries and secrets: START, STOP and ALTER QUERY, CREATE SECRET."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import nearest
from headrace.server.interface import Who
from headrace.server.queries import QUERY_SETTINGS, ServedQuery
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog
from headrace.sql.bind.context import Context
from headrace.sql.bind.values import constant
from headrace.sql.outcomes import Done, Outcome
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer

__all__ = ["QueryStatements"]


class QueryStatements:
    """What a session of a server does with queries that run, and with secrets."""

    server: HeadraceServer
    who: Who
    catalog: Catalog

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

    def _start_query(self, context: Context, part: s.StartQuery) -> Outcome:
        query = self._served_query(context, part)
        if part.stop:
            query.stop()
            self.server.stored.mark(query.stored.id, "stopped")
            self.server.query_log.note(query.name, f"stopped by {self.who.name}")
            return Done(part, f"query {query.name} was stopped; START QUERY {query.name} lets it go on")
        with context.at(part):
            query.start()
        self.server.stored.mark(query.stored.id, "there")
        self.server.query_log.note(query.name, f"started by {self.who.name}")
        return Done(part, f"query {query.name} runs")

    def _alter_query(self, context: Context, part: s.AlterQuery) -> Outcome:
        query = self._served_query(context, part)
        setting = part.setting.text.lower()
        if setting not in QUERY_SETTINGS:
            raise context.error(
                part.setting, f"a query has no setting {setting!r}", given=setting, allowed=", ".join(QUERY_SETTINGS),
                instead=nearest(setting, QUERY_SETTINGS) or "",
            )  # fmt: skip
        value = to_sql(part.value) if isinstance(part.value, s.Duration) else constant(context, part.value)
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
        s.AlterQuery: _alter_query,
        s.CreateSecret: _create_secret,
    }
