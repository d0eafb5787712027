"""The pictures are what their script draws: nobody mends an SVG by hand, and no picture shows an old answer."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
assert spec is not None
assert spec.loader is not None
make_pictures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_pictures)


@pytest.mark.parametrize("name", make_pictures.PICTURES)
def test_a_picture_is_what_the_script_draws(name: str):
    kept = (DOCS / "pictures" / name).read_text(encoding="utf-8")
    assert kept == make_pictures.PICTURES[name](), "run: python docs/make_pictures.py"
    ET.fromstring(kept)  # noqa: S314 - our own file


def test_every_picture_is_shown():
    pages = "".join(page.read_text() for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")])
    assert [path.name for path in sorted((DOCS / "pictures").iterdir()) if path.name not in pages] == []
