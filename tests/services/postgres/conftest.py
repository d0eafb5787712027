"""Sources of changes, and statements that change tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psycopg
import pytest
from tests.services.database import Database
from tests.services.postgres.reader import Reader

from headrace.adapters.postgres import PostgresChanges
from headrace.io.adapter import patiently


@pytest.fixture
def sources(database: Database) -> Iterator[Callable[..., Reader]]:
    """Makes readers of tables; their slots are dropped after the test."""
    made: list[PostgresChanges] = []

    def make(table: str, **options: Any) -> Reader:
        made.append(PostgresChanges.of(database.dsn, table, **options))
        return Reader(made[-1])

    yield make
    if not database.running:
        database.start()
    for source in made:
        patiently(source.drop, "test")
        source.close()


@pytest.fixture
def run(database: Database) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Runs statements, each its own transaction; several in one text are one."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:

        def execute(statement: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

        yield execute
