"""Sources read only the columns that the query uses."""

from __future__ import annotations

from dataclasses import replace

from headrace.optimizer.rewrite import rewrite_sources
from headrace.plan.columns import columns_used
from headrace.plan.nodes import Output, Source

__all__ = ["prune_columns"]


def prune_columns(outputs: tuple[Output, ...]) -> tuple[Output, ...]:
    """Sources keep the payload columns that their readers use; a source whose diverted rows are read keeps all."""
    used = columns_used(*outputs)

    def narrow(source: Source) -> Source:
        needed = used[source.fingerprint] | ({source.shedding.by} if source.shedding is not None else set())
        kept = tuple(name for name in source.schema.names if name in needed)
        kept = kept or source.schema.names[:1]  # a table without columns would lose its number of rows
        return source if len(kept) == len(source.schema) else replace(source, read_columns=kept)

    return rewrite_sources(outputs, narrow)
