"""The bill of materials of Headrace, as CycloneDX: `python -m tests.dist.materials [FILE]`.

It lists all packages that Headrace and its extras for users need, in the pinned versions, with their licences and what
they need. It has no time and no random number, so the same environment gives the same file.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.dist.build import ROOT
from tests.dist.dependencies import Dependency, dependencies

__all__ = ["bill"]


def bill() -> dict[str, Any]:
    """The bill of materials, in the form of CycloneDX 1.6."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = dependencies()
    own = _reference("headrace", project["version"])
    references = {name: _reference(name, one.version) for name, one in found.items()}
    direct = sorted(references[one.name] for one in found.values() if one.direct)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "headrace",
                "version": project["version"],
                "purl": own,
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [_component(one, references[one.name]) for one in found.values()],
        "dependencies": [
            {"ref": own, "dependsOn": direct},
            *(
                {"ref": references[name], "dependsOn": sorted(references[other] for other in one.needs)}
                for name, one in found.items()
            ),
        ],
    }


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _component(one: Dependency, reference: str) -> dict[str, Any]:
    # "BSD" is what packages say that do not name the variant: it is no identifier of SPDX.
    named = {"license": {"name": one.licence}} if "BSD" in one.licence.split() else {"expression": one.licence}
    needed = sorted(extra or "always" for extra in one.extras)
    return {
        "type": "library",
        "bom-ref": reference,
        "name": one.name,
        "version": one.version,
        "purl": reference,
        "licenses": [named],
        "properties": [{"name": "headrace:extra", "value": extra} for extra in needed],
    }


if __name__ == "__main__":
    text = json.dumps(bill(), indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        sys.stdout.write(text)
