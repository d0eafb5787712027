"""What Headrace depends on, from the metadata of the installed packages: their versions, licences and requirements."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.dist.build import ROOT
from tests.dist.install import EXTRAS

__all__ = ["ALLOWED", "Dependency", "dependencies"]

#: The licences that a dependency may have, as SPDX writes them. Those with conditions on changes of the library itself
#: (LGPL, MPL) do not concern programs that use it as it is.
ALLOWED = frozenset({
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD", "CC0-1.0", "ISC", "LGPL-3.0-only", "MIT", "MIT-0",
    "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "LLVM-exception",
})  # fmt: skip
#: Texts of metadata that are not SPDX expressions.
_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause", "Apache License 2.0": "Apache-2.0", "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0", "Apache Software License": "Apache-2.0", "Apache-2": "Apache-2.0",
    "BSD License": "BSD", "BSD 3-Clause": "BSD-3-Clause", "BSD-2": "BSD-2-Clause",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only", "ISC License (ISCL)": "ISC",
    "MIT License": "MIT", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0", "Dual License": "Apache-2.0 OR BSD",
    "Python Software Foundation License": "PSF-2.0", "http://www.apache.org/licenses/LICENSE-2.0": "Apache-2.0",
}  # fmt: skip


@dataclass
class Dependency:
    """A package that Headrace needs, directly or not."""

    name: str
    version: str
    licence: str
    #: The extras that need it; "" for Headrace without one.
    extras: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)
    #: Whether Headrace itself names it.
    direct: bool = False

    @property
    def refused(self) -> list[str]:
        """The parts of its licence that are not in the list; of alternatives, one must be."""
        found: list[str] = []
        for option in re.split(r"\bOR\b", self.licence):
            parts = [part for part in re.split(r"\bAND\b|\bWITH\b|[()]", option) if part.strip()]
            missing = [part.strip() for part in parts if part.strip() not in ALLOWED]
            if not missing:
                return []
            found += missing
        return found


def dependencies() -> dict[str, Dependency]:
    """All packages that Headrace and its extras for users need on this platform, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, Dependency] = {}
    for extra in ("", *EXTRAS):
        direct = project["optional-dependencies"][extra] if extra else project["dependencies"]
        seen: set[tuple[str, frozenset[str]]] = set()
        for text in direct:
            _follow(Requirement(text), None, extra, found, seen)
    return dict(sorted(found.items()))


def _follow(
    need: Requirement,
    user: Dependency | None,
    origin: str,
    found: dict[str, Dependency],
    seen: set[tuple[str, frozenset[str]]],
) -> None:
    """Add a requirement of a package, or of Headrace itself, and what it needs in turn."""
    name, extras = canonicalize_name(need.name), frozenset(need.extras)
    about = metadata.metadata(name)
    one = found.setdefault(name, Dependency(name, str(about["Version"]), _licence(about)))
    one.extras.add(origin)
    if user is None:
        one.direct = True
    else:
        user.needs.add(name)
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    for following in map(Requirement, metadata.requires(name) or []):
        marker = following.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            _follow(following, one, origin, found, seen)


def _licence(about: metadata.PackageMetadata) -> str:
    """The SPDX expression of a package: as it says, or made of its classifiers or of its field `License`."""
    if expression := about.get("License-Expression"):
        return str(expression)
    classified = [
        one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or [] if one.startswith("License ::")
    ]
    texts = [one for one in classified if one != "OSI Approved"] or [
        str(about.get("License", "unknown")).split("\n")[0]
    ]
    return " AND ".join(sorted({_NAMES.get(text.strip(), text.strip()) for text in texts}))
