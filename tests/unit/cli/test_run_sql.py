"""`headrace run`, `explain` and `verify` with scripts of SQL: one query, several outputs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app
from headrace.cli.loading import find, find_stream
from headrace.cli.run.options import HostName, Options, PrintOptions
from headrace.errors import HistoryError, PlanError, SinkError, SourceError, SqlError
from headrace.events import history_diff
from headrace.io.sinks import read_events_output
from headrace.testing.same import read_history

TICKS = "symbol,ts,price\nA,1,10.0\nB,4,50.0\nA,12,12.0\nA,5,11.0\nB,31,54.0\nB,2,9.0\n"
MADE = """
CREATE STREAM ticks (symbol STRING, ts LONG, price DOUBLE) ORDER BY ts SOURCE FILE ('ticks.csv')
    WITH PROGRESS ADVANCE 10 LATE DIVERT;
CREATE STREAM dear AS SELECT * FROM ticks WHERE price > 10.0;
"""
SCRIPT = f"""{MADE}
QUERY counts AS SELECT symbol, count(*) AS n FROM dear [TUMBLING 10 us] GROUP BY symbol;
SELECT symbol, price FROM dear;
INSERT INTO FILE ('out') SELECT symbol FROM dear WHERE symbol = 'A';
"""
COUNTS = [(0, 10, "A", 1), (0, 10, "B", 1), (10, 20, "A", 1), (30, 40, "B", 1)]
DUCKDB = ["--history", "--engine", "duckdb"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "ticks.csv").write_text(TICKS)
    (folder / "job.sql").write_text(SCRIPT)
    return folder / "job.sql"


def call(*arguments: object) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]


def written(file: Path) -> list[dict[str, object]]:
    return read_history(read_events_output(str(file.parent / "out"), "symbol STRING")).to_pylist()


@pytest.mark.parametrize("options", [[], DUCKDB], ids=["live", "history"])
def test_a_script_runs_as_one_query_with_several_outputs(file: Path, options: list[str]):
    counts, answers = call("run", file, *options).split("\n\n")
    name, head, *found = rows(counts)
    assert (name, head) == (["counts"], ["le", "re", "symbol", "n"])
    assert [(int(le), int(re), symbol, int(n)) for le, re, symbol, n in found] == COUNTS
    assert answers.splitlines()[0] == "query_2"
    assert written(file) == [{"le": 5, "re": 6, "symbol": "A"}, {"le": 12, "re": 13, "symbol": "A"}]


def test_shared_parts_run_once(file: Path):
    steps = [s for stage in json.loads(call("explain", file, "--json"))["stages"] for s in stage["steps"]]
    assert sum(step["operator"].startswith("Source") for step in steps) == 1
    assert sum("price > 10" in step["operator"] for step in steps) == 1
    assert {"Output counts", "Output query_2", "Output query_3"} <= {step["operator"] for step in steps}
    assert "CTI delay" in call("explain", f"{file}:counts", "--liveliness")


def test_one_query_or_stream_of_a_script(file: Path):
    head, *found = rows(call("run", f"{file}:counts"))
    assert (head, len(found)) == (["le", "re", "symbol", "n"], 4)
    assert len(rows(call("run", f"{file}:ticks"))) == 6
    assert not (file.parent / "out").exists()
    with pytest.raises(PlanError, match=r"instead: .*job\.sql:counts"):
        find(f"{file}:count")


def test_json_lines_say_whose_they_are_when_there_are_several(file: Path):
    both = [json.loads(line) for line in call("run", file, "--output", "jsonl").splitlines()]
    assert {tuple(line) for line in both} == {("query", "kind", "le", "re", "re_new", "payload")}
    assert [line["query"] for line in both] == sorted((line["query"] for line in both), key=["counts", "query_2"].index)
    one = [json.loads(line) for line in call("run", f"{file}:counts", "--output", "jsonl").splitlines()]
    assert {tuple(line) for line in one} == {("kind", "le", "re", "re_new", "payload")}
    mine = [{k: v for k, v in line.items() if k != "query"} for line in both if line["query"] == "counts"]
    assert mine == one


def test_events_and_what_is_final(file: Path):
    file.write_text(
        f"{MADE} SET batch_rows = 1; SELECT symbol, sum(price) AS s FROM ticks [TUMBLING 10 us] GROUP BY symbol;"
    )
    assert "retract" in call("run", file, "--output", "events")
    assert "retract" not in call("run", file, "--output", "final")


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_histories_of_several_queries_are_written_apart(file: Path, tmp_path: Path):
    place = tmp_path / "to"
    assert call("run", file, "--to", place) == ""
    assert sorted(folder.name for folder in place.iterdir()) == ["counts", "query_2"]
    stream = find_stream(f"{file}:counts")[1]
    assert history_diff(pq.read_table(place / "counts"), stream.cht()) == ""
    file.write_text(f'{MADE} QUERY "../a b" AS SELECT symbol FROM ticks; SELECT price FROM ticks;')
    call("run", file, "--to", tmp_path / "odd")
    assert sorted(folder.name for folder in (tmp_path / "odd").iterdir()) == ["___a_b", "query_2"]


def test_a_directory_in_use_is_refused_before_anything_runs(file: Path):
    call("run", file)
    for options in ([], DUCKDB):
        with pytest.raises(SinkError, match="holds the output of a query already"):
            call("run", file, *options)
    file.write_text(f"{MADE} INSERT INTO FILE ('new') dear; INSERT INTO FILE ('new') ticks;")
    with pytest.raises(SinkError, match="of its own for each output"):
        call("run", file)
    assert not list((file.parent / "new").glob("batch-*"))


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_other_encodings_of_files(file: Path):
    file.write_text(
        f"{MADE} INSERT INTO PARQUET ('final', encoding => 'final') dear;"
        "INSERT INTO FILE ('latest', encoding => 'upsert', key => 'symbol') SELECT symbol, price FROM dear;"
    )
    assert call("run", file) == ""
    final = pq.read_table(sorted((file.parent / "final").glob("batch-*/*.parquet")))
    assert history_diff(final, find_stream(f"{file}:dear")[1].cht()) == ""
    parts = sorted((file.parent / "latest").glob("batch-*/*"))
    lines = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    assert {line["symbol"]: line["price"] for line in lines} == {"A": 12.0, "B": 54.0}
    with pytest.raises(HistoryError, match="latest value"):
        call("run", file, *DUCKDB)


def test_the_console_and_statements_that_show_something(file: Path):
    file.write_text(f"{MADE} SHOW STREAMS; EXPLAIN dear; INSERT INTO CONSOLE SELECT symbol FROM dear;")
    text = call("run", file)
    assert text.index("stream") < text.index("Where price > 10") < text.index("batch 0")
    result = CliRunner().invoke(app, ["run", str(file), "--output", "jsonl"], catch_exceptions=False)
    assert "Where price > 10" in result.stderr


def test_diverted_rows_are_told(file: Path):
    result = CliRunner().invoke(app, ["run", f"{file}:ticks"], catch_exceptions=False)
    assert "1 of 6 rows not used (1 late; 1 diverted)" in result.stderr


def test_the_statements_of_every_query_can_be_read(file: Path):
    text = call("run", file, "--sql", "--engine", "duckdb")
    assert [line for line in text.splitlines() if line in ("-- counts", "-- query_2", "-- query_3")] == [
        "-- counts", "-- query_2", "-- query_3",
    ]  # fmt: skip


def test_files_outside_the_allowed_roots_are_refused(file: Path, tmp_path: Path):
    call("run", file, "--allow-root", file.parent)
    with pytest.raises(SqlError, match="may not use files there"):
        call("run", file, "--allow-root", tmp_path / "elsewhere")


@pytest.mark.slow
def test_verify_takes_queries_of_scripts(file: Path):
    text = call("verify", f"{file}:counts", "--seeds", "4", "--jobs", "1")
    assert "its own data: the live answer is that of the history, 4 rows" in text
    assert "4 cases" in text
    with pytest.raises(PlanError, match="several streams"):
        find_stream(str(file))
    file.write_text(MADE)
    assert find_stream(str(file))[0] == "dear"
    assert call("explain", file).startswith("job")


def test_mistakes_point_into_the_script(file: Path):
    file.write_text(f"{MADE}\nSELECT symbl FROM dear;")
    with pytest.raises(SqlError) as caught:
        call("run", file)
    assert (caught.value.line, caught.value.column) == (6, 8)
    file.write_text(MADE)
    with pytest.raises(PlanError, match="has no query"):
        call("run", file)
    with pytest.raises(SourceError, match="cannot be read"):
        call("run", file.with_name("none.sql"))
    file.write_bytes(b"SELECT '\xff'")
    with pytest.raises(SourceError, match="not UTF-8"):
        call("run", file)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--follow", "--host", "local", "--master", "local"], "instead: --host spark --master local"),
        (["--history", "--follow"], "a history ends"),
        (["--host", "spark", "--checkpoint", "ck", "--output", "cht"], "instead: --checkpoint --output events"),
        (["--host", "spark", "--follow", "--to", "there"], "has no complete history yet"),
    ],
    ids=str,
)
def test_options_that_would_do_nothing_are_refused(file: Path, options: list[str], told: str):
    with pytest.raises(PlanError, match=told):
        call("run", file, *options)


def test_sinks_of_a_run_in_process(tmp_path: Path):
    stream = hr.events("kind|le|re|x\ninsert|1|5|3\n")
    memory = hr.memory()
    run = hr.run({"a": stream, "b": stream}, sinks={"b": memory})
    assert [name for name in run.results if "diverted" not in name] == ["a"]
    assert history_diff(memory.cht(), run.cht("a")) == ""
    with pytest.raises(PlanError, match="a sink for a stream that is not there"):
        hr.run({"a": stream}, sinks={"c": hr.files(str(tmp_path / "c"))})


def test_two_queries_of_one_name_are_refused(file: Path):
    file.write_text(f"{MADE} QUERY a AS SELECT symbol FROM ticks;\nQUERY a AS SELECT price FROM ticks;")
    with pytest.raises(SqlError, match="two queries have the name 'a'") as caught:
        call("run", file)
    assert caught.value.line == 6


def test_what_a_script_sets_counts_unless_told_otherwise(file: Path):
    file.write_text(f"SET host = spark; SET checkpoint = 'state'; {MADE} SELECT symbol FROM ticks;")
    asked = find(str(file))
    told = {"history": False, "engine": None, "late": None, "output": None, "to": None, "master": None, "follow": False}
    options = Options(**told, host=None, checkpoint=None, name=None, only_sql=False)  # type: ignore[arg-type]
    settled = options.with_script_settings(asked)
    assert (settled.host, settled.checkpoint) == (HostName.spark, str(file.parent / "state"))
    assert (settled.name, settled.shown) == ("job", PrintOptions.events)
    assert len(rows(call("run", file, "--host", "local"))) == 6


@pytest.mark.slow
def test_a_query_that_is_followed_shows_lost_rows_and_alarms(tmp_path: Path):
    """Nobody configures the log of a command."""
    data, script = tmp_path / "in", tmp_path / "rows.sql"
    data.mkdir()
    (data / "0.csv").write_text("1,a\n" * 100 + "no time,a\n" * 50)
    script.write_text(
        f"CREATE STREAM t (at LONG, k STRING) ORDER BY at SOURCE FILE ('{data}', ',');\n"
        f"INSERT INTO FILE ('{tmp_path / 'out'}') SELECT * FROM t;\n"
    )
    command = [sys.executable, "-m", "headrace", "run", str(script), "--follow", "--host", "local"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = ""
        while "alarm diverted_share" not in seen:
            line = process.stderr.readline()
            assert line, seen
            seen += line
        process.kill()
    assert "50 of 150 rows not used" in seen


def test_a_run_shows_what_it_has_to_say_and_lost_rows_once(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("at,k,more\n1,a,x\nno time,a,x\n")
    script = tmp_path / "rows.sql"
    script.write_text(
        "CREATE STREAM t (at LONG, k STRING) ORDER BY at\n"
        "SOURCE CSV ('in', on_drift => 'widen');\n"
        "INSERT INTO FILE ('out') SELECT * FROM t;\n"
    )
    answer = CliRunner().invoke(app, ["run", str(script), "--checkpoint", str(tmp_path / "state")])
    assert answer.exit_code == 0
    assert answer.stderr.count("column 'more' is new") == 1
    assert answer.stderr.count("1 of 2 rows not used") == 1


@pytest.mark.slow
def test_a_script_is_followed_in_process_and_goes_on_from_its_checkpoint(tmp_path: Path):
    data, script = tmp_path / "in", tmp_path / "sums.sql"
    data.mkdir()
    (data / "0.csv").write_text("1,a,2\n3,a,4\n12,b,1\n")
    script.write_text(
        f"CREATE STREAM t (at LONG, k STRING, x LONG) ORDER BY at SOURCE FILE ('{data}', ',');\n"
        "SELECT k, sum(x) AS s FROM t [TUMBLING 10 us] GROUP BY k;\n"
    )
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from headrace.cli import app; app()"
    )
    options = ["--follow", "--host", "local", "--checkpoint", str(tmp_path / "state"), "--output", "jsonl"]
    options += ["--metrics-port", "0"]
    command = [sys.executable, "-c", code, "run", str(script), *options]
    found = []
    for key, rows in {"a": "", "b": "13,b,5\n25,c,9\n"}.items():
        if rows:
            (data / "1.csv").write_text(rows)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while not found or found[-1]["payload"]["k"] != key:
                found.append(json.loads(process.stdout.readline()))
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=240)[1]
        assert "was stopped; its checkpoint is" in errors
        assert "its metrics are at http://127.0.0.1:" in errors
    assert [(line["kind"], line["payload"]) for line in found] == [
        ("insert", {"k": "a", "s": 6}),
        ("insert", {"k": "b", "s": 6}),
    ]
