"""The built page is that of the sources."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from headrace.dashboard.assets import PAGE, asset

_ROOT = Path(__file__).parents[3]
_STATIC = _ROOT / "src/headrace/dashboard/static"


def test_the_page_is_built_from_its_sources() -> None:
    ui = _ROOT / "ui"
    files = [*(ui / "src").rglob("*"), ui / "package-lock.json", ui / "build.mjs"]
    total = hashlib.sha256()
    for name in sorted(file.relative_to(ui).as_posix() for file in files if file.is_file()):
        total.update(name.encode() + b"\0" + (ui / name).read_bytes() + b"\0")
    built = json.loads((_STATIC / "sources.json").read_text())
    assert built["sha256"] == total.hexdigest(), "make ui"


def test_only_files_of_the_page_are_sent() -> None:
    assert asset(PAGE) is not None
    assert asset("../assets.py") is None
    assert asset("sources.json") is None
