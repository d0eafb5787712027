"""The licences of dependencies, and the bill of materials."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from tests.dist.build import ROOT
from tests.dist.dependencies import Dependency, dependencies
from tests.dist.materials import bill


def test_the_page_of_licences_is_current():
    made = runpy.run_path(str(ROOT / "docs" / "make_licences.py"))
    assert Path(made["PAGE"]).read_text() == made["page"](), "python docs/make_licences.py"


def test_every_dependency_has_a_licence_of_the_list():
    found = dependencies()
    assert len(found) > 30
    assert {name: one.refused for name, one in found.items() if one.refused} == {}


@pytest.mark.parametrize(
    ("licence", "refused"),
    [
        ("MIT", []),
        ("GPL-3.0-only", ["GPL-3.0-only"]),
        ("GPL-3.0-only OR MIT", []),
        ("MIT AND GPL-2.0-only", ["GPL-2.0-only"]),
        ("(Apache-2.0 WITH LLVM-exception) AND BSD-2-Clause", []),
        ("unknown", ["unknown"]),
    ],
)
def test_other_licences_are_refused(licence: str, refused: list[str]):
    assert Dependency("a", "1", licence).refused == refused


def test_all_dependencies_are_pinned():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pins = {re.sub(r"[-_.]+", "-", name).lower(): version.split(" ")[0] for name, version in pins.items()}
    assert {name: one.version for name, one in dependencies().items()}.items() <= pins.items()


def test_the_bill_of_materials_is_complete_and_the_same_each_time():
    made = bill()
    assert made == bill()
    assert [made["bomFormat"], made["specVersion"]] == ["CycloneDX", "1.6"]
    known = {component["bom-ref"] for component in made["components"]} | {made["metadata"]["component"]["bom-ref"]}
    assert len(known) == len(dependencies()) + 1
    edges = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    assert set(edges) == known
    assert {name for names in edges.values() for name in names} == known - {made["metadata"]["component"]["bom-ref"]}
