"""Clients that change other things: orders with their own retractions and promises, a table, and queries."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import psycopg
from tests.services.server.soak.client import LOST, Shared, SoakClient
from tests.services.server.soak.folding import History, ticks
from tests.services.server.soak.rows import BEGIN, END, instant

import headrace as hr
from headrace.errors import HeadraceError

__all__ = ["ConnectCreator", "OrderWriter", "PsqlWriter", "PsycopgCreator"]

_SECONDS = 60.0


class OrderWriter(SoakClient):
    """Writes physical events: orders that begin, whose ends are corrected, and promises."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        #: Of each order: from, to, item, amount.
        self.orders: dict[int, tuple[datetime, datetime, str, int]] = {}
        self._now, self._number = BEGIN, 0
        self._http = self.connections.enter_context(httpx.Client(base_url=shared.server.url, timeout=_SECONDS))

    def work(self) -> None:
        while not self.shared.stopping.is_set():
            self._send(self._events())
            self.pause(0.4)
        self.finished = True

    def end(self) -> None:
        """Write the last order, and promise that nothing follows."""
        later = self._now + timedelta(hours=2)
        last = self._order(later, later + timedelta(seconds=10), END, 1)
        self._send([last, {"kind": "cti", "le": instant(later + timedelta(hours=1))}])

    def _events(self) -> list[dict[str, Any]]:
        self._now += timedelta(seconds=10)
        found = []
        for _ in range(self.chance.randrange(1, 8)):
            begin = self._now + timedelta(seconds=self.chance.randrange(60))
            end = begin + timedelta(seconds=self.chance.randrange(1, 120))
            found.append(self._order(begin, end, self.chance.choice("xyz"), self.chance.randrange(1, 9)))
        found += self._corrections()
        if self.chance.random() < 0.5:
            found.append({"kind": "cti", "le": instant(self._now)})
        return found

    def _order(self, begin: datetime, end: datetime, item: str, amount: int) -> dict[str, Any]:
        number = len(self.orders)
        self.orders[number] = begin, end, item, amount
        return _event("insert", number, begin, end, item, amount)

    def _corrections(self) -> list[dict[str, Any]]:
        """Orders that end at another time, or never began; neither is before the promise."""
        found = []
        open_orders = [number for number, (_, end, *_) in self.orders.items() if end > self._now + timedelta(minutes=1)]
        for number in self.chance.sample(open_orders, min(2, len(open_orders))):
            begin, end, item, amount = self.orders[number]
            new = max(begin, self._now) + timedelta(seconds=self.chance.randrange(1, 90))
            if begin > self._now and self.chance.random() < 0.3:
                new = begin
            if new != end:
                found.append(_event("retract", number, begin, end, item, amount) | {"re_new": instant(new)})
                self.orders[number] = begin, new, item, amount
        return found

    def _send(self, events: list[dict[str, Any]]) -> None:
        self._number += 1
        headers = {"content-type": "application/json", "idempotency-key": f"orders/{self._number}"}
        while True:
            try:
                reply = self._http.post("/streams/orders/rows", content=json.dumps(events), headers=headers)
            except LOST:
                self.lost()
                self.shared.count("repeats after a disconnect")
                continue
            if reply.status_code == 503:
                self.lost()
                continue
            assert reply.status_code == 200, reply.text
            assert reply.json()["rows"] == len(events)
            self.shared.count("inserts acknowledged")
            return

    def expected(self) -> History:
        """The history of `stock`: for each item, what holds between two moments at which one of its orders changes."""
        found: History = Counter()
        for wanted in {item for _, _, item, _ in self.orders.values()}:
            own = [(b, e, amount) for b, e, item, amount in self.orders.values() if item == wanted and e > b]
            times = sorted({time for begin, end, _ in own for time in (begin, end)})
            for begin, end in pairwise(times):
                held = [amount for b, e, amount in own if b <= begin and end <= e]
                if held:
                    found[(ticks(begin), ticks(end), wanted, sum(held), len(held))] += 1
        return found


def _event(kind: str, number: int, begin: datetime, end: datetime, item: str, amount: int) -> dict[str, Any]:
    times = {"le": instant(begin), "re": instant(end), "re_new": None}
    return {"kind": kind, **times, "id": number, "item": item, "amount": amount}


class PsqlWriter(SoakClient):
    """Changes the rows of a table with `psql`, a process for each statement."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self.devices: dict[int, tuple[str, int]] = {}
        self._next = 0

    def work(self) -> None:
        while not self.shared.stopping.is_set():
            self._change()
            self.pause(0.5)

    def end(self) -> None:
        """Insert the last row."""
        self._insert(END, 1)

    def _change(self) -> None:
        if len(self.devices) < 5 or self.chance.random() < 0.4:
            self._insert(self.chance.choice("pqrs"), self.chance.randrange(100))
            return
        number = self.chance.choice(list(self.devices))
        if self.chance.random() < 0.7:
            place, weight = self.chance.choice("pqrs"), self.chance.randrange(100)
            self._execute(f"UPDATE devices SET place = '{place}', weight = {weight} WHERE id = {number}")
            self.devices[number] = place, weight
        else:
            self._execute(f"DELETE FROM devices WHERE id = {number}")
            del self.devices[number]

    def _insert(self, place: str, weight: int) -> None:
        self._next += 1
        self._execute(f"INSERT INTO devices VALUES ({self._next}, '{place}', {weight})")
        self.devices[self._next] = place, weight

    def _execute(self, text: str) -> None:
        """Carry out a statement; one that is repeated changes nothing, or finds its row there."""
        repeated = False
        while True:
            done = subprocess.run(
                [self.shared.psql, "-X", "-q", self.shared.server.dsn, "-c", text],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode == 0 or (repeated and "there are rows with the same key" in done.stderr):
                self.shared.count("changes of a table")
                return
            assert done.returncode == 2, f"psql ended with {done.returncode}: {text}\n{done.stderr}"
            repeated = True
            self.lost()

    def expected(self) -> History:
        """The rows of `places` that hold now."""
        found: dict[str, list[int]] = {}
        for place, weight in self.devices.values():
            found.setdefault(place, []).append(weight)
        return Counter((place, len(weights), sum(weights)) for place, weights in found.items())


class Creator(SoakClient):
    """Creates queries over streams that others use, looks at their answers, and drops them.

    Of each statement, a repeat may find that it was carried out before the server died.
    """

    created = "QUERY {} AS SELECT sensor, count(*) AS n FROM readings [TUMBLING 30 s] GROUP BY sensor"
    dropped = "DROP QUERY {}"

    def work(self) -> None:
        number = 0
        while not self.shared.stopping.is_set():
            name = f"{self.name}_{number}"
            self._insisted(self.created.format(name), "exists already")
            self._insisted(f"SELECT * FROM {name}")
            self._insisted(self.dropped.format(name), "there is no")
            self.shared.count("queries created and dropped")
            number += 1
            self.pause(3.0)
        self._insisted(self.created.format(f"{self.name}_last"), "exists already")

    def _insisted(self, text: str, done: str | None = None) -> None:
        repeated = False
        while True:
            try:
                self.execute(text)
            except LOST:
                repeated = True
                self.lost()
            except (HeadraceError, psycopg.Error) as error:
                if repeated and done is not None and done in str(error):
                    return
                raise
            else:
                return

    execute: Callable[[str], object]


class ConnectCreator(Creator):
    """With `hr.connect`."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        client = self.connections.enter_context(hr.connect(shared.server.url, timeout=_SECONDS))
        self.execute = client.sql


class PsycopgCreator(Creator):
    """With psycopg, a connection for each statement."""

    created = "CREATE STREAM {} AS SELECT sensor, count(*) AS n FROM readings [TUMBLING 30 s] GROUP BY sensor"
    dropped = "DROP STREAM {}"

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self.execute = self._execute

    def _execute(self, text: str) -> None:
        with psycopg.connect(self.shared.server.dsn, autocommit=True) as connection:
            connection.execute(text.encode())
