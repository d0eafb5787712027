"""The Spark session: options that win, errors that help, and what a running session is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import HostError
from headrace.host.spark import session

JVM = "spark.driver.extraJavaOptions"


def test_options_of_the_user_win_and_jvm_options_are_joined() -> None:
    options = session._launch_options("local[2]", {"spark.ui.enabled": "true", JVM: "-Dmine=1"}, "app")
    assert options["spark.ui.enabled"] == "true"
    assert "-Dmine=1" in options[JVM]
    assert "log4j2.properties" in options[JVM]


def test_a_distant_connect_server_gets_no_launch_options() -> None:
    assert session._launch_options("sc://host:15002", {}, "app") == {"spark.app.name": "app"}


def test_workers_are_forked_with_headrace_imported_on_this_machine_alone() -> None:
    name = "spark.python.daemon.module"
    assert session._launch_options("local[2]", {}, "app")[name] == "headrace.host.spark.daemon"
    assert session._launch_options("local[2]", {name: "mine"}, "app")[name] == "mine"
    assert name not in session._launch_options("spark://host:7077", {}, "app")


def test_the_first_session_has_the_archive_of_classes_written_and_later_ones_use_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tmp_path / "classes.jsa"
    monkeypatch.setenv(session.ARCHIVE_VARIABLE, str(archive))
    assert session._archive_flags()[0] == f'"-XX:ArchiveClassesAtExit={archive}"'
    assert session._archive_flags() == []  # another process is about to write it
    os.utime(archive.with_suffix(".writing"), (0, 0))
    assert session._archive_flags()[0] == f'"-XX:ArchiveClassesAtExit={archive}"'  # which did not come to it
    archive.touch()
    assert session._archive_flags()[0] == f'"-XX:SharedArchiveFile={archive}"'
    monkeypatch.setenv(session.ARCHIVE_VARIABLE, "off")
    assert session._archive_flags() == []


def test_the_archive_is_in_the_cache_folder_if_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(session.ARCHIVE_VARIABLE, raising=False)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    assert session._archive_flags()[0].startswith(f'"-XX:ArchiveClassesAtExit={tmp_path / "classes"}')
    (tmp_path / "file").touch()
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "file"))
    assert session._archive_flags() == []


def test_a_damaged_archive_of_classes_is_not_used_and_nothing_else_happens(tmp_path: Path) -> None:
    folder = tmp_path / 'a "cache" \\ ü'
    folder.mkdir()
    (folder / "classes.jsa").write_bytes(b"nonsense" * 1000)
    done = _counted({session.ARCHIVE_VARIABLE: str(folder / "classes.jsa")})
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr


def test_the_log_of_a_start_that_failed_is_there_to_be_read(tmp_path: Path) -> None:
    done = _counted({"JAVA_TOOL_OPTIONS": "-XX:NoSuchOption", "TMPDIR": str(tmp_path)})
    (log,) = tmp_path.glob("headrace-spark-*.log")
    assert f"read {log}" in done.stderr
    assert "NoSuchOption" in log.read_text()


def _counted(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Three rows, counted by a Spark of its own."""
    code = "from headrace.host.spark.session import get_session as s; print(s('local[1]').range(3).count())"
    run = [sys.executable, "-c", code]
    return subprocess.run(run, check=False, env=os.environ | environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("url", "remote"),
    [("local[2,4]", None), ("yarn", None), ("sc://h:1", "sc://h:1"), ("remote:local[2]", "local[2]")],
)
def test_which_masters_go_through_connect(url: str, remote: str | None) -> None:
    assert session._remote(url) == remote


def test_missing_java_is_a_host_error_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="needs Java") as caught:
        session._check_java("local[2]")
    assert "JAVA_HOME" in caught.value.instead
    session._check_java("sc://host:15002")


SCRIPT = """
import sys
from headrace.host.spark.session import beside, get_session, is_connect, warm_up

spark = get_session(sys.argv[1])
assert get_session() is spark and is_connect(spark) == sys.argv[1].startswith("remote:")
warm_up(spark, ["headrace.errors"]).join()
name = "spark.sql.adaptive.enabled"
spark.conf.set("spark.sql.shuffle.partitions", "7")
spark.conf.set(name, "true")
before = spark.conf.getAll
if not is_connect(spark):  # where a session is the client's own
    mine = beside(spark)
    assert mine.conf.get("spark.sql.shuffle.partitions") == "7" and mine.conf.get(name) == "false"
assert spark.conf.getAll == before and spark.conf.get(name) == "true"
rows = spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
assert sorted(r.id for r in rows) == [0, 1]
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.parametrize("master", ["local[2,4]", "remote:local[2,4]"])
def test_a_session_starts_quietly_and_takes_query_options(master: str) -> None:
    """In a process of its own: one process holds one kind of session."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, master], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    # The JVM's own line about incubator modules cannot be turned off, and a worker may complain when its JVM goes away.
    assert not [line for line in done.stderr.splitlines() if "WARN " in line or "ERROR " in line or "log4j" in line]
