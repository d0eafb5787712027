"""One Kafka broker and one PostgreSQL server for all tests of this folder, started when the first test asks for them.

A test may stop and kill them: what it leaves down is started again for the next one. Topics, schemas and tables have
new names each time, so that tests do not see each other's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping

import psycopg
import pytest
from psycopg import sql
from tests.services.broker import Broker
from tests.services.database import Database

NewTopic = Callable[..., str]
NewTable = Callable[[str | None], str]


@pytest.fixture(scope="session")
def started() -> list[Broker | Database]:
    """What tests have asked for so far."""
    return []


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, started: list[Broker | Database]) -> Iterator[Broker]:
    """The broker; `broker.bootstrap` is its address."""
    with Broker(tmp_path_factory.mktemp("kafka")) as service:
        started.append(service)
        yield service
        started.remove(service)


@pytest.fixture(scope="session")
def database(started: list[Broker | Database]) -> Iterator[Database]:
    """The server; `database.dsn` is the address of its first database."""
    with Database() as service:
        started.append(service)
        yield service
        started.remove(service)


@pytest.fixture(autouse=True)
def _up_again(started: list[Broker | Database]) -> Iterator[None]:
    """Start what a test has left down."""
    yield
    for service in started:
        _start_again(service)


def _start_again(service: Broker | Database) -> None:
    if not service.running:
        service.kill()  # forgets a process that has ended by itself
        service.start()


@pytest.fixture
def topic(broker: Broker) -> NewTopic:
    """Makes topics: `topic()`, `topic(3)` with three partitions, `topic(config={"cleanup.policy": "compact"})`."""

    def create(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"topic-{uuid.uuid4().hex[:12]}"
        broker.create_topic(name, partitions, config)
        return name

    return create


@pytest.fixture
def schema(database: Database) -> Iterator[str]:
    """A new schema of the first database; it and what it holds are dropped after the test."""
    name = f"schema_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    yield name
    _start_again(database)  # `_up_again` comes after this
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


@pytest.fixture
def table(database: Database, schema: str) -> NewTable:
    """Names for tables: `table()` is free, `table("id int PRIMARY KEY, value text")` also creates it."""

    def create(columns: str | None = None) -> str:
        name = f"{schema}.table_{uuid.uuid4().hex[:12]}"
        if columns is not None:
            with psycopg.connect(database.dsn) as connection:
                connection.execute(f"CREATE TABLE {name} ({columns})".encode())
        return name

    return create
