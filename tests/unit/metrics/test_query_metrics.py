"""Metrics of queries: the text, and what it says of a query that runs."""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path

import httpx
import pytest
from tests.fixtures.scraping import Scraped, scrape
from tests.fixtures.waiting import until

import headrace as hr
from headrace.errors import CheckpointError, HostError, PlanError
from headrace.host.driving.query import Query
from headrace.metrics.endpoint import metrics_address
from headrace.metrics.families import Family, exposition
from headrace.metrics.queries import QueryFigures, Reached, query_families
from headrace.time import INFINITY, NEG_INFINITY

NOW = 1_704_067_260.0
SECOND = 1_000_000


# --- the text --------------------------------------------------------------------------------------------------------


def test_labels_are_escaped_without_secrets_and_families_have_one_place():
    first, second = (Family("headrace_x", "gauge", "a\\b\nc", ("query", "a")) for _ in range(2))
    first.add(('q "1"\n\\', "s3://key:hidden@b"), 1)
    second.add(("q2", ""), -0.5)
    scraped = Scraped(exposition([first, second]).decode())
    assert scraped.value("headrace_x", query='q "1"\n\\', a="s3://***@b") == 1
    assert scraped.value("headrace_x", query="q2", a="") == -0.5
    assert "hidden" not in scraped.text


def test_a_histogram_is_cumulative():
    family = Family("headrace_x", "histogram", "x", ("query",))
    family.add_histogram(("q",), [0.0, 0.5, 10.0], [3, 0, 2, 1], 99.5)
    scraped = Scraped(exposition([family]).decode())
    buckets = {dict(labels)["le"]: value for labels, value in scraped.values("headrace_x_bucket").items()}
    assert buckets == {"0.0": 3, "0.5": 3, "10.0": 5, "+Inf": 6}
    assert (scraped.value("headrace_x_count", query="q"), scraped.value("headrace_x_sum", query="q")) == (6, 99.5)


@pytest.mark.parametrize(
    ("cti", "dates", "shown", "seconds", "ticks"),
    [
        (1_704_067_200 * SECOND, True, [1_704_067_200.0], [60.0], []),
        (17, False, [17.0], [], [3.0]),
        (INFINITY, True, [], [], []),
        (NEG_INFINITY, True, [], [], []),
        (INFINITY, False, [], [], []),
        (NEG_INFINITY, False, [], [], []),
    ],
)
def test_a_cti_is_a_date_or_a_number(
    cti: int, *, dates: bool, shown: list[float], seconds: list[float], ticks: list[float]
):
    figures = QueryFigures("q", "running", sources=[Reached("s", cti, 20, dates)])
    scraped = Scraped(exposition(query_families([figures], NOW)).decode())
    for prefix in ("", "source_"):
        assert list(scraped.values(f"headrace_{prefix}cti").values()) == shown
        assert list(scraped.values(f"headrace_{prefix}cti_lag_seconds").values()) == seconds
        assert list(scraped.values(f"headrace_{prefix}cti_lag_ticks").values()) == ticks


@pytest.mark.parametrize("given", [-1, 65_536, "x", "localhost", "::1", "host:", True, "1.5", "1" * 5000])
def test_a_port_that_is_none_is_refused(given: int | str, tmp_path: Path):
    with pytest.raises(PlanError, match="at a port"):
        counts(tmp_path).start(hr.memory(), host="local", metrics_port=given, checkpoint=str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("given", ["a\0b:80", "é" * 100 + ":80", "a" * 100 + ":80"])
def test_a_host_that_cannot_be_one_is_refused(given: str, tmp_path: Path):
    with pytest.raises(HostError, match="no server for metrics"):
        counts(tmp_path).start(hr.memory(), host="local", metrics_port=given)


def test_a_port_of_another_host():
    assert metrics_address("9108") == ("127.0.0.1", 9108)
    assert metrics_address("localhost:1") == ("localhost", 1)


# --- a query that runs -----------------------------------------------------------------------------------------------


def add(folder: Path, *rows: tuple[str, str]) -> None:
    """One more file, which appears whole."""
    folder.mkdir(exist_ok=True)
    number = len(list(folder.iterdir()))
    draft = folder / f"_{number}"
    draft.write_text("ts,k\n" + "".join(f"2024-05-01T{t}Z,{k}\n" for t, k in rows))
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number:03d}.csv")


def counts(folder: Path) -> hr.Stream:
    add(folder / "in", ("12:00:00", "a"), ("12:01:05", "b"), ("nonsense", "c"))  # the first minute has an answer
    rows = hr.read_csv(
        str(folder / "in"), "ts DATETIME, k STRING", lifetime=hr.point("ts"),
        progress=hr.advance(delay="10 s", late="divert"), bad_rows="divert",
    )  # fmt: skip
    return rows.group_by("k").window(hr.tumbling("1 min")).aggregate(n=hr.count())


def started(tmp_path: Path, **options: object) -> Query:
    given = {"host": "local", "metrics_port": 0, "checkpoint": str(tmp_path / "state"), "name": "q"} | options
    query = counts(tmp_path).start(hr.memory(), **given)  # type: ignore[arg-type]
    query.process_all_available()
    return query


def test_the_metrics_of_a_query_are_its_own_figures(tmp_path: Path):
    query = started(tmp_path)
    add(tmp_path / "in", ("12:00:57", "a"), ("12:10:00", "a"))  # the answer is corrected
    query.process_all_available()
    add(tmp_path / "in", ("12:00:00", "b"), ("12:09:49", "b"), ("12:09:58", "b"))  # two are late, of which one by 1 s
    query.process_all_available()
    scraped = scrape(query.metrics_url)
    (source,) = query.counts
    for fate, count in query.counts[source].items():
        assert scraped.value("headrace_rows_total", query="q", source=source, fate=fate) == count
    assert query.counts[source]["late"] == 2
    assert scraped.value("headrace_lateness_seconds_count", query="q", source=source) == 7  # all but the malformed one
    assert scraped.value("headrace_lateness_seconds_bucket", query="q", source=source, le="0.0") == 5
    assert scraped.value("headrace_lateness_seconds_bucket", query="q", source=source, le="1.0") == 6
    cti = 1_714_565_390.0  # 12:09:50
    assert scraped.value("headrace_cti", query="q") == cti
    assert scraped.value("headrace_source_cti", query="q", source=source) == cti
    assert scraped.value("headrace_source_cti_lag_seconds", query="q", source=source) > 0
    assert scraped.value("headrace_output_cti", query="q", output="0 memory") == 1_714_565_340.0  # of whole minutes
    total = query.past.total
    assert total is not None
    assert scraped.value("headrace_corrections_total", query="q", output="0 memory") == total.removals > 0
    assert scraped.value("headrace_changes_total", query="q", output="0 memory") == total.flows.outputs["0 memory"][0]
    assert scraped.value("headrace_batches_total", query="q") == 3
    assert scraped.value("headrace_batch", query="q") == query.report["batch"] == 2
    last = query.driver.last
    assert last is not None
    assert scraped.value("headrace_last_batch_timestamp_seconds", query="q") == last.record["time"]
    for phase, seconds in total.phases.items():
        assert scraped.value("headrace_batch_phase_seconds_total", query="q", phase=phase) == seconds
    for place, operator in enumerate(query.report["operators"]):
        which = {"query": "q", "operator": operator["operator"], "place": str(place)}
        assert scraped.value("headrace_state_rows", **which) == operator["rows"] > 0
        assert scraped.value("headrace_state_bytes", **which) == operator["bytes"] > 0
        assert scraped.value("headrace_state_held_by", **which, source=source) == 1
    assert query.report["operators"]
    assert scraped.value("headrace_waiting", query="q", source=source, unit="files") == 0
    assert scraped.value("headrace_restarts_total", query="q") == 0
    assert scraped.value("headrace_query_state", query="q", state="running") == 1
    assert scraped.value("headrace_process_memory_bytes") > 1_000_000
    query.stop()


def test_a_start_again_is_counted_and_rows_go_on(tmp_path: Path):
    started(tmp_path).stop()
    query = started(tmp_path)
    scraped = scrape(query.metrics_url)
    query.stop()
    (source,) = query.counts
    assert scraped.value("headrace_restarts_total", query="q") == 1
    assert scraped.value("headrace_rows_total", query="q", source=source, fate="rows") == 6


def test_what_takes_over_a_checkpoint_counts_as_a_start(tmp_path: Path):
    started(tmp_path).stop()
    hr.checkpoint(tmp_path / "state").gc()
    query = started(tmp_path)
    scraped = scrape(query.metrics_url)
    query.stop()
    assert scraped.value("headrace_restarts_total", query="q") == 2


def test_before_the_first_batch_all_counts_are_0(tmp_path: Path):
    (tmp_path / "none").mkdir()
    rows = hr.read_csv(str(tmp_path / "none"), "ts DATETIME", lifetime=hr.point("ts"), progress=hr.advance("1 s"))
    query = rows.start(hr.memory(), host="local", metrics_port=0)
    scraped = scrape(query.metrics_url)
    query.stop()
    assert set(scraped.values("headrace_rows_total").values()) == {0}
    assert scraped.values("headrace_batch") == {}


def test_the_server_stops_with_the_query(tmp_path: Path):
    query = started(tmp_path)
    url = str(query.metrics_url)
    assert httpx.get(url + "x", timeout=30).status_code == 404
    held = http.client.HTTPConnection(url.split("/")[2], timeout=30)  # a client that stays does not hold the end up
    held.request("HEAD", "/metrics")
    assert held.getresponse().read() == b""
    query.stop()
    held.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, timeout=30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_queries_of_a_process_share_a_port(tmp_path: Path):
    port = free_port()
    one = started(tmp_path, metrics_port=port)
    other = started(tmp_path, metrics_port=f"127.0.0.1:{port}", name="q2", checkpoint=None)
    assert one.metrics_url == other.metrics_url == f"http://127.0.0.1:{port}/metrics"
    scraped = scrape(one.metrics_url)
    assert {dict(labels)["query"] for labels in scraped.values("headrace_batch")} == {"q", "q2"}
    with pytest.raises(PlanError, match="another query of this name"):
        started(tmp_path, metrics_port=port, checkpoint=str(tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()
    one.stop()
    assert {dict(labels)["query"] for labels in scrape(other.metrics_url).values("headrace_batch")} == {"q2"}
    other.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
    started(tmp_path, metrics_port=port).stop()  # the port is free again


def test_a_port_of_another_process_is_refused_before_anything_is_created(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(HostError, match="no server for metrics"):
        started(tmp_path, metrics_port=taken.getsockname()[1])
    assert not (tmp_path / "state").exists()


def test_a_start_that_is_refused_leaves_the_port(tmp_path: Path):
    port, file = free_port(), tmp_path / "file"
    file.write_text("no directory")
    with pytest.raises(CheckpointError, match="cannot be written"):
        started(tmp_path, metrics_port=port, checkpoint=str(file))
    with socket.create_server(("127.0.0.1", port)):
        pass
    started(tmp_path, metrics_port=port).stop()


@pytest.mark.parametrize("name", [None, 5, b"q", "\udcff"])
def test_a_name_that_is_no_text_is_refused(tmp_path: Path, name: object):
    """It is a label of every metric: with it, no query at the port would show any."""
    with pytest.raises(PlanError, match="the name of a query is a text"):
        started(tmp_path, name=name)
    assert not (tmp_path / "state").exists()


def test_figures_that_cannot_be_read_are_an_answer_and_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    query = started(tmp_path)
    monkeypatch.setattr("headrace.host.driving.query.figures_of", lambda _: 1 / 0)
    answer = httpx.get(str(query.metrics_url), timeout=30)
    assert (answer.status_code, "log" in answer.text) == (500, True)
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    assert scrape(query.metrics_url).value("headrace_batch", query="q") == 0
    query.stop()


def test_a_query_that_has_failed_shows_it_and_leaves_its_name(tmp_path: Path):
    port = free_port()

    def refuse(_: object, batch: int) -> None:
        raise ValueError(batch)

    failing = counts(tmp_path).start(hr.foreach_batch(refuse), host="local", metrics_port=port, name="q")
    until(lambda: failing.exception() is not None, "it fails")
    assert scrape(failing.metrics_url).value("headrace_query_state", query="q", state="failed") == 1
    query = started(tmp_path, metrics_port=port)
    assert scrape(failing.metrics_url).value("headrace_query_state", query="q", state="running") == 1
    failing.stop()
    assert scrape(query.metrics_url).value("headrace_query_state", query="q", state="running") == 1
    query.stop()
