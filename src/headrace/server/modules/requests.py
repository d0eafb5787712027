"""What clients ask about modules: install, remove, SHOW MODULES."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError, ModuleError
from headrace.modules.registry import modules
from headrace.server.access import check_role
from headrace.server.interface import Said, Who
from headrace.server.modules.installed import ServerModules
from headrace.server.modules.stored import Package
from headrace.sql.outcomes import Outcome, ShownTable

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer

__all__ = ["MODULE_COLUMNS", "ModuleRequests", "module_lines"]

#: The columns of SHOW MODULES. `state` is `current` or, for an older version that objects still use, `kept`.
MODULE_COLUMNS = ("module", "kind", "package", "version", "checksum", "state", "used_by", "summary")


class ModuleRequests:
    """What a connection of an administrator does with modules."""

    server: HeadraceServer
    who: Who
    origin: str

    def install_modules(self, wheel: bytes) -> Said:
        """Install the modules of a wheel, as a whole or not at all."""
        from headrace.server.modules.wheel import read_wheel  # takes time to load, and few servers need it

        what = f"INSTALL MODULES sha256 {hashlib.sha256(wheel).hexdigest()}"
        try:
            check_role(self.who, "admin", "INSTALL MODULES")
            found = read_wheel(wheel, self.server.limits)
            what = f"INSTALL MODULES {found.name} {found.version} sha256 {found.checksum}"
            package, new = self.server.modules.install(found, self.who.name, self._check_views)
        except Exception as error:
            self.server.access.audit.note(self.who, self.origin, what, error)
            raise
        self.server.access.audit.note(self.who, self.origin, what)
        names = ", ".join(module.name for module in package.modules)
        return Said("INSTALL MODULES", f"{package} {'is installed' if new else 'is the current version'}: {names}")

    def remove_modules(self, package: str) -> Said:
        """Remove a package of modules that nothing uses."""
        what = f"REMOVE MODULES {package}"
        try:
            check_role(self.who, "admin", "REMOVE MODULES")
            found = self.server.modules.remove(package)
        except Exception as error:
            self.server.access.audit.note(self.who, self.origin, what, error)
            raise
        self.server.access.audit.note(self.who, self.origin, what)
        return Said("REMOVE MODULES", f"{', '.join(map(str, found))} removed")

    def _check_views(self, package: Package) -> None:
        """Refuse a version that a view could not be bound with: views use the current one."""
        using = {user.name.lower() for user in self.server.stored.packages.users() if user.kind == "view"}
        for view in [view for view in self.server.catalog.views() if view.name.lower() in using]:
            try:
                view.bind()
            except HeadraceError as error:
                raise ModuleError(
                    f"the view {view.name} would not fit {package}: {error.message}", given=str(package),
                    instead=f"DROP VIEW {view.name} before it",
                ) from error  # fmt: skip


def module_lines(installed: ServerModules, others: Outcome) -> Iterator[tuple[str, ...]]:
    """The rows of SHOW MODULES: those of installed wheels, then those that every session has."""
    assert isinstance(others, ShownTable)
    yield from installed.lines()
    packages = {module.name: module.package for module in modules()}
    for name, kind, summary in others.rows:
        package, _, version = packages.get(name, "").partition(" ")
        yield name, kind, package, version, "", "", "", summary
