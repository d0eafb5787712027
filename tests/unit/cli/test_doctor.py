"""The command line as a user meets it, and every check of the doctor told about machines that are not this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import cli
from headrace.cli import doctor
from headrace.cli.doctor import DoctorCheck
from headrace.errors import PlanError

ROOT = Path(__file__).parents[3]


def headrace(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def fake_java(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return home


# ---- checks


@pytest.mark.parametrize(
    ("ok", "advice", "verdict"),
    [(True, "", "✓"), (True, "make room", "!"), (False, "install it", "✗"), (False, "", "✗")],
)
def test_verdict(ok: bool, advice: str, verdict: str):
    assert DoctorCheck("x", "y", ok, advice).verdict == verdict


@pytest.mark.parametrize(
    ("version", "ok"), [((3, 10, 13), False), ((3, 11, 0), True), ((3, 13, 1), True), ((4, 0, 0), True)]
)
def test_python(version: tuple[int, ...], ok: bool):
    check = doctor.python_check(version)
    assert check.ok is ok
    assert check.found == ".".join(map(str, version))
    assert bool(check.advice) is not ok


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "25.0.1" 2025-10-21', 25),
        ("no Java at all", None),
    ],
)
def test_java_version(text: str, version: int | None):
    assert doctor.java_version(text) == version


@pytest.mark.parametrize(
    ("version", "ok"), [("17.0.15", True), ("21.0.2", True), ("11.0.20", False), ("1.8.0_401", False)]
)
def test_java_of_java_home(tmp_path: Path, version: str, ok: bool):
    home = fake_java(tmp_path / "jdk", f"echo 'openjdk version \"{version}\"' >&2")
    check = doctor.java_check({"JAVA_HOME": str(home), "PATH": ""})
    assert check.ok is ok
    assert f"JAVA_HOME={home}" in check.found
    assert ("17" in check.advice) is not ok


def test_java_home_comes_before_the_path(tmp_path: Path):
    old = fake_java(tmp_path / "old", "echo 'openjdk version \"11.0.20\"' >&2")
    new = fake_java(tmp_path / "new", "echo 'openjdk version \"17.0.15\"' >&2")
    assert not doctor.java_check({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).ok
    assert doctor.java_check({"PATH": str(new / "bin")}).ok


def test_java_missing(tmp_path: Path):
    check = doctor.java_check({"PATH": str(tmp_path)})
    assert not check.ok
    assert "install Java 17" in check.advice


def test_java_that_does_not_run(tmp_path: Path):
    assert "unset" in doctor.java_check({"JAVA_HOME": str(tmp_path), "PATH": ""}).advice
    broken = doctor.java_check({"JAVA_HOME": str(fake_java(tmp_path / "jdk", "exit 3")), "PATH": ""})
    assert not broken.ok
    assert "CalledProcessError" in broken.found


def test_the_doctor_and_the_setup_script_support_the_same_java():
    wanted = " ".join(map(str, doctor.SUPPORTED_JAVA))
    assert f'supported="{wanted}"' in (ROOT / "scripts" / "java.sh").read_text()


@pytest.mark.parametrize("package", sorted(doctor.PACKAGES))
def test_packages_of_this_environment(package: str):
    check = doctor.package_check(package)
    assert check.ok, check
    assert check.found == doctor.installed(package)


def test_package_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "installed", lambda _: None)
    check = doctor.package_check("pandas")
    assert (check.ok, check.found) == (False, "not installed")
    assert "pip install pandas" in check.advice


def test_package_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch):
    def broken(name: str) -> None:
        raise ImportError(f"libarrow is missing, wanted by {name}")

    monkeypatch.setattr(doctor.importlib, "import_module", broken)
    check = doctor.package_check("pyarrow")
    assert not check.ok
    assert "libarrow is missing" in check.found


@pytest.mark.parametrize(
    ("total", "ok"), [(2 * 10**9, False), (4 * 10**9 - 1, False), (4 * 10**9, True), (64 * 10**9, True)]
)
def test_memory(total: int, ok: bool):
    check = doctor.memory_check(total)
    assert check.ok is ok
    assert check.found == f"{total / 10**9:.1f} GB in all"


def test_memory_of_a_container_is_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(doctor, "_CGROUP_LIMITS", (limit, tmp_path / "absent"))
    limit.write_text("max\n")
    machine = doctor._total_memory()
    limit.write_text("1000000000\n")
    assert doctor._total_memory() == 10**9 < machine


def test_write_access(tmp_path: Path):
    assert doctor.write_check("current directory", tmp_path).ok
    assert list(tmp_path.iterdir()) == []
    gone = doctor.write_check("temporary directory", tmp_path / "gone")
    assert not gone.ok
    assert "TMPDIR" in gone.advice


@pytest.mark.parametrize(("free", "verdict"), [(10**8, "✗"), (2 * 10**9, "!"), (50 * 10**9, "✓")])
def test_disk(tmp_path: Path, free: int, verdict: str):
    assert doctor.disk_check(tmp_path, free).verdict == verdict


def test_disk_of_a_directory_that_is_not_there(tmp_path: Path):
    assert not doctor.disk_check(tmp_path / "gone").ok


# ---- the command


GOOD = DoctorCheck("Python", "3.11.7", ok=True)
BAD = DoctorCheck("Java", "[none]", ok=False, advice="install Java 17")


@pytest.mark.parametrize(("found", "code"), [([GOOD], 0), ([GOOD, BAD], 1)])
def test_exit_code(monkeypatch: pytest.MonkeyPatch, found: list[DoctorCheck], code: int):
    monkeypatch.setattr(doctor, "checks", lambda: found)
    assert CliRunner().invoke(cli.app, ["doctor"]).exit_code == code


def test_table_shows_every_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "checks", lambda: [GOOD, BAD])
    shown = CliRunner().invoke(cli.app, ["doctor"]).output
    for text in ("Python", "3.11.7", "✓", "Java", "[none]", "✗", "install Java 17"):
        assert text in shown


def test_json(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "checks", lambda: [GOOD, BAD])
    said = json.loads(CliRunner().invoke(cli.app, ["doctor", "--json"]).output)
    assert said["ok"] is False
    assert said["checks"][1] == {"name": "Java", "found": "[none]", "ok": False, "advice": "install Java 17"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "RuntimeError"),
        ("Java gateway exited\nbefore sending its port", "Java gateway exited"),
        ("Traceback:\n  File x\nModuleNotFoundError: No pyarrow\n SQLSTATE", "ModuleNotFoundError: No pyarrow"),
    ],
)
def test_spark_failure_says_why(monkeypatch: pytest.MonkeyPatch, text: str, reason: str):
    def fail() -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(doctor, "_tiny_query", fail)
    check = doctor.spark_check()
    assert (check.ok, check.found) == (False, reason)


def test_spark_wrong_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_tiny_query", lambda: (7, 0.0))
    assert not doctor.spark_check().ok


@pytest.mark.spark
def test_spark_starts_and_answers():
    ran = headrace("doctor", "--spark", "--json")
    last = json.loads(ran.stdout)["checks"][-1]
    assert last["name"] == "Spark"
    assert last["ok"], last
    assert last["found"].startswith("session in ")


# ---- the command line as a whole


@pytest.mark.slow
def test_version():
    ran = headrace("version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("headrace 0.2.0\npyspark ")


@pytest.mark.slow
def test_help_lists_the_commands():
    ran = headrace("--help", COLUMNS="100")
    assert ran.returncode == 0
    for name in ("doctor", "version"):
        assert name in ran.stdout


@pytest.mark.slow
def test_start_up_imports_nothing_heavy():
    code = "import sys, headrace.cli; print(*sorted({'pyspark', 'pandas', 'duckdb'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_errors_of_ours_have_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fail() -> None:
        raise PlanError("a join needs a key", given="[bold]x", instead="on='symbol'")

    monkeypatch.setattr(doctor, "checks", fail)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["doctor"])
    assert exit_.value.code == 1
    said = capsys.readouterr().err
    assert "[PLAN] a join needs a key" in said
    assert "given:   '[bold]x'" in said
    assert "Traceback" not in said


def test_errors_that_are_not_ours_are_not_hidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "checks", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["doctor"])


@pytest.mark.slow
def test_control_c_gives_130_and_no_traceback():
    code = """if True:
        import signal, time
        from headrace import cli
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
        cli.doctor.checks = lambda: (print("up", flush=True), time.sleep(60))
        cli.main(["doctor"])
    """
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Traceback" not in errors
