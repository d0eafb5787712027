"""The examples of README and docs, typed in as they stand.

The blocks of one page run in order, in one namespace and one directory, as a reader would run them. A block marked
`title=NAME` is a file that the reader is told to write; if its name is `test_*.py`, pytest runs it. A Python block with
a line `# not run` is left out, one with a line `# on Spark` runs only in the test that has a Spark session, and one
with a line `# with Kafka` or `# with PostgreSQL` only where these run (`tests/services/test_docs.py`). Of a
`console` block each line `$ headrace ...` is run; it must end well, unless the block shows that something failed. The
tutorials that need no Python are read by `test_tutorials`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.fixtures.spans import without_provider

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it is to be written to, its text and where it starts."""

    language: str
    title: str
    text: str
    line: int

    @property
    def on_spark(self) -> bool:
        return self.language == "python" and self._says("on Spark")

    @property
    def runs(self) -> bool:
        return self.language == "python" and not (self._says("not run") or self.on_spark or self.service)

    @property
    def service(self) -> bool:
        return self.language == "python" and self._says("with (Kafka|PostgreSQL|Kafka and PostgreSQL)")

    @property
    def commands(self) -> list[list[str]]:
        """What is typed into a terminal, without the name of the program."""
        if self.language != "console":
            return []
        return [shlex.split(line)[2:] for line in self.text.splitlines() if line.startswith("$ headrace ")]

    @property
    def fails(self) -> bool:
        """Whether the output that is shown is that of a failure."""
        return re.search(r"\d+ failed$", self.text, re.MULTILINE) is not None

    def _says(self, words: str) -> bool:
        return re.search(rf"^# {words}\b", self.text, re.MULTILINE) is not None


def blocks(page: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(page):
        language, _, rest = match["info"].partition(" ")
        title = rest.strip().removeprefix("title=").strip('"')
        found.append(Block(language, title, match["text"], page.count("\n", 0, match.start("text")) + 1))
    return found


def write_files(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.title:
            Path(block.title).write_text(block.text)


def run(page: Path, *, on_spark: bool = False, services: Mapping[str, str] | None = None) -> int:
    """Write the page's files and run its Python blocks here; how many were run.

    `services` has the places of services, by what stands for them on the page.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(page.read_text()):
        if block.title:
            Path(block.title).write_text(block.text)
        elif block.runs or (on_spark and block.on_spark) or (services and block.service):
            text = block.text
            for shown, place in (services or {}).items():
                text = text.replace(shown, place)
            # Blank lines before the block make the line numbers of a traceback those of the page.
            code = compile("\n" * (block.line - 1) + text, str(page), "exec", dont_inherit=True)
            exec(code, namespace)  # noqa: S102 - our own page
            ran += 1
    return ran


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of the reader's own, where Python finds the files that a page tells to write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    without_provider(monkeypatch)  # a page may set one
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=120, check=False)


def last_line(output: str) -> str:
    """The last line, whatever the numbers in it."""
    return re.sub(r"\d+", "N", output.splitlines()[-1])


def plugin() -> list[str]:
    """How to have our plugin of pytest, where it is not installed as one."""
    installed = {point.value for point in entry_points(group="pytest11")}
    return [] if "pytest_headrace" in installed else ["-p", "pytest_headrace"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
@pytest.mark.usefixtures("here")
def test_examples_run(page: Path):
    ran = run(page)
    assert ran > 0 or page.name != "README.md", "README shows at least one example that runs"


LONG = pytest.mark.volume("long runs of `headrace verify`, on Spark, too; each part of it has shorter tests")


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=LONG if page.name == "verification.md" else ())
        for page in PAGES
        if page.name != "sql.md" and any(b.commands for b in blocks(page.read_text()))
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_commands_run(page: Path):
    write_files(page)
    for block in blocks(page.read_text()):
        for command in block.commands:
            done = start("headrace", *command)
            assert done.returncode == block.fails, done.stdout + done.stderr
            assert last_line(done.stdout) == last_line(block.text)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.title.startswith("test_") for block in blocks(page.read_text()))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_tests_pass(page: Path):
    write_files(page)
    done = start("pytest", "-q", "-p", "no:cacheprovider", *plugin())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "here")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=LONG if page.name == "verification.md" else ())
        for page in PAGES
        if any(block.on_spark for block in blocks(page.read_text()))
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_examples_run_on_spark(page: Path):
    assert run(page, on_spark=True) > 0


def test_commands_are_found():
    (block,) = blocks("```console\n$ headrace verify a.py --intent 'b & c'\n…\n2 cases: 1 failed\n```\n")
    assert block.commands == [["verify", "a.py", "--intent", "b & c"]]
    assert block.fails
    assert not block.runs


def test_blocks_are_told_apart():
    page = (
        "text\n```csv title=a.csv\nx\n```\n"
        "```python\nprint(1)\n```\n"
        "```python\n# not run: why\nf()\n```\n"
        "```python\n# on Spark\nf()\n```\n"
        "```\nplain\n```\n"
    )
    assert [(b.language, b.title, b.runs, b.on_spark, b.line) for b in blocks(page)] == [
        ("csv", "a.csv", False, False, 3),
        ("python", "", True, False, 6),
        ("python", "", False, False, 9),
        ("python", "", False, True, 13),
    ]
