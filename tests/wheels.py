"""Wheels for tests, written without a build tool."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping

TALLY = '''
import headrace as hr
from {package}.helpers import weight


class Tally(hr.Aggregate):
    """The sum of the weights."""

    input = "value LONG"
    output = "LONG"

    def __init__(self, factor: int = 1):
        self.factor = factor

    def compute(self, values):
        return self.factor * sum(map(weight, values))


@hr.udf(takes="LONG", returns="LONG")
def weighted(value):
    return weight(value)
'''
ENTRIES = {"tests.tally": "tallies.aggregates:Tally", "tests.weighted": "tallies.aggregates:weighted"}


def wheel(
    files: Mapping[str, str | bytes], entries: Mapping[str, str] | None = None, *, name: str = "tallies",
    version: str = "1.0", metadata: str = "", tag: str = "py3-none-any", about: str = "", groups: str = "",
) -> bytes:  # fmt: skip
    """A wheel with these files; `metadata` are further lines of its METADATA; `groups` are more entry points."""
    folder = f"{name}-{version}.dist-info"
    points = "".join(f"{key} = {value}\n" for key, value in (entries or {}).items())
    whole: dict[str, bytes] = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    whole[f"{folder}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}".encode()
    whole[f"{folder}/WHEEL"] = f"Wheel-Version: 1.0\n{about or 'Root-Is-Purelib: true'}\nTag: {tag}\n".encode()
    if entries is not None:
        whole[f"{folder}/entry_points.txt"] = f"[headrace.modules]\n{points}{groups}".encode()
    record = "".join(f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in whole.items())
    whole[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    return zipped(whole)


def tallies(weight: str = "value", version: str = "1.0", package: str = "tallies", **more: str) -> bytes:
    """A package with an aggregate and a function, whose code in another file says what a value weighs."""
    files = {
        f"{package}/__init__.py": "",
        f"{package}/helpers.py": f"def weight(value):\n    return {weight}\n",
        f"{package}/aggregates.py": TALLY.format(package=package),
    }
    entries = {key: value.replace("tallies", package) for key, value in ENTRIES.items()}
    return wheel(files, entries, name=package, version=version, **more)


def zipped(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content)
    return data.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
