"""Write docs/licences.md from the metadata of the installed packages: `python docs/make_licences.py`."""  # noqa: INP001 - a script

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.dist.dependencies import Dependency, dependencies  # noqa: E402 - the path is set first

PAGE = ROOT / "docs" / "licences.md"
_TOP = """# Licences

Headrace has the licence Apache-2.0. This page lists the packages that Headrace and its extras need, with the versions
that its tests run with (`constraints.txt`) and the licences that the packages declare. `docs/make_licences.py` writes
it from their metadata; a test checks that it is current and that every licence is in an agreed list (`tests/dist`).

`make dist` also writes the same list as a bill of materials in the format CycloneDX: `dist/headrace-VERSION.cdx.json`.

PySpark contains Spark and its Java libraries, whose licences are in its own files. The dashboard contains JavaScript
libraries, whose licences are in `headrace/dashboard/static/licences.txt`. `BSD` without a number is what a package
declares that does not name the variant.

"""


def page() -> str:
    """The whole page."""
    found = dependencies().values()
    always = [one for one in found if "" in one.extras]
    parts = [_TOP, "## Always installed\n\n", _table(always, extras=False), "\n## With an extra\n\n"]
    return "".join([*parts, _table([one for one in found if "" not in one.extras], extras=True)])


def _table(rows: list[Dependency], *, extras: bool) -> str:
    head = ["package", "version", "licence", *(["extra"] if extras else [])]
    cells = [[one.name, one.version, one.licence, *([", ".join(sorted(one.extras))] if extras else [])] for one in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
