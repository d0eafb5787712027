"""Wheels that an administrator installs: read as a whole and checked before anything is written.

A wheel is a zip archive that others have made. It is accepted if it is plain Python, if each of its files is what its
`RECORD` says, if this Python is the right one and has what the wheel needs, and if it offers modules. Nothing is
fetched, and nothing of it runs here.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import platform
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from importlib import metadata
from pathlib import PurePosixPath

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, parse_tag
from packaging.version import InvalidVersion, Version

from headrace.entry_points import WHEEL_PREFIX
from headrace.errors import HeadraceError, ModuleError
from headrace.server.access.limits import Limits
from headrace.server.modules.stored import package_key

__all__ = ["Wheel", "read_wheel"]

_GROUP = "headrace.modules"
_ADAPTERS = ("headrace.sources", "headrace.sinks")
_NATIVE = (".so", ".pyd", ".dylib", ".dll", ".pyx", ".pth")
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_ENTRY = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)\s*:\s*(?P<attribute>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")
_MODULE_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


@dataclass(frozen=True)
class Wheel:
    """A wheel that was checked; `entries` are the places of its modules (`package.file:Class`), by their names."""

    name: str
    version: str
    checksum: str
    entries: tuple[tuple[str, str], ...]
    files: dict[str, bytes] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name} {self.version} (sha256 {self.checksum[:16]})"

    @property
    def folder(self) -> str:
        """The name under which its packages are imported: no other wheel has it."""
        words = re.sub(r"\W", "_", f"{package_key(self.name)}_{self.version}")
        return f"{WHEEL_PREFIX}{words}_{self.checksum[:16]}"


def read_wheel(data: bytes, limits: Limits | None = None) -> Wheel:
    """The wheel of these bytes; `ModuleError` says what is wrong with it."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = dict(_files(archive, limits or Limits()))
    except HeadraceError:
        raise
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise ModuleError(
            f"this is no wheel: {error}", instead="a file that `python -m build --wheel` or `uv build` makes"
        ) from error
    about = _about(files)
    about_wheel = BytesParser().parsebytes(files[f"{about}/WHEEL"])
    described = BytesParser().parsebytes(files[f"{about}/METADATA"])
    name, version = str(described["Name"] or ""), str(described["Version"] or "")
    if not _NAME.fullmatch(name):
        raise ModuleError("the wheel has no name", given=name, allowed="Name: in its METADATA")
    try:
        Version(version)
    except InvalidVersion as error:
        raise ModuleError(f"the wheel {name} has no version", given=version, instead="a version such as 1.0") from error
    _check_plain(name, files, about, about_wheel)
    _check_record(name, files, about)
    _check_needs(name, described)
    return Wheel(
        name,
        version,
        hashlib.sha256(data).hexdigest(),
        _entries(name, files.get(f"{about}/entry_points.txt", b"")),
        files,
    )


def _files(archive: zipfile.ZipFile, limits: Limits) -> Iterator[tuple[str, bytes]]:
    """The files of an archive; their number, sizes and paths are checked before any is read."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    limits.check_wheel(len(members), sum(member.file_size for member in members))
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise ModuleError("a file is twice in the wheel", given=next(n for n in names if names.count(n) > 1))
    for member in members:
        _check_path(member)
        yield member.filename, archive.read(member)


def _check_path(member: zipfile.ZipInfo) -> None:
    """Refuse a file that would be outside the wheel's folder, or is no plain file."""
    path = member.orig_filename
    parts = path.split("/")
    if path != member.filename or "\\" in path or ":" in parts[0] or any(part in ("", ".", "..") for part in parts):
        raise ModuleError("a path in the wheel leads out of it", given=path, allowed="package/file.py")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG) or member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
        raise ModuleError("the wheel has more than plain files", given=path, allowed="no links, nothing encrypted")


def _about(files: dict[str, bytes]) -> str:
    """The folder `….dist-info`."""
    folders = {path.partition("/")[0] for path in files if path.partition("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        raise ModuleError(
            "this is no wheel: it needs one folder .dist-info", given=", ".join(sorted(folders)) or "none",
            instead="a file that `python -m build --wheel` or `uv build` makes",
        )  # fmt: skip
    (about,) = folders
    for needed in ("METADATA", "WHEEL", "RECORD"):
        if f"{about}/{needed}" not in files:
            raise ModuleError(f"this is no wheel: it has no {about}/{needed}")
    return about


def _check_plain(name: str, files: dict[str, bytes], about: str, about_wheel: Message) -> None:
    """Refuse what is not plain Python for this Python."""
    tags: set[Tag] = set()
    for tag in about_wheel.get_all("Tag") or []:
        tags |= parse_tag(str(tag))
    here = {tag for tag in compatible_tags() if tag.platform == "any"}
    pure = str(about_wheel["Root-Is-Purelib"]).lower() == "true"
    compiled = [path for path in files if path.endswith(_NATIVE)]
    if not pure or not tags & here or compiled:
        raise ModuleError(
            f"the wheel {name} is not plain Python for this server",
            given=", ".join(compiled[:5]) or ", ".join(sorted(map(str, tags))) or "no tags",
            allowed="py3-none-any, without compiled files",
            instead="compiled code in a package of its own, installed with the server's Python",
        )
    besides = [path for path in files if path.startswith(f"{about.removesuffix('.dist-info')}.data/")]
    if besides:
        raise ModuleError(
            f"the wheel {name} has files for other places than its packages", given=", ".join(besides[:5]),
            allowed="packages and modules of Python",
        )  # fmt: skip
    strange = {
        path for path in files
        if path.endswith(".py") and not path.startswith(about)
        and not all(part.isidentifier() for part in PurePosixPath(path).with_suffix("").parts)
    }  # fmt: skip
    if strange:
        raise ModuleError(f"the wheel {name} has files that no import finds", given=", ".join(sorted(strange)[:5]))


def _check_record(name: str, files: dict[str, bytes], about: str) -> None:
    """Refuse a file that is not what `RECORD` says."""
    record = f"{about}/RECORD"
    known: dict[str, str] = {}
    for row in csv.reader(io.StringIO(files[record].decode(errors="replace"))):
        if len(row) >= 2:
            known[row[0]] = row[1]
    apart = {record, *(f"{about}/{signature}" for signature in _SIGNATURES)}
    for path, content in files.items():
        if path in apart:
            continue
        method, _, digest = known.get(path, "").partition("=")
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if method != "sha256" or digest.rstrip("=") != found:
            raise ModuleError(f"{path} of the wheel {name} is not what its RECORD says", given=known.get(path, "none"))
    missing = sorted(path for path in known if path not in files and path not in apart and path)
    if missing:
        raise ModuleError(f"the wheel {name} lacks files of its RECORD", given=", ".join(missing[:5]))


def _check_needs(name: str, described: Message) -> None:
    """Refuse a wheel that needs another Python, or packages that are not there. None is installed for it."""
    python = str(described["Requires-Python"] or "")
    try:
        if python and not SpecifierSet(python).contains(platform.python_version(), prereleases=True):
            raise ModuleError(
                f"the wheel {name} needs another Python", given=f"Requires-Python: {python}",
                allowed=f"the server has {platform.python_version()}",
            )  # fmt: skip
        needed = [Requirement(str(line)) for line in described.get_all("Requires-Dist") or []]
        wanted = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    except (InvalidSpecifier, InvalidRequirement, UndefinedEnvironmentName) as error:
        raise ModuleError(f"the wheel {name} says in no known way what it needs: {error}") from error
    missing = {str(one): found for one in wanted if (found := _missing(one))}
    if missing:
        raise ModuleError(
            f"the wheel {name} needs packages that the server does not have",
            given=", ".join(f"{one} ({found})" for one, found in missing.items()),
            allowed="packages of the server's Python; other wheels on the server do not count",
            instead=f"pip install {' '.join(map(repr, missing))} beside Headrace, and a new start",
        )


def _missing(needed: Requirement) -> str:
    """Why a requirement is not met; empty if it is."""
    try:
        there = metadata.version(needed.name)
    except metadata.PackageNotFoundError:
        return "not installed"
    return "" if needed.specifier.contains(there, prereleases=True) else f"{there} is installed"


def _entries(name: str, text: bytes) -> tuple[tuple[str, str], ...]:
    """The entry points of a wheel's modules."""
    points = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    points.optionxform = str  # type: ignore[method-assign,assignment]  # names keep their case
    try:
        points.read_string(text.decode())
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ModuleError(f"the entry points of the wheel {name} cannot be read: {error}") from error
    adapters = [group for group in _ADAPTERS if points.has_section(group)]
    if adapters:
        raise ModuleError(
            f"the wheel {name} has sources or sinks", given=", ".join(adapters), allowed=_GROUP,
            instead="pip install beside Headrace, and a new start: adapters open files and connections",
        )  # fmt: skip
    found = dict(points.items(_GROUP)) if points.has_section(_GROUP) else {}
    if not found:
        raise ModuleError(
            f"the wheel {name} offers no modules", given="no entry points",
            instead=f'[project.entry-points."{_GROUP}"] in its pyproject.toml, see docs/modules.md',
        )  # fmt: skip
    for module, place in found.items():
        if not _MODULE_NAME.fullmatch(module) or not _ENTRY.fullmatch(place.strip()):
            raise ModuleError(
                f"the wheel {name} offers a module under a name or from a place that cannot be used",
                given=f"{module} = {place}", allowed="finance.vwap = package.file:Class",
            )  # fmt: skip
    return tuple(sorted((module, re.sub(r"\s", "", place)) for module, place in found.items()))
