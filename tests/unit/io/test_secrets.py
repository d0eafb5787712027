"""What may be secret is shown nowhere; and yet another secret is another query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError, HostError, SourceError, without_secrets
from headrace.host.driving.checkpoint import Checkpoint
from headrace.io.formats import Format
from headrace.io.origins import Files, SparkRead
from headrace.plan.nodes import Output
from headrace.sql.session import SqlSession
from headrace.stages.cut import cut

SECRET = "p4ssw0rd"
OPTIONS = {
    "kafka.bootstrap.servers": "broker:9092",
    "subscribe": "ticks",
    "kafka.sasl.jaas.config": f'Login required password="{SECRET}";',
    "some.new.option": SECRET,
}
URL = f"s3://user:{SECRET}@bucket/ticks.csv?region=eu&token={SECRET}"


def kafka(**changed: str) -> hr.Stream:
    options = OPTIONS | {name.replace("_", "."): value for name, value in changed.items()}
    return hr.read_spark("kafka", "key STRING, timestamp DATETIME", lifetime=hr.point("timestamp"), options=options)


def remote() -> hr.Stream:
    return hr.read_csv(URL, "t LONG, k STRING", lifetime=hr.point("t"))


SHOWN: dict[str, Callable[[hr.Stream], Any]] = {
    "explain": lambda s: s.explain(),
    "repr": repr,
    "str": str,
    "the plan": lambda s: f"{s.node!r} {s.node} {s.node.describe()} {s.node.fingerprint}",
    "the origin": lambda s: f"{s.node.origin!r} {s.node.origin}",
}


@pytest.mark.parametrize("where", SHOWN)
@pytest.mark.parametrize("stream", [kafka, remote])
def test_secrets_are_shown_nowhere(where: str, stream: Callable[[], hr.Stream]):
    try:
        text = str(SHOWN[where](stream()))
    except HeadraceError as error:
        text = f"{error} {error!r} {error.given}"
    assert SECRET not in text
    assert "***" in text or where in ("repr", "str", "the plan")


def test_a_history_shows_no_secrets():
    shown = kafka().history(engine="spark", late="include").sql()
    assert "kafka.sasl.jaas.config=***" in shown
    assert SECRET not in shown


def test_names_and_harmless_values_are_shown():
    (text,) = {str(kafka().node.origin)}
    assert text.startswith("spark kafka kafka.bootstrap.servers=broker:9092 kafka.sasl.jaas.config=*** ")
    assert "some.new.option=*** subscribe=ticks #" in text
    assert str(SparkRead("rate", (("rowsPerSecond", "3"),))) == "spark rate rowsPerSecond=3"


def test_a_checkpoint_notices_another_secret_without_knowing_it(tmp_path: Path):
    def claim(stream: hr.Stream) -> None:
        Checkpoint(str(tmp_path)).claim(cut((Output(stream.node, "out"),), 1), 1)

    claim(kafka())
    claim(kafka())
    assert not any(SECRET in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(HeadraceError, match="another query") as raised:
        claim(kafka(some_new_option="other"))
    assert SECRET not in str(raised.value)
    assert "other" not in str(raised.value).partition("plan")[0].replace("another", "")


def test_another_secret_is_another_source():
    assert kafka().node == kafka().node
    assert kafka().node != kafka(some_new_option="x").node
    assert str(Files(URL, Format("csv"))) != str(Files(URL.replace(SECRET, "x"), Format("csv")))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://a:b@bucket/x", "s3://***@bucket/x"),
        ("see abfs://:key@host/x?sas=1&region=eu, please", "see abfs://***@host/x?sas=***&region=eu, please"),
        ("sc://host:15002/;use_ssl=true;token=abc", "sc://host:15002/;use_ssl=true;token=***"),
        ("s3://bucket/a@b/?.csv", "s3://bucket/a@b/?.csv"),
        ("a@b, x=y and file.csv?z=1", "a@b, x=y and file.csv?z=1"),
        ("s3://***@bucket/x", "s3://***@bucket/x"),
    ],
)
def test_urls_lose_users_and_parameters(text: str, shown: str):
    assert without_secrets(text) == shown


def test_errors_show_no_secrets():
    error = SourceError(f"cannot read {URL!r}", given=[URL], allowed=URL, instead=URL)
    assert SECRET not in f"{error} {error!r} {error.message} {error.allowed} {error.instead}"
    assert SECRET not in str(HostError("no session", given=f"sc://host/;token={SECRET}"))


def test_sql_shows_no_secrets_and_points_at_the_right_place():
    text = f"CREATE STREAM s (t LONG, k STRING) ORDER BY t SOURCE CSV ('{URL}', wrong => 1)"
    with pytest.raises(HeadraceError) as raised:
        SqlSession().execute(text)
    shown = str(raised.value)
    assert SECRET not in shown
    line, carets = next((a, b) for a, b in zip(shown.splitlines(), shown.splitlines()[1:], strict=False) if "^" in b)
    assert line[carets.index("^") :].startswith("wrong")
    session = SqlSession()
    session.add("s", remote())
    (streams,) = session.execute("SHOW STREAMS")
    (_, queries) = session.execute(f"SELECT k FROM s WHERE k <> '{URL}'; SHOW QUERIES")
    (done, settings) = session.execute(f"SET master = 'sc://host/;token={SECRET}'; SHOW SETTINGS")
    shown = [str(part) for one in (streams, queries, settings) for part in one.rows]  # type: ignore[attr-defined]
    assert SECRET not in " ".join([*shown, done.message])  # type: ignore[attr-defined]
