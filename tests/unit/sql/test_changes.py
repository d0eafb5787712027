"""LIFETIME CHANGES: the changes of a table in SQL, the same plans as `hr.read_changes` builds."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.errors import SqlError

TOPIC = "'host:9092', 'people'"


def topic(columns: str, **options: object) -> hr.adapters.SourceAdapter:
    return hr.kafka_topics("people", columns, bootstrap="host:9092", **options)  # type: ignore[arg-type]


def logs(folder: Path) -> dict[str, hr.Stream]:
    """What Python says, by the statement in SQL."""
    table, dated = "id LONG, v LONG", "id LONG, v LONG, ts DATETIME"
    csv, json, parquet = (f"{folder}/log.{ending}" for ending in ("csv", "json", "parquet"))
    shared = hr.advance("10 s", idle="1 min")
    return {
        f"({table}) LIFETIME CHANGES KEY id SOURCE CSV ('log.csv')": hr.read_changes(csv, table, key="id"),
        f"({dated}) LIFETIME CHANGES AT ts KEY id SOURCE JSON ('log.json') WITH PROGRESS ADVANCE 10 s LATE DROP":
            hr.read_changes(json, dated, key="id", at="ts", progress=hr.advance("10 s", late="drop")),
        f"({table}) LIFETIME CHANGES ENCODING 'debezium' AT _ts KEY id SOURCE JSON ('log.json') BAD ROWS RAISE":
            hr.read_changes(json, table, key="id", encoding="debezium", at="_ts", bad_rows="raise"),
        f"({table}) LIFETIME CHANGES KEY ID, v OPERATION what SOURCE PARQUET ('log.parquet', \"order\" => 'name')":
            hr.read_changes(parquet, table, key=("id", "v"), op="what", order="name"),
        f"({table}) LIFETIME CHANGES KEY id ENCODING 'upsert' DELETED WHEN v < 0 SOURCE JSON ('log.json')":
            hr.read_changes(json, table, key="id", encoding="upsert", deletes=col("v") < 0),
        "(id LONG, sort LONG) LIFETIME CHANGES KEY id SOURCE JSON ('log.json', rename => 'kind AS sort')":
            hr.read_changes(json, "id LONG, sort LONG", key="id", rename={"kind": "sort"}),
        f"({table}) LIFETIME CHANGES AT _commit_timestamp KEY id ENCODING 'spark' SOURCE PARQUET ('log.parquet')":
            hr.read_changes(parquet, table, key="id", encoding="spark", at="_commit_timestamp"),
        f"({table}) LIFETIME CHANGES KEY id SOURCE kafka ({TOPIC})":
            hr.read_changes(topic(f"{table}, op STRING"), table, key="id"),
        f"({table}) LIFETIME CHANGES AT _ts KEY id ENCODING 'debezium' SOURCE TOPIC ({TOPIC})":
            hr.read_changes(topic(table), table, key="id", encoding="debezium", at="_ts"),
        f"({table}) LIFETIME CHANGES AT _timestamp KEY id ENCODING 'flink' SOURCE kafka ({TOPIC}) "
        "WITH PROGRESS ADVANCE 10 s IDLE 1 min":
            hr.read_changes(topic(f"{table}, row_kind STRING"), table, key="id", encoding="flink", at="_timestamp",
                            progress=shared),
        f"({table}) LIFETIME CHANGES KEY id ENCODING 'upsert' SOURCE kafka ({TOPIC}, key_columns => 'id')":
            hr.read_changes(topic("v LONG", key_schema="id LONG"), table, key="id", encoding="upsert"),
    }  # fmt: skip


@pytest.mark.parametrize("clauses", logs(Path()))
def test_changes_are_what_python_reads(clauses: str, tmp_path: Path):
    (tmp_path / "log.csv").write_text("op,id,v\n")  # it has a header
    made = hr.sql(f"CREATE STREAM t {clauses}; SELECT * FROM t", base=tmp_path)
    assert made.node == logs(tmp_path)[clauses].node


def test_the_rows_of_a_table_last_until_their_next_change(tmp_path: Path):
    (tmp_path / "log.csv").write_text("ts;what;id;v\n1;insert;1;10\n2;insert;2;20\n5;update;1;11\n7;delete;2;\n")
    script = hr.script(
        """
        CREATE STREAM t (ts LONG, what STRING, id LONG, v LONG)
            LIFETIME CHANGES AT ts KEY id OPERATION what SOURCE FILE ('log.csv', ';');
        DESCRIBE t;
        SELECT sum(v) AS total FROM t [SNAPSHOT];
        """,
        base=tmp_path,
    )
    assert script.streams["t"].schema.names == ("ts", "id", "v")
    rows = script.run().cht().to_pylist()
    assert [(row["le"], row["total"]) for row in rows] == [(1, 10), (2, 30), (5, 31), (7, 11)]


def test_a_bare_number_counts_seconds_of_a_log_without_times(tmp_path: Path):
    text = "CREATE STREAM t (id LONG) LIFETIME CHANGES {} KEY id SOURCE JSON ('l.json') WITH PROGRESS ADVANCE 10; "
    for at, delay in (("", "10 s"), ("AT id", 10)):
        made = hr.sql(text.format(at) + "SELECT * FROM t", base=tmp_path)
        wanted = hr.read_changes(
            f"{tmp_path}/l.json", "id LONG", key="id", at="id" if at else None, progress=hr.advance(delay)
        )
        assert made.node == wanted.node


WRONG = [
    ("LIFETIME CHANGES KEY id ENCODING 'debezum' SOURCE JSON ('x')", "unknown encoding of changes", "LIFETIME"),
    ("LIFETIME CHANGES SOURCE JSON ('x')", "changes are those of keys", "LIFETIME"),
    ("LIFETIME CHANGES KEY nobody SOURCE JSON ('x')", "there is no column 'nobody'", "nobody"),
    ("LIFETIME CHANGES AT tz KEY id SOURCE JSON ('x')", "there is no column 'tz'", "tz"),
    ("LIFETIME CHANGES AT name KEY id SOURCE JSON ('x')", "name cannot be a time", "LIFETIME"),
    ("LIFETIME CHANGES KEY id DELETED WHEN id < 0 SOURCE JSON ('x')", "says what is deleted", "LIFETIME"),
    ("LIFETIME CHANGES KEY id SOURCE HOST ('h', 99)", "HOST has no changes of tables", "LIFETIME"),
    ("LIFETIME CHANGES KEY id SOURCE kafka ('h')", "give topics or a pattern", "SOURCE"),
    ("LIFETIME CHANGES KEY id KEY id SOURCE JSON ('x')", "said already", "KEY id"),
]


@pytest.mark.parametrize(("clauses", "message", "place"), WRONG)
def test_errors_point_at_the_place(clauses: str, message: str, place: str):
    with pytest.raises(SqlError) as caught:
        hr.script(f"CREATE STREAM t (id LONG, name STRING)\n{clauses};")
    assert message in caught.value.message
    assert caught.value.text[slice(*caught.value.at)].startswith(place)
    assert caught.value.line == 2


def test_a_derived_stream_has_no_changes():
    rows = hr.events("kind | le | re | x\ninsert | 1 | 2 | 1")
    with pytest.raises(SqlError, match="has the lifetimes of its query"):
        hr.script("CREATE STREAM b LIFETIME CHANGES KEY x AS SELECT x FROM a", a=rows)
