"""One run: twenty clients, a server that is killed, and what must hold at the end."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from tests.services.server.soak import changing, following, inserting, programs
from tests.services.server.soak.client import Shared, SoakClient
from tests.services.server.soak.expected import Expected
from tests.services.server.soak.folding import History, UpsertFold, ticks
from tests.services.server.soak.following import Follower, Wanted
from tests.services.server.soak.rows import BEGIN, END, SCRIPT, Row
from tests.services.server.soak.serving import Served

import headrace as hr

__all__ = ["Report", "soak"]

#: Seconds in which the server must take in everything, and clients get it, after the last insert.
_PATIENCE = 300.0
#: Bytes by which the memory may grow for each insert: its place in the log, its key.
_BYTES_OF_INSERT = 8_000
_BYTES = 250 << 20


@dataclass
class Report:
    """What happened."""

    clients: int
    seconds: float
    counts: Counter[str]
    kills: int
    recoveries: list[float]
    rows: int
    late: int
    answers: dict[str, int]
    changes: dict[str, tuple[int, int]]
    files: tuple[int, int]
    #: Megabytes over time: seconds, and what the server had.
    memory: list[tuple[float, int]] = field(default_factory=list)

    def __str__(self) -> str:
        counts = [f"  {number:>9,}  {name}" for name, number in sorted(self.counts.items())]
        answers = ", ".join(f"{name} {number:,}" for name, number in self.answers.items())
        clients = [f"  {name:<34} {rows:>9,} rows, {again:>8,} of them corrections"
                   for name, (rows, again) in self.changes.items()]  # fmt: skip
        step = max(1, len(self.memory) // 12)
        memory = " ".join(f"{seconds:.0f}s:{size}" for seconds, size in self.memory[::step])
        recoveries = ", ".join(f"{seconds:.1f}" for seconds in self.recoveries)
        return "\n".join([
            f"{self.clients} clients, {self.seconds:.0f} s; {self.kills} kills, it listens again after {recoveries} s",
            f"  {self.rows:>9,}  rows acknowledged, {self.late:,} of them too late and diverted", *counts,
            f"answers: {answers}", "subscribers:", *clients,
            f"memory of the server in MB: {memory}",
            f"data directory: {self.files[0]:,} files, {self.files[1] / 1e6:,.1f} MB",
            "every subscriber's folded changes equal the final history, which equals the batch answer",
        ])  # fmt: skip


def _clients(shared: Shared) -> list[SoakClient]:
    follow: list[tuple[type[Follower], Wanted]] = [
        (following.SentEventsFollower, Wanted("sums", leaves=0.02)),
        (following.SentEventsFollower, Wanted("places", "upsert")),
        (following.SentEventsFollower, Wanted("peaks", "final", slow=0.5)),
        (following.ArrowFollower, Wanted("peaks", rows=50)),
        (following.ConnectFollower, Wanted("sums", slow=1.0, rows=200)),
        (following.ConnectFollower, Wanted("large", "final", leaves=0.05)),
        (following.AsyncFollower, Wanted("sums", "upsert", leaves=0.02)),
        (following.AsyncFollower, Wanted("stock")),
        (following.PsycopgFollower, Wanted("sums", leaves=0.001)),
        (following.PsycopgFollower, Wanted("stock", "final", rows=20)),
        (programs.PsqlFollower, Wanted("large", leaves=0.005, rows=100)),
        (programs.ShellFollower, Wanted("sums", leaves=1.0)),
    ]
    insert = [
        inserting.JsonInserter, inserting.LinesInserter, inserting.ArrowInserter, inserting.ConnectInserter,
        inserting.PsycopgInserter, inserting.ShellInserter, changing.OrderWriter, changing.PsqlWriter,
        changing.ConnectCreator, changing.PsycopgCreator,
    ]  # fmt: skip
    return [
        *(kind(shared, f"{kind.__name__}_{wanted.stream}_{wanted.form}", wanted) for kind, wanted in follow),
        *(kind(shared, kind.__name__) for kind in insert),
    ]


class _Soak:
    def __init__(self, server: Served, seed: int, psql: Path, say: Callable[[str], None]) -> None:
        self.server, self.say = server, say
        self.shared = Shared(server, seed, psql)
        self.admin = hr.connect(server.url, timeout=_PATIENCE)
        self.admin.sql(SCRIPT)
        self._insert(Row(0, "a", 1, BEGIN))
        self.clients = _clients(self.shared)
        self.memory: list[tuple[float, int]] = []
        self.began = time.monotonic()

    # --- while it runs -----------------------------------------------------------------------------------------------

    def run(self, seconds: float, kills: int) -> None:
        """Let the clients work for so many seconds of the server's life, and kill it at moments by chance."""
        chance = random.Random(f"{self.shared.seed} kills")
        share = 0.9 * seconds / kills
        moments = [share * (number + chance.uniform(0.3, 0.95)) for number in range(kills)]
        for client in self.clients:
            client.start()
        next_line = 0.0
        while (passed := time.monotonic() - self.began - sum(self.server.recoveries)) < seconds:
            self.shared.check()
            self.memory.append((passed, self.server.memory() >> 20))
            if moments and passed >= moments[0]:
                moments.pop(0)
                self.server.kill()
                self.say(f"{passed:5.0f} s  killed; it listens again after {self.server.recoveries[-1]:.1f} s")
            elif passed >= next_line:
                next_line = passed + 5
                self.say(f"{passed:5.0f} s  {self._line()}")
            time.sleep(0.25)

    def _line(self) -> str:
        counts, ledger = self.shared.counts, self.shared.ledger
        followed = sum(client.fold.rows for client in self.clients if isinstance(client, Follower))
        return (
            f"{len(ledger.acknowledged):,} rows acknowledged in {counts['inserts acknowledged']:,} inserts, "
            f"{followed:,} rows followed, {counts['reconnects']} reconnects, {self.memory[-1][1]} MB"
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> Expected:
        """Let inserters end, and streams too; then all clients."""
        self.shared.stopping.set()
        for client in self.clients:
            if not isinstance(client, Follower):
                self._until(lambda client=client: not client.is_alive(), f"{client.name} ends")  # type: ignore[misc]
        ledger = self.shared.ledger
        for sensor in ("closing", END):  # each makes everything before it final, so that nothing follows the last row
            self._insert(ledger.closing(3600, sensor))
            self._settle(Expected(ledger.acknowledged))
        self._insert(ledger.closing(3600, "after"))
        for client in self.clients:
            if isinstance(client, changing.OrderWriter | changing.PsqlWriter):
                client.end()
        expected = Expected(ledger.acknowledged)
        self._settle(expected)
        for client in self.clients:
            self._until(lambda client=client: not client.is_alive(), f"{client.name} ends")  # type: ignore[misc]
        return expected

    def _settle(self, expected: Expected) -> None:
        """Wait until `sums` has what it must have in the end."""
        wanted = expected.history("sums")
        self._until(lambda: self.history("sums") == wanted, "sums has every row")

    def _until(self, done: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _PATIENCE
        while not done():
            self.shared.check()
            if time.monotonic() > until:
                behind = [client.name for client in self.clients if client.is_alive()]
                raise AssertionError(f"not within {_PATIENCE:g} s: {what}; these clients still work: {behind}")
            time.sleep(0.1)

    def _insert(self, row: Row) -> None:
        self.admin["readings"].insert([row.values()], key=f"row {row.id}")
        self.shared.ledger.note(row)

    def history(self, name: str) -> History:
        """The history of a query, as the server gives it."""
        table = self.admin[name].cht()
        times = [[ticks(time) for time in table[end].to_pylist()] for end in ("le", "re")]
        rest = [table[column].to_pylist() for column in table.column_names[2:]]
        return Counter(zip(*times, *rest, strict=True))

    # --- what must hold ----------------------------------------------------------------------------------------------

    def check(self, expected: Expected) -> dict[str, int]:
        """Compare every answer and every subscriber with what DuckDB has; the sizes of the answers."""
        by_name = {type(client).__name__: client for client in self.clients}
        orders, devices = by_name["OrderWriter"], by_name["PsqlWriter"]
        assert isinstance(orders, changing.OrderWriter)
        assert isinstance(devices, changing.PsqlWriter)
        wanted = {name: expected.history(name) for name in ("raw", "sums", "peaks", "large")}
        wanted["stock"] = orders.expected()
        problems = []
        last = {f"{kind}_last": expected.history("thirties") for kind in ("ConnectCreator", "PsycopgCreator")}
        for name, history in {**wanted, **last}.items():
            found = self.history(name)
            if found != history:
                problems.append(
                    f"{name}: {list((history - found).items())[:3]} / {list((found - history).items())[:3]}"
                )
        places = Counter(map(tuple, _columns(self.admin.sql("SELECT place, devices, weight FROM places"))))
        if places != devices.expected():
            problems.append(f"places: {places}, expected {devices.expected()}")
        late = sorted(json.loads(row)["id"] for (row,) in _columns(self.admin.sql("SELECT row FROM diverted"), "row"))
        if late != expected.late:
            problems.append(f"diverted: {len(late)} rows, expected {len(expected.late)}")
        problems += [
            f"{client.name}: {problem}" for client in self.clients
            if isinstance(client, Follower) and (problem := self._problem(client, wanted, devices.expected()))
        ]  # fmt: skip
        names = self.admin.sql("SHOW QUERIES").column(0).to_pylist()
        left = [name for name in names if "Creator" in name and not name.endswith("_last")]
        if left:
            problems.append(f"queries that were dropped are there: {left}")
        if files := list(self.server.temporary.rglob("*")):
            problems.append(f"files outside of the data directory: {files}")
        assert not problems, "\n".join(problems)
        return {name: sum(history.values()) for name, history in wanted.items()} | {"places": places.total()}

    @staticmethod
    def _problem(client: Follower, wanted: dict[str, History], places: History) -> str:
        if not client.finished:
            return "it did not get the last row"
        if client.wanted.stream != "places":
            return client.fold.differences(wanted[client.wanted.stream])
        assert isinstance(client.fold, UpsertFold)
        found = Counter(row[1:] for row in client.fold.latest.values())
        return "" if found == places else f"{found}, expected {places}"

    def check_memory(self) -> None:
        """Fail if the memory grows with time, by more than what each insert may keep."""
        third = [size for seconds, size in self.memory if seconds < self.memory[-1][0] / 3]
        allowed = max(third) + ((self.shared.counts["inserts acknowledged"] * _BYTES_OF_INSERT + _BYTES) >> 20)
        worst = max(size for _, size in self.memory)
        assert worst <= allowed, f"the server has grown to {worst} MB; after a third of the time it had {max(third)}"


def _columns(table: pa.Table, *names: str) -> list[tuple[object, ...]]:
    wanted = names or [name for name in table.column_names if name not in ("le", "re")]
    return list(zip(*(table[name].to_pylist() for name in wanted), strict=True))


def soak(
    folder: Path, psql: Path, seconds: float, *, kills: int = 3, seed: int = 0, say: Callable[[str], None] = print
) -> Report:
    """Run for so many seconds in a folder of its own, and check everything at the end."""
    server = Served(folder)
    run = _Soak(server, seed, psql, say)
    try:
        run.run(seconds, kills)
        run.say("inserts end")
        expected = run.finish()
        answers = run.check(expected)
        run.check_memory()
        rows = run.shared.ledger.acknowledged
        changes = {client.name: (client.fold.rows, client.fold.corrections)
                   for client in run.clients if isinstance(client, Follower)}  # fmt: skip
        files = server.disk()
        assert server.stop() == 0, server.log.read_text()[-3000:]
        return Report(
            len(run.clients), time.monotonic() - run.began, run.shared.counts, server.kills, server.recoveries,
            len(rows), len(expected.late), answers, changes, files, run.memory,
        )  # fmt: skip
    finally:
        run.shared.stopping.set()
        run.shared.ended.set()
        run.admin.close()
        server.close()
        for client in run.clients:
            if client.is_alive():
                client.join(10)
            client.connections.close()
