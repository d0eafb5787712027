"""The statements of a session about views, and about what exists: CREATE VIEW, DROP, SHOW CREATE, DESCRIBE.

A view is bound where it is used, over the catalog as it is then; what a view reads cannot be dropped before the view. A
materialized view is bound once, and its answer kept up to date (`api/materialized.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from headrace.api.materialized import materialized
from headrace.api.stream import Stream
from headrace.errors import nearest
from headrace.schema import Schema
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog, Dependent, LiveEntry, ViewEntry
from headrace.sql.bind.context import Context
from headrace.sql.bind.queries import Queries
from headrace.sql.bind.relations import plain
from headrace.sql.bind.stored import is_relation, parts_of
from headrace.sql.outcomes import Done, Outcome, ShownTable, Words
from headrace.sql.printer import to_sql

__all__ = ["ViewStatements", "names_read"]


def names_read(part: s.Part) -> frozenset[str]:
    """The names in FROM of a part, and of streams that it merges or copies, in lower case."""
    parts = parts_of(part)
    found = {one.stream.text for one in parts if isinstance(one, s.FromItem) and isinstance(one.stream, s.Name)}
    found |= {name.text for one in parts if isinstance(one, s.Merge) for name in one.streams}
    found |= {one.stream.text for one in parts if isinstance(one, s.DivertedFrom)}
    if isinstance(part, s.CreateStream) and isinstance(part.derived, s.Name):
        found.add(part.derived.text)
    return frozenset(name.lower() for name in found)


class ViewStatements:
    """What a session does with views, and with what exists."""

    catalog: Catalog
    options: Callable[..., dict[str, Any]]
    _derived: Callable[..., Stream]

    def _create_view(self, context: Context, part: s.CreateView) -> Outcome:
        name, tables = part.name, self.catalog.tables
        old = tables.get(self.catalog.key(name.text, tables) or "")
        replaces = part.replace and isinstance(old, ViewEntry) and old.materialized is None
        if not replaces:
            self.catalog.free(context, name, among={**self.catalog.streams, **tables})
        if part.query.into is not None:
            raise context.error(part.query.into, "a view gives its answers to those who read it", instead="no INTO")
        key = old.name if replaces and old is not None else name.text
        if replaces:
            self._check_replaced(context, part, key)
        bound = Queries(context, self.catalog).query(part.query)
        entry = ViewEntry(
            key,
            plain(bound).schema,
            lambda: Queries(context, self.catalog).query(part.query),
            to_sql(part),
            is_relation(part.query, self.catalog),
            names_read(part.query),
            materialized(bound, name=key) if part.materialized else None,
        )
        tables[key] = entry
        if replaces:
            self._check_readers(context, part, entry, old)
        return Done(part, f"{entry.kind} {key} ({entry.schema})")

    def _check_replaced(self, context: Context, part: s.CreateView, key: str) -> None:
        """Refuse to replace a view that would read itself, or whose old query something has taken over."""
        waiting, readers = [key], set[str]()
        while waiting:
            for reader in self.catalog.dependents(waiting.pop()):
                name = reader.name
                if reader.kind != "view":
                    raise context.error(
                        part.name,
                        f"{reader} has the old query of {key}, and would keep it",
                        given=key,
                        instead=f"DROP {reader} before it",
                    )
                if name.lower() not in readers:
                    readers.add(name.lower())
                    waiting.append(name)
        if names_read(part.query) & {key.lower(), *readers}:
            raise context.error(part.name, f"the view {key} would read itself", instead="WITH RECURSIVE, for loops")

    def _check_readers(self, context: Context, part: s.CreateView, entry: ViewEntry, old: Any) -> None:
        """Refuse a new query of a view if views over it could not be bound any more."""
        for view in self.catalog.views():
            if view is entry or view.materialized is not None:
                continue
            try:
                view.bind()
            except Exception as error:
                self.catalog.tables[entry.name] = old
                raise context.error(
                    part.name,
                    f"the view {view.name} reads {entry.name}, and would not fit the new query: {error}",
                    instead=f"DROP VIEW {view.name} before it",
                ) from error

    def _drop(self, context: Context, part: s.Drop) -> Done:
        among = self._dropped_from(part.kind)
        key = self.catalog.key(part.name.text, among)
        if key is None:
            if part.if_exists:
                return Done(part, f"there is no {part.kind} {part.name.text}")
            raise self._no_such(context, part, among)
        readers = self.catalog.dependents(key) if part.kind not in ("schema", "aggregate") else []
        if part.cascade:
            return self._drop_all(context, part, readers)
        if readers:
            all_at_once = to_sql(replace(part, cascade=True))
            raise context.error(
                part.name,
                f"{', '.join(map(str, readers))} still {'reads' if len(readers) == 1 else 'read'} {key}",
                given=to_sql(part),
                instead="; ".join(f"DROP {reader}" for reader in readers) + f" before it, or {all_at_once}",
            )
        entry = among[key]
        if isinstance(entry, ViewEntry) and entry.materialized is not None:
            entry.materialized.stop()
        whole = self.catalog.tables if part.kind in ("table", "view", "materialized view") else among
        del whole[key]
        if part.kind == "query":
            self.catalog.answers.pop(key, None)
            self.catalog.delivered.pop(key, None)
        if part.kind == "aggregate":
            del self.catalog.own[key]
        return Done(part, f"{part.kind} {key} dropped")

    def _drop_all(self, context: Context, part: s.Drop, readers: Sequence[Dependent]) -> Done:
        """Drop what reads something, then it."""
        dropped = []
        for kind, name in readers:
            if self.catalog.key(name, self._dropped_from(kind)) is not None:  # another reader may have gone on
                one = s.Drop(kind, s.Name(name, at=part.name.at), cascade=True, at=part.at)
                dropped.append(self._drop(context, one).message)
        whole = self._drop(context, replace(part, cascade=False))
        return Done(part, "; ".join((*dropped, whole.message)))

    def _dropped_from(self, kind: str) -> dict[str, Any]:
        """What DROP can drop, by kind."""
        tables = self.catalog.tables
        if kind in ("view", "materialized view"):
            return {key: entry for key, entry in tables.items() if isinstance(entry, ViewEntry) and entry.kind == kind}
        if kind == "table":
            return {key: entry for key, entry in tables.items() if not isinstance(entry, ViewEntry)}
        found: dict[str, Any] = self.catalog.queries if kind == "query" else getattr(self.catalog, f"{kind}s")
        return found

    def _no_such(self, context: Context, part: s.Drop, among: Mapping[str, Any]) -> Exception:
        every = {**self.catalog.schemas, **self.catalog.tables, **self.catalog.streams}
        other = self.catalog.key(part.name.text, every)
        instead = f"DROP {self.catalog.kind_of(every[other])} {other}" if other is not None else ""
        return context.error(
            part.name,
            f"there is no {part.kind} {part.name.text!r}",
            given=part.name.text,
            allowed=", ".join(among) or "(none)",
            instead=instead or nearest(part.name.text, among) or "",
        )

    def _show_create(self, context: Context, part: s.ShowCreate) -> Outcome:
        catalog = self.catalog
        kinds = dict.fromkeys(catalog.queries, "query")
        texts = {name: f"QUERY {name} AS\n{text}" for name, text in catalog.queries.items()}
        texts |= {name: to_sql(statement) for name, statement in catalog.aggregates.items()}
        texts |= {name: f"CREATE SCHEMA {name} ({schema})" for name, schema in catalog.schemas.items()}
        texts |= {name: entry.text for name, entry in (*catalog.tables.items(), *catalog.streams.items())}
        entries = {**catalog.aggregates, **catalog.schemas, **catalog.tables, **catalog.streams}
        kinds |= {name: catalog.kind_of(entry).lower() for name, entry in entries.items()}
        key = catalog.key(part.name.text, texts)
        if key is None:
            raise context.error(
                part.name,
                f"there is no {part.name.text!r}",
                given=part.name.text,
                allowed=", ".join(texts) or "(nothing yet)",
                instead=nearest(part.name.text, texts) or "",
            )
        if part.kind not in (None, kinds[key]):
            raise context.error(
                part.name,
                f"{key} is no {part.kind}",
                given=to_sql(part),
                allowed=f"its kind, {kinds[key].upper()}, or none",
                instead=f"SHOW CREATE {kinds[key].upper()} {to_sql(part.name)}",
            )
        return Words(part, f"{texts[key]};" if texts[key] else f"-- {key} comes from Python")

    def _describe(self, context: Context, part: s.Describe) -> Outcome:
        target = part.target
        if isinstance(target, s.Query):
            return _columns_of(part, plain(self._derived(context, target)).schema)
        entry = self.catalog.tables.get(self.catalog.key(target.text, self.catalog.tables) or "")
        if isinstance(entry, LiveEntry):
            return _table_columns(part, entry)
        text = self.catalog.queries.get(self.catalog.key(target.text, self.catalog.queries) or "")
        known = {**self.catalog.schemas, **self.catalog.streams, **self.catalog.tables}
        if text is not None and self.catalog.key(target.text, known) is None:
            return _columns_of(part, plain(self._asked(text)).schema)
        return _columns_of(part, self.catalog.schema(context, target))

    def _asked(self, text: str) -> Stream:
        """The stream of a query of this session, by its text."""
        from headrace.sql.parse import parse_statement  # it imports the builder, which imports this module's syntax

        statement = parse_statement(text)
        assert isinstance(statement, s.Ask)
        return Queries(Context(text), self.catalog).query(statement.query)

    view_statements: ClassVar[Mapping[type[s.Statement], Callable[[Any, Context, Any], Outcome]]] = {
        s.CreateView: _create_view,
        s.Drop: _drop,
        s.ShowCreate: _show_create,
        s.Describe: _describe,
    }


def _columns_of(part: s.Describe, schema: Schema) -> ShownTable:
    return ShownTable(part, ("column", "type"), tuple((field.name, field.type.value) for field in schema))


def _table_columns(part: s.Describe, entry: LiveEntry) -> ShownTable:
    """The columns of a table with their rules."""
    live = entry.table.live

    def rule(name: str) -> str:
        words = ["PRIMARY KEY"] if name in live.key else ["NOT NULL"] if name in live.required else []
        default = live.default(name).as_py() if name in live.defaults else None
        clocked = name in live.defaults and bool(live.defaults[name].columns())
        shown = "the time of the INSERT" if clocked else repr(default)
        return " ".join([*words, *([] if default is None else [f"DEFAULT {shown}"])])

    rows = tuple((field.name, field.type.value, rule(field.name)) for field in entry.schema)
    if not any(rules for _, _, rules in rows):
        return _columns_of(part, entry.schema)
    return ShownTable(part, ("column", "type", "rules"), rows)
