"""A real schema registry on this machine: Apicurio, which has the interface of Confluent's registry, in memory.

It is fetched once from Maven's repository (109 MB) and kept in the cache folder (`headrace.cache`). It listens on
127.0.0.1 only.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fixtures.ports import free_ports
from tests.services.kafka_jars import java_home, run_maven

from headrace.cache import cache_folder

__all__ = ["schema_registry"]

APICURIO = "3.0.9"
_GET = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"
#: The registry's own description needs repositories that Maven does not know; a short one stands in for it.
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.apicurio</groupId>
  <artifactId>apicurio-registry-app</artifactId>
  <version>{APICURIO}</version>
</project>
"""
_SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_SECONDS = 120


@contextmanager
def schema_registry(folder: Path) -> Iterator[str]:
    """The URL of a registry, which ends with the block; its log is in the folder."""
    java = java_home() / "bin" / "java"
    port, management = free_ports(2)
    options = {
        "http.host": "127.0.0.1",
        "http.port": port,
        "management.host": "127.0.0.1",
        "management.port": management,
    }
    command = [str(java), "-Xmx400m", *(f"-Dquarkus.{name}={value}" for name, value in options.items())]
    log = folder / "registry.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "-jar", str(_program())], stdout=out, stderr=out, cwd=folder)
    try:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        _wait(url, process, log)
        yield url
    finally:
        process.kill()
        process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=2):  # noqa: S310 - the server above
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"the schema registry did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _program() -> Path:
    """The jar that starts the registry. The first call on a machine needs the network."""
    cache = cache_folder("tests")
    if cache is None:
        raise RuntimeError("no cache folder for the registry: point HEADRACE_CACHE at a folder that can be written")
    home = cache / f"apicurio-{APICURIO}"
    with (cache / "apicurio.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may start at once
        if not home.is_dir():
            _fetch(home)
    return home / f"apicurio-registry-app-{APICURIO}-runner.jar"


def _fetch(home: Path) -> None:
    """Unpack into a folder beside, and give it its name when it is complete."""
    partial = home.with_name(home.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    repository = partial / "repository"
    folder = repository / "io" / "apicurio" / "apicurio-registry-app" / APICURIO
    folder.mkdir(parents=True)
    (folder / f"apicurio-registry-app-{APICURIO}.pom").write_text(_POM)
    artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
    run_maven(_GET, artifact, "-Dtransitive=false", f"-Dmaven.repo.local={repository}")
    archive = folder / f"apicurio-registry-app-{APICURIO}-all.tar.gz"
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != _SHA256:
        raise RuntimeError(f"{archive.name} is not the file that was expected: its SHA-256 is {found}")
    with tarfile.open(archive) as packed:
        packed.extractall(partial, filter="data")
    shutil.rmtree(repository)
    partial.rename(home)
