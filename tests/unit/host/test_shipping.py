"""What travels to workers: the driver's Headrace, and the modules that a query names."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.services.cluster.own_modules import Spread

import headrace as hr
from headrace.entry_points import WHEEL_PREFIX
from headrace.errors import HostError
from headrace.host.driving.plan import Job
from headrace.host.spark import shipping, worker
from headrace.host.spark.packing import pack_job, unpack_job
from headrace.plan.nodes import Output
from headrace.stages.cut import cut
from headrace.store.storage import LocalStorage

OWN = "tests.services.cluster.own_modules"
HELPERS = "tests.services.cluster.own_helpers"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What would be sent, to workers that may be elsewhere."""
    archives: dict[str, bytes] = {}
    monkeypatch.setattr(shipping, "may_be_elsewhere", lambda _: True)
    monkeypatch.setattr(shipping, "_send", lambda _, name, data: archives.setdefault(name, data))
    return archives


def job(tmp_path: Path, aggregate: Any) -> Job:
    stream = hr.events([{"le": 1, "re": 2, "v": 3}], "v LONG").window(hr.tumbling(4)).aggregate(s=aggregate)
    return Job("token", cut((Output(stream.node, "out"),), 1), 1, LocalStorage(tmp_path), (None,))


def names(archive: bytes) -> list[str]:
    return [name for name in zipfile.ZipFile(io.BytesIO(archive)).namelist() if not name.endswith("/")]


def test_a_packed_query_knows_the_modules_that_it_imports(tmp_path: Path):
    packed = pack_job(job(tmp_path, Spread().of("v")))
    assert OWN in packed.modules
    assert "tests.unit.host.test_shipping" not in packed.modules
    assert unpack_job(packed.data).buckets == 1
    assert OWN not in pack_job(job(tmp_path, hr.sum("v"))).modules


def test_a_worker_that_unpacks_a_query_keeps_freed_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Workers of a cluster are not forked from the process that does so on this machine."""
    kept: list[bool] = []
    monkeypatch.setattr(worker, "keep_freed_memory", lambda: kept.append(True))
    packed = pack_job(job(tmp_path, hr.sum("v"))).data
    assert worker._job(packed) is worker._job(packed)
    assert kept == [True]


def test_modules_that_are_used_travel_and_installed_ones_do_not():
    used = shipping.used_modules({OWN, "headrace.plan", "json", "pyarrow", "no.such.module", "__main__"})
    assert used == {OWN, HELPERS}


def test_of_a_package_without_init_only_the_modules_travel(sent: dict[str, bytes]):
    shipping.ship_code(None, {OWN})  # type: ignore[arg-type]
    assert names(sent["modules"]) == [f"{name.replace('.', '/')}.py" for name in (HELPERS, OWN)]


def test_a_package_travels_whole(sent: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "house_package"
    (package / "inner").mkdir(parents=True)
    for path in ("__init__.py", "rates.txt", "inner/__init__.py", "inner/deep.py"):
        (package / path).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("house_package.inner")
    shipping.ship_code(None, {"house_package.inner"})  # type: ignore[arg-type]
    assert names(sent["modules"]) == [
        f"house_package/{path}" for path in ("__init__.py", "inner/__init__.py", "inner/deep.py", "rates.txt")
    ]


def test_wheels_of_a_server_travel_to_this_machine_too(
    sent: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shipping, "may_be_elsewhere", lambda _: False)
    package = tmp_path / f"{WHEEL_PREFIX}a"
    package.mkdir()
    for path in ("__init__.py", "used.py", "other.py"):
        (package / path).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__(f"{package.name}.used")
    shipping.ship_code(None, {f"{package.name}.used", OWN})  # type: ignore[arg-type]
    assert names(sent["modules"]) == [f"{package.name}/{path}" for path in ("__init__.py", "other.py", "used.py")]


def test_files_that_are_named_travel_in_every_form(sent: dict[str, bytes], tmp_path: Path):
    (tmp_path / "one.py").write_text("x = 1\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    with zipfile.ZipFile(tmp_path / "built-1.0.whl", "w") as wheel:
        wheel.writestr("built.py", "y = 2\n")
    files = [str(tmp_path / name) for name in ("one.py", "package", "built-1.0.whl")]
    shipping.ship_code(None, (), files)  # type: ignore[arg-type]
    assert {name: names(data) for name, data in sent.items()} == {
        "one": ["one.py"], "package": ["package/__init__.py"], "built-1.0": ["built.py"],
    }  # fmt: skip
    for wrong in ("no_such_file.py", str(tmp_path / "rates.csv")):
        with pytest.raises(HostError, match="py_files= names code to send to workers"):
            shipping.ship_code(None, (), [wrong])  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_interpreter_without_headrace_imports_it_from_the_archive(sent: dict[str, bytes], tmp_path: Path):
    """It is unpacked once; a second process, at the same time or later, uses the same folder."""
    shipping.ship_headrace(None)  # type: ignore[arg-type]
    shipping.ship_code(None, {OWN})  # type: ignore[arg-type]
    paths = [tmp_path / f"{name}-1.zip" for name in sent]
    for path, data in zip(paths, sent.values(), strict=True):
        path.write_bytes(data)
    code = (
        f"import sys; sys.path[1:1] = {list(map(str, paths))}; import headrace.host.spark.worker; import {OWN} as own; "
        "print(headrace.__file__, own.__file__)"
    )
    environment = {"HEADRACE_CACHE": str(tmp_path / "cache"), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", code]
    runs = [subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for run in runs:
        assert run.communicate()[0].split() == [
            str(tmp_path / "cache/code/headrace-1/headrace/__init__.py"),
            str(tmp_path / f"modules-1.zip/{OWN.replace('.', '/')}.py"),
        ]
    assert [path.name for path in (tmp_path / "cache/code").iterdir()] == ["headrace-1"]
