"""`LIFETIME CHANGES`: rows that are changes of a table, as `hr.read_changes` reads them.

The columns of the statement are those of the table. The log has more: the column of the operation, and those that the
encoding or the source adds. The clauses can name them, and they are read where they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.api.keyed_changes import read_changes
from headrace.api.stream import Stream
from headrace.expr import Expr
from headrace.io.adapter import SourceAdapter
from headrace.io.keyed_changes import encoding_of
from headrace.plan.policies import ProgressPolicy
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.catalog import Catalog
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.scope import Relation, Scope
from headrace.sql.bind.values import unit_of_type

__all__ = ["LogMaker", "changes"]

#: Makes the place of a log, with these columns beside those of the statement.
LogMaker = Callable[[Sequence[Field]], Any]
_SECOND = 1_000_000


def changes(
    context: Context,
    catalog: Catalog,
    part: s.CreateStream,
    schema: Schema | None,
    log: LogMaker,
    progress: Callable[[int], ProgressPolicy | None],
) -> Stream:
    """The stream of a CREATE STREAM whose rows are changes; `progress` depends on the unit of its time."""
    assert part.source is not None
    clause = part.lifetime if isinstance(part.lifetime, s.ChangesLifetime) else s.ChangesLifetime(at=part.source.at)
    place = log(())
    encoding: Any = clause.encoding or (place.change_encoding if isinstance(place, SourceAdapter) else "rows")
    with context.at(clause):
        added = _added(clause, encoding)
    own = _own_columns(place, encoding, schema)
    every = Schema((*own, *(field for field in added if field.name not in own)))
    scope = Scope(context, (Relation(part.name.text, {name: name for name in every.names}),))
    expressions = Expressions(context, scope, every, catalog.known)
    time = None if clause.time is None else expressions.bind(clause.time)
    deletes = None if clause.deletes is None else expressions.predicate(clause.deletes)
    if isinstance(place, SourceAdapter) and place.table_log is None:
        # The operation is always read; what else the encoding has, where it is named.
        used = {added[0].name, *_columns(time), *_columns(deletes)} if added else set()
        missing = [field for field in added if field.name in used and field.name not in own]
        place = log(missing) if missing else place
    with context.at(clause):
        return read_changes(
            place,
            schema,
            key=[scope.column(s.Column(name, at=name.at)) for name in clause.key],
            encoding=encoding,
            op=None if clause.operation is None else clause.operation.text,
            at=time,
            deletes=deletes,
            progress=progress(_SECOND if time is None else unit_of_type(time.type(every))),
            bad_rows=part.policy.bad_rows or "divert",  # type: ignore[arg-type] # the grammar has only these
        )


def _added(clause: s.ChangesLifetime, encoding: str) -> list[Field]:
    """The columns that the encoding adds to those of the table: the operation, then others."""
    how = encoding_of(encoding)
    op = clause.operation.text if clause.operation is not None else how.op
    return [] if op is None else [Field(op, Type.STRING), *how.extra]


def _own_columns(place: Any, encoding: str, schema: Schema | None) -> Schema:
    """The columns that the place has, or that are declared."""
    read = place.as_log(encoding).schema if isinstance(place, SourceAdapter) else Schema(())
    return Schema((*(schema or ()), *(field for field in read if schema is None or field.name not in schema)))


def _columns(expr: Expr | None) -> set[str]:
    return set() if expr is None else set(expr.columns())
