"""What a wheel must be: read, checked, and refused with a reason."""

from __future__ import annotations

import io
import stat
import zipfile

import pytest
from tests.wheels import TALLY, tallies, wheel, zipped

from headrace.errors import HeadraceError, LimitError, ModuleError
from headrace.server.access import Limits
from headrace.server.modules.shading import shaded
from headrace.server.modules.wheel import read_wheel

FILES = {"tallies/__init__.py": ""}
ENTRY = {"a.b": "tallies:C"}


def with_file(path: str, content: bytes = b"", *, mode: int = 0, method: int = zipfile.ZIP_STORED) -> bytes:
    """A wheel with one more file, which its RECORD does not have."""
    data = io.BytesIO(tallies())
    with zipfile.ZipFile(data, "a") as archive:
        member = zipfile.ZipInfo(path)
        member.external_attr, member.compress_type = mode << 16, method
        archive.writestr(member, content)
    return data.getvalue()


def test_a_wheel():
    data = tallies(metadata="Requires-Python: >=3.11\nRequires-Dist: headrace\nRequires-Dist: none; extra == 'x'\n")
    found = read_wheel(data)
    assert (found.name, found.version) == ("tallies", "1.0")
    assert found.entries == (
        ("tests.tally", "tallies.aggregates:Tally"),
        ("tests.weighted", "tallies.aggregates:weighted"),
    )
    assert found.folder == f"headrace_wheel_tallies_1_0_{found.checksum[:16]}"
    assert found.folder.isidentifier()
    assert read_wheel(tallies(version="1.0+b.1")).folder.startswith("headrace_wheel_tallies_1_0_b_1_")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "this is no wheel"),
        (b"PK\x03\x04 and then nothing", "this is no wheel"),
        (tallies()[:-40], "this is no wheel"),
        (zipped({"a.py": b""}), "one folder .dist-info"),
        (zipped({"a-1.dist-info/METADATA": b""}), "has no a-1.dist-info/WHEEL"),
        (wheel(FILES, ENTRY, name="_"), "has no name"),
        (wheel(FILES, ENTRY, version="one"), "has no version"),
        (wheel(FILES, ENTRY, tag="cp313-cp313-manylinux_2_17_x86_64"), "not plain Python"),
        (wheel(FILES, ENTRY, tag="py2-none-any"), "not plain Python"),
        (wheel(FILES, ENTRY, about="Root-Is-Purelib: false"), "not plain Python"),
        (wheel({**FILES, "tallies/fast.so": b""}, ENTRY), "not plain Python"),
        (wheel({**FILES, "tallies.pth": "import os"}, ENTRY), "not plain Python"),
        (wheel({**FILES, "tallies-1.0.data/scripts/run": ""}, ENTRY), "files for other places"),
        (wheel({**FILES, "tallies/a-b.py": ""}, ENTRY), "files that no import finds"),
        (wheel(FILES), "offers no modules"),
        (wheel(FILES, {}), "offers no modules"),
        (wheel(FILES, ENTRY, groups="[headrace.sinks]\nx = tallies:X\n"), "has sources or sinks"),
        (wheel(FILES, ENTRY, groups="x"), "cannot be read"),
        (wheel(FILES, {"a-b": "tallies:C"}), "under a name or from a place"),
        (wheel(FILES, {"a.b": "tallies"}), "under a name or from a place"),
        (wheel(FILES, {"a.b": "os; exit:C"}), "under a name or from a place"),
        (wheel(FILES, ENTRY, metadata="Requires-Python: <3\n"), "needs another Python"),
        (wheel(FILES, ENTRY, metadata="Requires-Python: many\n"), "in no known way"),
        (wheel(FILES, ENTRY, metadata="Requires-Dist: !\n"), "in no known way"),
        (with_file("tallies/more.py"), "is not what its RECORD says"),
        (with_file("../out.py"), "leads out of it"),
        (with_file("/etc/out.py"), "leads out of it"),
        (with_file("tallies/../../out.py"), "leads out of it"),
        (with_file("C:/out.py"), "leads out of it"),
        (with_file("tallies\\out.py"), "leads out of it"),
        (with_file("tallies//out.py"), "leads out of it"),
        (with_file("tallies/link.py", b"/etc/passwd", mode=stat.S_IFLNK | 0o777), "more than plain files"),
        (with_file("tallies/packed.py", b"x" * 100, method=zipfile.ZIP_BZIP2), "more than plain files"),
    ],
)
def test_what_is_refused(data: bytes, says: str):
    with pytest.raises(ModuleError, match=says):
        read_wheel(data)


def test_a_file_that_is_twice():
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = with_file("tallies/helpers.py")
    with pytest.raises(ModuleError, match="twice"):
        read_wheel(data)


def test_needs_that_are_not_met_are_named():
    needs = "Requires-Dist: nothing-like-it>2\nRequires-Dist: pyarrow>9999\nRequires-Dist: numpy\n"
    with pytest.raises(ModuleError) as caught:
        read_wheel(tallies(metadata=needs))
    assert "nothing-like-it>2 (not installed), pyarrow>9999 (" in str(caught.value.given)
    assert "numpy" not in str(caught.value.given)
    assert "pip install 'nothing-like-it>2' 'pyarrow>9999'" in caught.value.instead


def test_sizes_are_limited():
    with pytest.raises(LimitError, match="more files") as caught:
        read_wheel(tallies(), Limits(wheel_files=3))
    assert caught.value.allowed == "wheel_files: 3"
    bomb = with_file("tallies/zeros.py", b"0" * 10_000_000, method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    with pytest.raises(LimitError, match="more bytes"):
        read_wheel(bomb, Limits(wheel_bytes=1_000_000))


def test_every_damaged_byte_is_an_error_or_changes_nothing():
    data = tallies()
    for place in range(0, len(data), 3):
        damaged = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
        try:
            found = read_wheel(damaged)
        except HeadraceError:
            continue
        assert found.files == read_wheel(data).files, place


def test_imports_of_the_wheel_itself_get_its_name():
    files = {
        "a/__init__.py": b"",
        "a/b.py": b"",
        "a/c/__init__.py": b"",
        "n/d.py": b"",
        "use.py": (
            "# coding: latin-1\r\n"
            "import os, a.b, a as x\r\n"
            "é = 1; from a.b import (\r\n  y,\r\n)\r\n"
            "if é: import a\r\n"
            "from  \\\r\n   a import c\r\n"
            "from . import a as z\r\n"
            "import a.c as w\r\n"
            "from n import d\r\n"
            "import ab, a.nothing\r\n"
            "from ab import a\r\n"
            "t = 'import a'\r\n"
        ).encode("latin-1"),
    }
    text = shaded(files, "w")["w/use.py"].decode("latin-1").replace("\r\n", "\n")
    assert text == (
        "# coding: latin-1\n"
        "import os; import w.a.b; from w import a; import w.a as x\n"
        "é = 1; from w.a.b import (\n  y,\n)\n"
        "if é: from w import a\n"
        "from  \\\n   w.a import c\n"
        "from . import a as z\n"
        "import w.a.c as w\n"
        "from w.n import d\n"
        "import ab, a.nothing\n"
        "from ab import a\n"
        "t = 'import a'\n"
    )


@pytest.mark.parametrize(
    "line",
    ["importlib.import_module('a.b')", "__import__('a')", "resources.files('a')", "import_module('a', package=None)"],
)
def test_imports_by_a_text_are_refused(line: str):
    with pytest.raises(ModuleError, match=r"use\.py line 2 names its own package in a text"):
        shaded({"a/__init__.py": b"", "a/b.py": b"", "use.py": f"\nx = {line}\n".encode()}, "w")
    shaded({"a/__init__.py": b"", "use.py": b"import_module('os'); getLogger('a'); f('a'); import_module(a)"}, "w")


def test_what_is_no_python_is_refused():
    for text in (b"def", b"\0", b"# coding: none\n", b"\xff"):
        with pytest.raises(ModuleError, match=r"use\.py of the wheel is no Python"):
            shaded({"use.py": text}, "w")
    assert TALLY.format(package="w.tallies").encode() in shaded(read_wheel(tallies()).files, "w").values()
