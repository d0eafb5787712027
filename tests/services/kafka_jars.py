"""The jars of Apache Kafka, fetched once through Maven and kept in the cache folder (`headrace.cache`)."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from headrace.cache import cache_folder

__all__ = ["java_home", "kafka_jars", "run_maven"]

KAFKA, LOG4J = "4.3.1", "2.25.3"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_ROOT = Path(__file__).parents[2]
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId>
  <artifactId>test-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J}</version>
    </dependency>
  </dependencies>
</project>
"""


def kafka_jars() -> Path:
    """The folder of the jars. The first call on a machine takes half a minute and needs the network."""
    cache = cache_folder("tests")
    if cache is None:
        raise RuntimeError("no cache folder for Kafka's jars: point HEADRACE_CACHE at a folder that can be written")
    jars = cache / f"kafka-{KAFKA}-log4j-{LOG4J}"
    with (cache / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may start at once
        if not jars.is_dir():
            _fetch(jars)
    return jars


def java_home() -> Path:
    """The home of the Java that Spark's tests use, too."""
    found = subprocess.run([_ROOT / "scripts" / "java.sh"], check=True, text=True, stdout=subprocess.PIPE)
    return Path(found.stdout.strip())


def _fetch(jars: Path) -> None:
    """Download into a folder beside, and give it its name when it is complete."""
    partial = jars.with_name(jars.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    pom = partial / "pom.xml"
    pom.write_text(_POM)
    run_maven("--file", str(pom), _COPY, f"-DoutputDirectory={partial}", "-DincludeScope=runtime")
    partial.rename(jars)


def run_maven(*arguments: str) -> None:
    """Run Maven, which is installed if possible; its output is shown if it fails."""
    run = subprocess.run(
        [_maven(), "--batch-mode", "--quiet", *arguments],
        env={**os.environ, "JAVA_HOME": str(java_home())},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if run.returncode != 0:
        raise RuntimeError(f"Maven failed: {' '.join(arguments)}\n{run.stdout[-3000:]}")


def _maven() -> str:
    if shutil.which("mvn") is None and shutil.which("apt-get") and os.geteuid() == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update"], check=True, env=quiet)  # noqa: S607 - wherever the system has it
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "maven"], check=True, env=quiet)  # noqa: S607 - same
    found = shutil.which("mvn")
    if found is None:
        raise RuntimeError(
            "the tests of Kafka fetch a broker with Maven, and there is no `mvn`: install Maven"
            " (Debian or Ubuntu: apt-get install maven; macOS: brew install maven)"
        )
    return found


if __name__ == "__main__":
    print(f"Kafka {KAFKA} is in {kafka_jars()}")  # noqa: T201 - `make test-services` fetches it before the tests
