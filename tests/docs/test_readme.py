"""The examples of README and docs, typed in as they stand.

The blocks of one page run in order, in one namespace and one directory, as a reader would run them. A block marked
`title=NAME` is a file that the reader is told to write. A Python block with a line `# not run` is left out, one with a
line `# on Spark` runs only in the test that has a Spark session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

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
        return self.language == "python" and not self._says("not run") and not self.on_spark

    def _says(self, words: str) -> bool:
        return re.search(rf"^# {words}\b", self.text, re.MULTILINE) is not None


def blocks(page: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(page):
        language, _, rest = match["info"].partition(" ")
        title = rest.strip().removeprefix("title=").strip('"')
        found.append(Block(language, title, match["text"], page.count("\n", 0, match.start("text")) + 1))
    return found


def run(page: Path, *, on_spark: bool = False) -> int:
    """Write the page's files and run its Python blocks here; how many were run."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(page.read_text()):
        if block.title:
            Path(block.title).write_text(block.text)
        elif block.runs or (on_spark and block.on_spark):
            # Blank lines before the block make the line numbers of a traceback those of the page.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)  # noqa: S102 - our own page
            ran += 1
    return ran


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    ran = run(page)
    assert ran > 0 or page.name != "README.md", "README shows at least one example that runs"


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.on_spark for block in blocks(page.read_text()))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_examples_run_on_spark(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert run(page, on_spark=True) > 0


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
