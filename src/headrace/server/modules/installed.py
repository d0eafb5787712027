"""The modules of a server: packages that an administrator installed, by the names of their modules.

A package is a folder of the data directory and a row of the catalog. The folder is written first, under another name,
flushed and renamed; the code is imported and looked at; then the row makes the package installed, as the current
version of its name. A process that dies in between leaves a folder without a row, which the next start removes.

Statements find the current version. What a statement creates is stored with the packages that it used, and a start
executes it again with those: a query keeps the version that it began with until it is dropped. A view is bound where it
is used, so it has no version. A version that is neither current nor in use is removed at the next install or start.
"""

from __future__ import annotations

import importlib
import logging
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.entry_points import WHEEL_PREFIX
from headrace.errors import HeadraceError, ModuleError, nearest
from headrace.modules.registry import checked_module, describe_module, module_names
from headrace.pieces import flush_to_disk
from headrace.server.modules.shading import shaded
from headrace.server.modules.stored import OfferedModule, Package, StoredPackages, package_key
from headrace.sql.bind.names import SQL_AGGREGATES, SQL_FUNCTIONS

if TYPE_CHECKING:
    from headrace.server.modules.wheel import Wheel

__all__ = ["ServerModules"]

_log = logging.getLogger("headrace.server")


class _Binding(threading.local):
    """What a thread binds: the packages that it has used, and those that it may use, None for the current ones.

    `tried` are the packages as they would be after an install.
    """

    def __init__(self) -> None:
        self.tried: Mapping[int, Package] | None = None
        self.used: set[int] = set()
        self.only: frozenset[int] | None = None


class ServerModules(Mapping[str, Any]):
    """The installed modules by name: classes and functions, imported when they are first asked for.

    `lock` is held by changes of what names mean; statements that only look are bound without it, so what they read is
    replaced, and never changed.
    """

    def __init__(self, folder: Path, lock: threading.RLock) -> None:
        self.folder = folder
        self._lock, self._installing = lock, threading.Lock()
        self._packages: dict[int, Package] = {}
        self._loaded: dict[tuple[int, str], Any] = {}
        self._binding = _Binding()

    def open(self, stored: StoredPackages) -> None:
        """Read what is installed; the folder is on the path of imports until `close`."""
        self._stored = stored
        self.folder.mkdir(parents=True, exist_ok=True)  # else imports that looked there never look again
        if str(self.folder) not in sys.path:
            sys.path.append(str(self.folder))
        self._packages = {package.id: package for package in stored.all()}
        self.collect()

    def close(self) -> None:
        """Forget what was imported."""
        with suppress(ValueError):
            sys.path.remove(str(self.folder))
        for package in self._packages.values():
            _forget(package.folder)
        self._loaded.clear()

    # --- names -------------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        for package in self._visible():
            for module in package.modules:
                if module.name == name:
                    self._binding.used.add(package.id)
                    key = package.id, name
                    if key not in self._loaded:
                        self._loaded[key] = _load(package.folder, module.name, module.place, str(package))
                    return self._loaded[key]
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(module.name == name for package in self._visible() for module in package.modules)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(module.name for package in self._visible() for module in package.modules))

    def __len__(self) -> int:
        return sum(len(package.modules) for package in self._visible())

    def _visible(self) -> list[Package]:
        only, tried = self._binding.only, self._binding.tried
        return [
            package for package in (self._packages if tried is None else tried).values()
            if (package.current if only is None else package.id in only)
        ]  # fmt: skip

    @property
    def used(self) -> set[int]:
        """The packages that the running statement of this thread has used."""
        return self._binding.used

    @contextmanager
    def binding(self, recovered: int | None = None) -> Iterator[None]:
        """While a statement is bound: `used` has what it uses. `recovered` is the object that it creates again."""
        now = self._binding
        before, now.used = (now.used, now.only), set()
        now.only = None if recovered is None else self._stored.used_by(recovered)
        try:
            yield
        finally:
            now.used, now.only = before[0] | now.used, before[1]

    # --- packages ----------------------------------------------------------------------------------------------------

    def install(self, wheel: Wheel, owner: str, check: Callable[[Package], None]) -> tuple[Package, bool]:
        """Install a wheel as the current version of its name; and whether it is new. `check` may refuse it."""
        with self._installing:
            there = next((one for one in self._packages.values() if one.checksum == wheel.checksum), None)
            if there is not None and there.current:
                return there, False
            self._check_names(wheel)
            with self._lock:
                self.collect(spared=wheel.checksum)  # not what is replaced now: a running SELECT may use it
            modules = there.modules if there is not None else self._unpacked(wheel)
            try:
                with self._lock:
                    self._try_views(wheel, modules, there, check)
                    package = self._stored.install(wheel, modules, owner)
                    self._packages = {one.id: one for one in self._stored.all()}
            except BaseException:
                if there is None:
                    self._discard(wheel.folder)
                raise
        return package, there is None

    def remove(self, name: str) -> list[Package]:
        """Remove all versions of a package that nothing uses."""
        with self._installing, self._lock:
            found = [one for one in self._packages.values() if one.key == package_key(name)]
            if not found:
                known = sorted({one.name for one in self._packages.values()})
                raise ModuleError(
                    f"there is no package {name!r} on the server", given=name, allowed=", ".join(known) or "(none)",
                    instead=nearest(name, known) or "",
                )  # fmt: skip
            users = [user for user in self._stored.users() if user.package in {one.id for one in found}]
            if users:
                raise ModuleError(
                    f"{', '.join(f'{user.kind} {user.name}' for user in users)} still use {found[0].name}", given=name,
                    instead="; ".join(f"DROP {user.kind.upper()} {user.name}" for user in users) + " before it",
                )  # fmt: skip
            self._stored.remove(one.id for one in found)
            self._forget_packages(found)
            return found

    def collect(self, spared: str = "") -> None:
        """Remove versions that are neither current nor in use, and folders that belong to no package.

        The version with the checksum `spared` stays.
        """
        in_use = {user.package for user in self._stored.users()}
        old = [
            one for one in self._packages.values()
            if not one.current and one.id not in in_use and one.checksum != spared
        ]  # fmt: skip
        if old:
            self._stored.remove(one.id for one in old)
            self._forget_packages(old)
        known = {one.folder for one in self._packages.values()}
        for path in self.folder.glob("*"):
            if path.name not in known and path.name.lstrip(".").startswith(WHEEL_PREFIX):
                shutil.rmtree(path, ignore_errors=True)

    def lines(self) -> list[tuple[str, ...]]:
        """What SHOW MODULES shows of each module: name, kind, package, version, checksum, state, users, summary."""
        users: dict[int, list[str]] = {}
        for user in self._stored.users():
            users.setdefault(user.package, []).append(user.name)
        return [
            (
                module.name, module.kind, package.name, package.version, package.checksum,
                "current" if package.current else "kept", ", ".join(users.get(package.id, [])), module.summary,
            )
            for package in self._packages.values() if package.current or package.id in users
            for module in package.modules
        ]  # fmt: skip

    def _check_names(self, wheel: Wheel) -> None:
        """Refuse names that mean something else."""
        own = package_key(wheel.name)
        others = {
            module.name: str(package) for package in self._packages.values()
            if package.current and package.key != own for module in package.modules
        }  # fmt: skip
        others |= dict.fromkeys([*SQL_FUNCTIONS, *SQL_AGGREGATES], "Headrace SQL")
        others |= dict.fromkeys(module_names(), "a package of the server's Python")
        for name, _ in wheel.entries:
            if (owner := others.get(name) or others.get(name.lower())) is not None:
                raise ModuleError(
                    f"{owner} has a module or function {name!r} already", given=f"{wheel}: {name}",
                    instead="another name for the entry point, such as package.name",
                )  # fmt: skip

    def _unpacked(self, wheel: Wheel) -> list[OfferedModule]:
        """Write the folder of a wheel, import its modules, and describe them; if that fails nothing is left."""
        self._discard(wheel.folder)
        draft = self.folder / f".{wheel.folder}"
        try:
            for path, content in shaded(wheel.files, wheel.folder).items():
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                (draft / path).write_bytes(content)
            for written in [draft, *draft.rglob("*")]:
                flush_to_disk(written)
            (draft / wheel.folder).rename(self.folder / wheel.folder)
            draft.rmdir()
            flush_to_disk(self.folder)
            importlib.invalidate_caches()
            return [_described(wheel, name, place) for name, place in wheel.entries]
        except BaseException as error:
            self._discard(wheel.folder)
            if isinstance(error, OSError):
                raise ModuleError(f"the wheel {wheel.name} cannot be written: {error}") from error
            raise

    def _try_views(self, wheel: Wheel, modules: Any, there: Package | None, check: Callable[[Package], None]) -> None:
        """Call `check` as if the wheel were the current version."""
        number = there.id if there is not None else 0  # the catalog counts from 1
        new = Package(number, wheel.name, wheel.version, wheel.checksum, wheel.folder, tuple(modules), "", current=True)
        rest = {one.id: one for one in self._packages.values() if one.key != new.key}
        self._binding.tried = {**rest, number: new}
        try:
            with self.binding():
                check(new)
        finally:
            self._binding.tried = None
            self._loaded = {key: value for key, value in self._loaded.items() if key[0] != 0}

    def _forget_packages(self, packages: list[Package]) -> None:
        gone = {package.id for package in packages}
        self._packages = {number: one for number, one in self._packages.items() if number not in gone}
        for package in packages:
            self._discard(package.folder)
        self._loaded = {key: value for key, value in self._loaded.items() if key[0] not in gone}

    def _discard(self, folder: str) -> None:
        _forget(folder)
        for path in (self.folder / folder, self.folder / f".{folder}"):
            shutil.rmtree(path, ignore_errors=True)


def _load(folder: str, name: str, place: str, package: str) -> Any:
    """The module at a place of a package."""
    file, _, attribute = place.partition(":")
    try:
        found = reduce(getattr, attribute.split("."), importlib.import_module(f"{folder}.{file}"))
        return checked_module(found, place)
    except (Exception, SystemExit) as error:
        reason = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        raise ModuleError(
            f"the module {name} of {package} cannot be used: {reason.replace(f'{folder}.', '')}", given=place,
            instead="`headrace module check` and a test where the package is written",
        ) from error  # fmt: skip


def _described(wheel: Wheel, name: str, place: str) -> OfferedModule:
    about = describe_module(name, _load(wheel.folder, name, place, str(wheel)), str(wheel))
    return OfferedModule(name, place, about.kind, about.summary)


def _forget(folder: str) -> None:
    for name in list(sys.modules):  # other threads may import meanwhile
        if name.partition(".")[0] == folder:
            sys.modules.pop(name, None)
