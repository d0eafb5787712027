"""The servers that some rows of the grid need, each started once in a process, when the first row asks for it.

Queries reach them through proxies (`TcpProxy`), on which their calls fail, are slow, or lose their answers. What a row
has on the servers follows from a mark, which is new each time its input is written. The mark and the addresses stand in
the file `place.json` of the row's folder, so that another process finds the same.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fixtures.s3_server import BUCKET, S3Server, serve
from tests.fixtures.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from tests.services.broker import Broker
    from tests.services.database import Database

__all__ = ["Place", "Servers", "place_of", "place_with", "servers"]


@dataclass(frozen=True)
class Place:
    """What a row has on the servers, and how they are reached: through the proxies, and directly."""

    mark: str
    bootstrap: str = ""
    dsn: str = ""
    #: The variables of the environment that say where the object store is.
    environment: dict[str, str] | None = None

    def topic(self, name: str) -> str:
        return f"{self.mark}-{name}"

    def table(self, name: str) -> str:
        return f"{self.mark}.{name}"

    def url(self, name: str) -> str:
        """A place on the object store, which the environment says how to reach from now on."""
        os.environ.update(self.environment or {})
        return f"s3://{BUCKET}/{self.mark}/{name}"


class Servers:
    """The servers of this process."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._given: dict[str, object] = {}
        Finalize(None, self._stack.close, exitpriority=10)

    def use(self, **given: object) -> None:
        """Use servers that run already: `broker`, `database`, `objects`."""
        self._given |= given

    def _started(self, name: str, start: Callable[[], object]) -> object:
        if name not in self._given:
            self._given[name] = start()
        return self._given[name]

    @property
    def broker(self) -> Broker:
        from tests.services.broker import Broker  # an extra

        folder = self._stack.enter_context
        found = self._started("broker", lambda: folder(Broker(Path(folder(tempfile.TemporaryDirectory())) / "kafka")))
        assert isinstance(found, Broker)
        return found

    @property
    def database(self) -> Database:
        from tests.services.database import Database  # an extra

        found = self._started("database", lambda: self._stack.enter_context(Database()))
        assert isinstance(found, Database)
        return found

    @property
    def objects(self) -> S3Server:
        folder = self._stack.enter_context
        found = self._started("objects", lambda: folder(serve(Path(folder(tempfile.TemporaryDirectory())))))
        assert isinstance(found, S3Server)
        return found

    @cache  # noqa: B019 - there is one
    def proxy(self, target: int, port: int | None = None) -> TcpProxy:
        """The proxy before a port."""
        return TcpProxy(target, port)

    def bootstrap(self) -> str:
        self.proxy(self.broker.before_proxy, self.broker.proxy)
        return self.broker.bootstrap_by_proxy

    def dsn(self) -> str:
        return self.database.dsn_of("postgres", self.proxy(self.database.port).port)

    def environment(self) -> dict[str, str]:
        port = int(self.objects.endpoint.rpartition(":")[2])
        return {
            **self.objects.environment,
            "HEADRACE_CACHE_MB": "200",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.proxy(port).port}",
        }


servers = Servers()


def place_with(folder: Path, *needs: str) -> Place:
    """A new place with these services, for a row's folder; what the last one had on the servers is removed."""
    mark, file = f"grid{uuid.uuid4().hex[:12]}", folder / "place.json"
    if file.exists():
        _remove(place_of(folder))
    place = Place(
        mark,
        servers.bootstrap() if "broker" in needs else "",
        servers.dsn() if "database" in needs else "",
        servers.environment() if "objects" in needs else None,
    )
    if place.dsn:
        execute(f"CREATE SCHEMA {mark}")
    file.write_text(json.dumps(asdict(place)))
    return place


def place_of(folder: Path) -> Place:
    """The place of a row's folder."""
    return Place(**json.loads((folder / "place.json").read_text()))


def execute(*statements: str) -> None:
    """Run statements on the database, each in a transaction of its own."""
    import psycopg  # an extra

    with psycopg.connect(servers.database.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _remove(place: Place) -> None:
    if place.bootstrap:
        names = [name for name in (place.topic("in"), place.topic("out")) if name in servers.broker.topics()]
        if names:
            servers.broker.admin.delete_topics(names)
    if place.dsn:
        slots = f"pg_replication_slots WHERE slot_name = '{place.mark}' AND NOT active"
        execute(f"SELECT pg_drop_replication_slot(slot_name) FROM {slots}",
                f"DROP PUBLICATION IF EXISTS {place.mark}", f"DROP SCHEMA {place.mark} CASCADE")  # fmt: skip
