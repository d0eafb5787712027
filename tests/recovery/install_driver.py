"""Installs a wheel in processes that are killed at their first, second, … step, and prints what the next start finds.

A step is a file that is opened, a folder that is made, renamed or removed, an import, or a statement of the catalog.
Each process is a fork of this one, over a copy of a data directory in which an older version is installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tests.wheels import tallies

from headrace.server.catalog import StoredCatalog
from headrace.server.modules import ServerModules
from headrace.server.modules.wheel import read_wheel

OLD, NEW = read_wheel(tallies()), read_wheel(tallies("value * 10", "2.0"))
_STEPS = ("open", "os.mkdir", "os.rename", "os.rmdir", "os.remove", "import")


def opened(data: Path) -> tuple[StoredCatalog, ServerModules]:
    data.mkdir(exist_ok=True)
    catalog = StoredCatalog(data / "catalog.db")
    modules = ServerModules(data / "modules", threading.RLock())
    modules.open(catalog.packages)
    return catalog, modules


def prepared(data: Path) -> None:
    """The older version, in use by a query and by a view."""
    catalog, modules = opened(data)
    package, _ = modules.install(OLD, "ann", lambda _: None)
    for kind in ("query", "view"):
        stored = catalog.add(kind, kind[0], "", "wim")
        catalog.use(stored.id, [package.id])
        catalog.mark(stored.id, "there")
    modules.close()
    catalog.close()


def install(data: Path, last: int) -> None:
    """Install the newer version; the process ends before its step of this number."""
    catalog, modules = opened(data)
    count = 0

    def step(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STEPS and (event == "import" or str(data) in str(arguments[0])):
            step()

    catalog._database._connection.set_trace_callback(step)
    sys.addaudithook(audited)
    modules.install(NEW, "ann", lambda _: None)


def found(data: Path) -> str:
    """The versions that are installed, the answers of their modules, and whether there is any other folder."""
    catalog, modules = opened(data)
    lines = {line[3]: f"{line[3]} {line[5]} for {line[6] or 'nobody'}" for line in modules.lines()}
    answers = [str(modules["tests.tally"]().compute([1, 2]))]
    with modules.binding(1):
        answers.append(str(modules["tests.tally"]().compute([1, 2])))
    folders = {path.name for path in modules.folder.iterdir()}
    known = {package.folder for package in catalog.packages.all()}
    modules.close()
    catalog.close()
    return (
        f"{'; '.join(lines.values())}; {' '.join(answers)}; {'clean' if folders == known else sorted(folders ^ known)}"
    )


def killed(data: Path, last: int) -> bool:
    """Install in a process that is killed at a step; whether it has come to this step."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            install(data, last)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - a failure must not go on as a second parent
            sys.stderr.write(f"{error!r}\n")
            sys.stderr.flush()
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended in (0, -signal.SIGKILL), ended
    return ended != 0


def main(folder: Path) -> None:
    prepared(folder / "0")
    number, going = 0, True
    while going:
        number += 1
        data = folder / str(number)
        shutil.copytree(folder / "0", data)
        going = killed(data, number)
        sys.stdout.write(f"{found(data)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
