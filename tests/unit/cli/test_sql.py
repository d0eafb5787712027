"""The shell: what it executes, what it shows, and what it makes of keys."""

from __future__ import annotations

import io
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from tests.fixtures.ports import refusing_port
from tests.fixtures.waiting import PATIENCE
from typer.testing import CliRunner

from headrace.cli import app
from headrace.cli.sql.colour import colour_lines
from headrace.cli.sql.complete import candidates
from headrace.cli.sql.pieces import is_complete, pieces
from headrace.cli.sql.prompt import converse, history_file
from headrace.cli.sql.shell import ExitShell, Shell
from headrace.errors import PlanError, SourceError, SqlError
from headrace.sql.session import SqlSession

TICKS = "symbol,ts,price\nA,1,10.0\nB,4,50.0\nA,12,12.0\nA,5,11.0\nB,31,54.0\n"
MADE = "CREATE STREAM ticks (symbol STRING, ts LONG, price DOUBLE) ORDER BY ts SOURCE FILE ('ticks.csv');"
SUMS = "SELECT symbol, sum(price) AS s FROM ticks [TUMBLING 10 us] GROUP BY symbol;"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ticks.csv").write_text(TICKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


class Seen(Shell):
    """A shell whose screen can be read."""

    def __init__(self, *, terminal: bool = False) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        consoles = [
            Console(file=f, width=120, force_terminal=terminal, color_system=None) for f in (self.out, self.err)
        ]
        super().__init__(SqlSession(), *consoles)

    def text(self, statements: str) -> str:
        """What is shown of these statements alone."""
        self.out.seek(0)
        self.out.truncate()
        self.execute(statements)
        return self.out.getvalue()

    def watched(self, steps: Mapping[str, Callable[[], None]]) -> str:
        """What `\\watch` shows until Ctrl-C, which follows the last words: at each it does what is to be done then."""
        left = iter(steps.items())
        words, act = next(left)
        deadline = time.monotonic() + PATIENCE

        def look(seconds: float) -> None:
            nonlocal words, act
            assert time.monotonic() < deadline, f"no {words!r} in {self.out.getvalue()[-3000:]}"
            if words in self.out.getvalue():
                act()
                words, act = next(left, (None, None))
                if words is None:
                    raise KeyboardInterrupt
            time.sleep(seconds)

        with mock.patch("headrace.cli.sql.shell.time", SimpleNamespace(monotonic=time.monotonic, sleep=look)):
            return self.text("\\watch 0.1")


def nothing() -> None:
    """To be done when the last words are seen."""


@pytest.fixture
def shell(place: Path) -> Iterator[Seen]:  # noqa: ARG001 - where it is
    seen = Seen()
    seen.execute(MADE)
    yield seen
    seen.close()


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("─")]


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_pieces_end_where_statements_end():
    text = "SELECT ';' -- ;\n FROM s; /* ; */ \\view changes\n ;; SELECT \"a;\" `;` FROM t"
    found = list(pieces(text))
    assert [(p.text.split()[0], p.is_command, p.complete) for p in found] == [
        ("SELECT", False, True),
        ("\\view", True, True),
        ("SELECT", False, False),
    ]
    assert found[1].text == "\\view changes"
    assert all(text.startswith(p.text[:6], p.start) for p in found)


@pytest.mark.parametrize(
    ("text", "complete"),
    [("", True), ("SELECT 1", False), ("SELECT 1;", True), ("SELECT ';", False), ("SELECT 1; -- end", True),
     ("SELECT 1 /* ;", False), ("SELECT 'it''s;", False), ("\\view", True), ("a;\nb", False), ('"a;', False)],
)  # fmt: skip
def test_what_is_complete(text: str, *, complete: bool):
    assert is_complete(text) is complete


@given(st.text(alphabet="ab;'\"`-/*\\\n ", max_size=40))
def test_nothing_is_lost_between_pieces(text: str):
    found = list(pieces(text))
    assert [p.start for p in found] == sorted(p.start for p in found)
    for piece in found:
        placed = piece.placed(text)
        assert placed.count("\n") - piece.text.count("\n") == text[: piece.start].count("\n")
        assert text[piece.start :].startswith(piece.text)
    assert "".join("".join(part for _, part in line) + "\n" for line in colour_lines(text)) == text + "\n"


# --- answers ---------------------------------------------------------------------------------------------------------


def test_the_three_views(shell: Seen):
    shell.execute("SET batch_rows = 3;")
    assert cells(shell.text(SUMS)) == [
        ["from", "to", "symbol", "s"], ["0", "10", "A", "21.0"], ["0", "10", "B", "50.0"], ["10", "20", "A", "12.0"],
        ["30", "40", "B", "54.0"], ["4", "rows"],
    ]  # fmt: skip
    changes = cells(shell.text(f"\\view changes\n{SUMS}"))
    assert ["±", "1", "0", "10", "A", "10.0", "→", "21.0"] in changes
    assert ["+", "0", "0", "10", "B", "50.0"] in changes
    events = cells(shell.text(f"SET view = events; {SUMS}"))
    assert ["retract", "0", "10", "0", "A", "10.0"] in events
    assert events[0][0] == "kind"


def test_long_answers_are_cut(shell: Seen):
    assert "2 rows, and 2 more" in shell.text(f"SET rows = 2; {SUMS}")


def test_what_exists_can_be_shown(shell: Seen):
    assert "csv ticks.csv" in shell.text("SHOW STREAMS;")
    assert ["price", "DOUBLE"] in cells(shell.text("DESCRIBE ticks;"))
    assert "price > 1" in shell.text("EXPLAIN SELECT symbol FROM ticks WHERE price > 1.0;")
    shell.execute(f"QUERY sums AS {SUMS}")
    assert "sums" in shell.text("SHOW QUERIES;")
    assert "\\watch" in shell.text("\\help")
    assert "all passed" in shell.text("VERIFY ticks SEEDS 2;")


def test_answers_go_to_files(shell: Seen, place: Path):
    shell.execute("INSERT INTO FILE ('out') SELECT symbol FROM ticks;")
    assert "written to" in shell.err.getvalue()
    assert list((place / "out").glob("batch-*/part-*.jsonl"))


def test_a_file_is_executed_from_where_it_is(shell: Seen, place: Path):
    (place / "sub").mkdir()
    (place / "sub" / "ticks.csv").write_text("symbol,ts,price\nZ,1,1.0\n")
    (place / "sub" / "more.sql").write_text(f"{MADE.replace('ticks (', 'more (')} SELECT symbol FROM more;")
    assert ["1", "2", "Z"] in cells(shell.text("\\i sub/more.sql"))
    assert "5 rows" in shell.text("SELECT symbol FROM ticks;")
    (place / "round.sql").write_text("\\i round.sql")
    with pytest.raises(PlanError, match="includes itself"):
        shell.execute("\\i round.sql")
    with pytest.raises(SourceError, match="cannot be read"):
        shell.execute("\\i none.sql")


def test_mistakes_are_told_at_their_place(shell: Seen):
    with pytest.raises(SqlError) as caught:
        shell.execute(f"SHOW STREAMS;\n\\view changes\n  {SUMS.replace('sum(price)', 'sum(prize)')}")
    assert caught.value.line == 3
    assert "^^^^^" in str(caught.value)
    assert shell.session.catalog.settings["view"] == "changes"
    for wrong, instead in (
        ("\\wtch", "watch"),
        ("\\view a b", "view"),
        ("\\watch never", "watch"),
        ("\\stop", "watch"),
    ):
        with pytest.raises(PlanError, match=instead):
            shell.execute(wrong)
    with pytest.raises(SqlError, match="view cannot be"):
        shell.execute("\\view pictures")
    with pytest.raises(ExitShell):
        shell.execute("\\q")


@pytest.mark.parametrize("words", ["help", "HELP;", "help ;\n", "\\?", "\\help;"])
def test_help_needs_no_backslash(shell: Seen, words: str):
    assert "\\watch" in shell.text(words)


@pytest.mark.parametrize("words", ["exit", "quit;", "Exit ;", "\\q", "\\quit", "SHOW STREAMS;\nquit\n"])
def test_ways_out(shell: Seen, words: str):
    assert is_complete(words)
    with pytest.raises(ExitShell):
        shell.execute(words)


def test_bare_words_are_commands_only_where_a_statement_begins(shell: Seen):
    assert [(p.text, p.is_command) for p in pieces("SELECT\nhelp\nFROM ticks;\nhelp\n")] == [
        ("SELECT\nhelp\nFROM ticks;", False),
        ("help", True),
    ]
    with pytest.raises(SqlError, match="help"):
        shell.execute("help FROM ticks;")


def test_what_exists_as_in_psql(shell: Seen, place: Path):
    (place / "names.csv").write_text("symbol,name\nA,Ant\n")
    shell.execute("CREATE TABLE names (symbol STRING, name STRING) SOURCE FILE ('names.csv');")
    assert ["ticks", "stream", "symbol", "STRING,", "ts", "LONG,", "price", "DOUBLE"] in cells(shell.text("\\d"))
    assert [row[:2] for row in cells(shell.text("\\d"))][1:] == [["ticks", "stream"], ["names", "table"]]
    shown = shell.text("\\d ticks;")
    assert ["price", "DOUBLE"] in cells(shown)
    assert "from csv ticks.csv" in shown
    assert "names" in shell.text("\\dt")
    assert "ticks" in shell.text("\\ds")
    assert "sqrt" in shell.text("\\df")
    assert "nothing exists yet" in Seen().text("\\d")
    with pytest.raises(SqlError, match="there is no schema, stream or table 'tick'"):
        shell.execute("\\d tick")
    with pytest.raises(PlanError, match="EXPLAIN ANALYZE"):
        shell.execute("\\timing")


def test_values_are_as_sql_writes_them(shell: Seen, place: Path, capsys: pytest.CaptureFixture[str]):
    (place / "odd.csv").write_text("k,ts,x,ok\na,2024-05-01T12:00:01Z,,true\n,2024-05-01T12:00:02Z,nan,\n")
    shell.execute(
        "CREATE STREAM odd (k STRING, ts DATETIME, x DOUBLE, ok BOOLEAN) ORDER BY ts SOURCE FILE ('odd.csv');"
    )
    first, second = (f"2024-05-01T12:00:0{i}" for i in (1, 2))
    expected = [
        [first, f"{first}.000001", "a", first, "NULL", "TRUE"],
        [second, f"{second}.000001", "NULL", second, "NaN", "NULL"],
    ]
    assert cells(shell.text("SELECT * FROM odd;"))[1:3] == expected
    events = cells(shell.text("SET view = events; SELECT * FROM odd;"))
    assert [row[1:] for row in events[1:3]] == expected
    assert events[3] == ["cti", "∞"]  # a CTI has no values
    assert [row[2:] for row in cells(shell.text("SET view = changes; SELECT * FROM odd;"))[1:3]] == expected
    shell.execute("INSERT INTO CONSOLE SELECT * FROM odd;")
    printed = [re.split(r"[\s│]+", line.strip("│ ")) for line in capsys.readouterr().out.splitlines()]
    assert all(["new", *row] in printed for row in expected)
    assert "NULL" in shell.text("SHOW SETTINGS;")


# --- watching --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_watching_follows_new_files(place: Path):
    seen = Seen(terminal=True)
    (place / "in").mkdir()
    (place / "in" / "0.csv").write_text(TICKS)
    seen.execute(MADE.replace("ticks.csv", "in") + SUMS)
    with pytest.raises(PlanError, match="no terminal to watch on"):
        Seen.execute(Seen(), MADE + SUMS + "\\watch")

    def deliver() -> None:
        (place / "1.tmp").write_text("symbol,ts,price\nC,2,7.0\n")
        (place / "1.tmp").rename(place / "in" / "1.csv")

    text = seen.watched({"3 rows": deliver, "4 rows": nothing})
    assert text.index("3 rows") < text.index("4 rows")
    assert seen.followed is None


@pytest.mark.slow
def test_watching_follows_a_table_of_the_session(place: Path):  # noqa: ARG001 - where it is
    seen = Seen(terminal=True)
    seen.execute("CREATE TABLE stock (item STRING, n LONG); INSERT INTO stock VALUES ('ham', 3);")
    seen.execute("SELECT item, sum(n) AS n FROM stock GROUP BY item;")

    def deliver() -> None:
        seen.session.execute("INSERT INTO stock VALUES ('ham', 40), ('eggs', 600)")

    text = seen.watched({"1 row": deliver, "2 rows": nothing})
    assert text.index("1 row") < text.index("2 rows")
    assert "43" in text
    assert "keeps running" in text
    seen.execute("UPDATE stock SET n = 7000 WHERE item = 'eggs'")
    seen.watched({"7000": nothing})
    seen.execute("\\stop")
    assert seen.followed is None


@pytest.mark.slow
def test_hosts_are_watched_and_not_waited_for(place: Path):  # noqa: ARG001 - where it is
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        seen = Seen(terminal=True)
        seen.execute(f"CREATE STREAM sent (x LONG, ts LONG) ORDER BY ts SOURCE HOST ('127.0.0.1', {port});")
        assert "has no end" in seen.text("SELECT x FROM sent;")

        def serve() -> None:
            with closing(server.accept()[0]) as connection:
                connection.sendall(b"1,10\n2,11\n")
                assert shown.wait(PATIENCE)

        shown = threading.Event()
        sender = threading.Thread(target=serve)
        sender.start()
        seen.watched({"2 rows": shown.set})
        seen.close()
        sender.join()


@pytest.mark.slow
def test_watching_shows_diverted_rows_and_refused_connections(place: Path):
    (place / "ticks.csv").write_text(TICKS + "A,x,1.0\nA,2,1.0\n")
    with refusing_port() as nobody:
        port = nobody.getsockname()[1]
        seen = Seen(terminal=True)
        seen.execute(
            f"""{MADE.rstrip(";")} WITH PROGRESS ADVANCE 10 us LATE DIVERT;
            CREATE STREAM sent (symbol STRING, ts LONG) ORDER BY ts SOURCE HOST ('127.0.0.1', {port});
            SELECT symbol FROM ticks UNION ALL SELECT symbol FROM sent;"""
        )
        text = " ".join(seen.watched({"no connection (refused": nothing}).split())
    assert "2 of 7 rows not used (1 late, 1 malformed; 2 diverted)" in text
    assert "A,x,1.0" in text
    assert "late: its sync time 2 is before the CTI 21" in text
    assert f" host 127.0.0.1:{port}: no connection (refused" in text
    assert "A,x,1.0" in seen.text("SHOW DIVERTED;")


# --- keys ------------------------------------------------------------------------------------------------------------


def typed(shell: Shell, keys: str) -> None:
    with create_pipe_input() as pipe:
        pipe.send_text(keys)
        converse(shell, input=pipe, output=DummyOutput())


def test_several_lines_are_one_statement(shell: Seen):
    typed(shell, "SELECT symbol\rFROM ticks\r;\r\x04")
    assert "5 rows" in shell.out.getvalue()


def test_errors_and_interrupts_end_a_statement_and_not_the_shell(shell: Seen):
    typed(shell, "SELECT x FROM ticks;\rSELECT 1\x03DESCRIBE ticks;\rquit\r")
    assert "there is no column 'x'" in shell.err.getvalue()
    assert "cancelled" in shell.err.getvalue()
    assert "DOUBLE" in shell.out.getvalue()


def test_what_was_typed_is_kept(shell: Seen, place: Path):
    typed(shell, "SHOW STREAMS;\r\x04")
    assert history_file() == place / "state" / "headrace" / "history"
    assert "SHOW STREAMS;" in history_file().read_text()
    typed(shell, "\x1b[A\r\x04")  # the arrow up brings it back
    assert shell.out.getvalue().count("csv ticks.csv") == 2


@pytest.mark.parametrize(
    ("before", "after", "some", "none"),
    [
        ("", "", {"SELECT", "CREATE"}, {"FROM"}),
        ("sel", "", {"select"}, {"SELECT"}),
        ("SELECT * FROM ", "", {"ticks"}, {"symbol", "sum("}),
        ("SELECT s", " FROM ticks", {"symbol", "sum(", "sqrt("}, {"price"}),
        ("SELECT t.", " FROM ticks [TUMBLING 5 s] AS t", {"symbol", "price"}, {"sum(", "FROM"}),
        ("SELECT symbol FROM ticks ", "", {"WHERE", "GROUP"}, {"symbol"}),
        ("SELECT * FROM ticks [", "", {"TUMBLING", "HOPPING"}, {"WHERE"}),
        ("SELECT * FROM ticks WHERE p", "", {"price", "power("}, {"symbol"}),
        ("DESCRIBE ", "", {"ticks"}, {"price"}),
        ("SHOW ", "", {"STREAMS", "QUERIES"}, {"ticks"}),
        ("SET v", "", {"view"}, {"host"}),
        ("SET view = ", "", {"events", "changes", "history"}, {"local"}),
        ("\\w", "", {"watch"}, {"view"}),
        ("\\view ", "", {"changes"}, {"watch"}),
        ("SELECT * FROM ticks; MERGE ", "", {"ticks"}, {"price"}),
        ("WITH ", "", {"RECURSIVE"}, {"SELECT"}),
        ("CREATE STREAM x SOURCE FILE ('", "", {"ticks.csv", "data/"}, {"ticks", ".hidden"}),
        ("CREATE STREAM x SOURCE FILE ('ti", "", {"ticks.csv"}, {"data/"}),
        ("SELECT * FROM ticks INTO JSON ('data/", "')", {"a.csv"}, {"ticks.csv"}),
        ("CREATE STREAM x SOURCE FILE ('none/", "", set(), {"ticks.csv"}),
        ("SELECT * FROM ticks WHERE symbol = 't", "", set(), {"ticks.csv", "ticks"}),
        ("\\i da", "", {"data/"}, {"ticks.csv"}),
        ("\\d t", "", {"ticks"}, {"ticks.csv"}),
        ("EXPLAIN ", "", {"ANALYZE", "ticks"}, {"price"}),
        ("WITH RECURSIVE r AS (SELECT * FROM ticks) ", "", {"MAX", "PROGRESS", "SELECT"}, {"symbol"}),
        ("SELECT * FROM ticks m", "", {"match_recognize"}, {"price"}),
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (",
            "",
            {"PARTITION", "MEASURES", "PATTERN", "ALL"},
            {"symbol", "EXTENT"},
        ),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ", "", {"symbol"}, {"ticks("}),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS p", "", {"price", "prev("}, {"symbol"}),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (", "", {"PERMUTE"}, {"symbol"}),
    ],
)
def test_what_may_come_next(shell: Seen, place: Path, before: str, after: str, some: set[str], none: set[str]):
    (place / "data").mkdir()
    (place / "data" / "a.csv").touch()
    (place / ".hidden").touch()
    found = {word for word, _ in candidates(shell.session.catalog, before, after)}
    assert some <= found
    assert not none & found


def test_colours():
    styles = {text: style for style, text in colour_lines("SELECT sum(x), 'a' FROM t -- c\n\\")[0]}
    assert styles["SELECT"] == styles["FROM"] == "class:keyword"
    assert (styles["sum"], styles["'a'"], styles["-- c"], styles["x"]) == (
        "class:function",
        "class:text",
        "class:comment",
        "",
    )


# --- the command -----------------------------------------------------------------------------------------------------


def command(*arguments: str, given: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["sql", *arguments], input=given)
    return result.exit_code, result.stdout, result.stderr if result.exception is None else str(result.exception)


def test_texts_files_and_pipes(place: Path):
    (place / "made.sql").write_text(MADE)
    code, out, _ = command("-f", "made.sql", "-c", SUMS, "--view", "events")
    assert code == 0
    assert cells(out)[1][:3] == ["insert", "0", "10"]
    assert command(given=f"{MADE}\nSELECT symbol\nFROM ticks;\n\\quit\nnonsense")[1].count("\n") == 8
    code, out, told = command("-c", "SHOW STREAMS", "-c", "SELECT 1 FROM nothing", "-c", "SHOW SCHEMAS")
    assert code == 1
    assert "SELECT 1 FROM nothing\n" in told
    assert "schema" not in out


def test_files_outside_the_allowed_roots_are_refused(place: Path):  # noqa: ARG001 - where it is
    assert "may not use files there" in command("--allow-root", "elsewhere", "-c", MADE)[2]


@pytest.mark.slow
def test_spark_is_not_loaded():
    code = (
        "import sys; from headrace.cli import app; app(['sql', '-c', 'SHOW STREAMS'], standalone_mode=False);"
        "assert not {'pyspark', 'pandas', 'prompt_toolkit', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=240)
