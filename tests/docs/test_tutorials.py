"""The tutorials for people who do not write Python, typed in as they stand.

Statements of `sql` blocks go into one shell, from the top of a page to its end; what the shell answers must be what the
`text` block below shows. Blocks with a title are files. Of a `console` block each command is run, and its whole output
compared; one that names Spark is run in the test that has a session.
"""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.docs.test_readme import ROOT, Block, blocks
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.sql.shell import Shell
from headrace.errors import HeadraceError
from headrace.sql.session import SqlSession

TUTORIALS = [ROOT / "docs" / "tutorials" / "sql.md"]
every_tutorial = pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the reader's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Reader:
    """Types a page in, and remembers what was answered last."""

    def __init__(self) -> None:
        self.said = StringIO()
        quiet = Console(file=StringIO())
        self.shell = Shell(SqlSession(), Console(file=self.said, width=200, highlight=False), quiet)
        self.answered = ""

    def read(self, block: Block) -> None:
        """Do what a block tells to do."""
        if block.title:
            Path(block.title).write_text(block.text)
        elif block.language == "sql":
            self.answered = self._typed(block.text)
        elif block.language == "text":
            assert self.answered == plain(block.text), f"line {block.line}"

    def _typed(self, text: str) -> str:
        self.said.seek(0)
        self.said.truncate()
        try:
            self.shell.execute(text)
        except HeadraceError as error:
            return plain(f"{self.said.getvalue()}{error}")
        return plain(self.said.getvalue())


def plain(text: str) -> str:
    """Lines without the spaces behind them."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def commands(page: Path, *, on_spark: bool) -> list[tuple[list[str], str]]:
    """The commands of a page, and what they print."""
    return [
        (arguments, plain("\n".join(block.text.splitlines()[1:])))
        for block in blocks(page.read_text())
        for arguments in block.commands
        if ("spark" in arguments) is on_spark
    ]


def run(arguments: list[str]) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return plain(done.stdout)


def write_files(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.title:
            Path(block.title).write_text(block.text)


@every_tutorial
@pytest.mark.usefixtures("here")
def test_what_is_typed_is_answered_so(page: Path):
    reader, found = Reader(), blocks(page.read_text())
    for block in found:
        reader.read(block)
    assert sum(block.language == "text" for block in found) > 10


@every_tutorial
@pytest.mark.usefixtures("here")
def test_commands_print_what_is_shown(page: Path):
    write_files(page)
    for arguments, shown in commands(page, on_spark=False):
        assert run(arguments) == shown


@every_tutorial
@pytest.mark.usefixtures("spark", "here")
def test_commands_on_spark_print_what_is_shown(page: Path):
    write_files(page)
    for arguments, shown in commands(page, on_spark=True):
        assert run(arguments) == shown
