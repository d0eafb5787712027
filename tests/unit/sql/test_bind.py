"""SQL and Python build the same plans: each pair is a feature of the dialect."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

import headrace as hr
from headrace import Stream, col
from headrace.errors import PlanError
from headrace.sql.unbind import unbind

TICKS = "symbol STRING, ts DATETIME, price DOUBLE, quantity INT, exchange STRING"
BIDS = "auction LONG, bidder LONG, price LONG, at LONG"


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stream]:
    folder = tmp_path_factory.mktemp("data")
    (folder / "ticks.csv").write_text("symbol,ts,price,quantity,exchange\n")
    (folder / "bids.csv").write_text("auction,bidder,price,at\n")
    late = hr.advance("10 s")
    return {
        "ticks": hr.read_csv(str(folder / "ticks.csv"), TICKS, lifetime=hr.point("ts"), progress=late),
        "bids": hr.read_csv(str(folder / "bids.csv"), BIDS, lifetime=hr.point("at"), progress=hr.ordered()),
        "spans": hr.events("kind | le | re | id | n\ninsert | 1 | 5 | a | 1\n", "id STRING, n LONG"),
        "others": hr.events("kind | le | re | id | m\ninsert | 2 | 7 | a | 1\n", "id STRING, m LONG"),
    }


def plans(streams: dict[str, Stream]) -> dict[str, Stream]:
    """What Python says, by what SQL says."""
    ticks, bids, spans, others = (streams[name] for name in ("ticks", "bids", "spans", "others"))
    per_symbol = ticks.group_by("symbol")
    return {
        "SELECT * FROM ticks": ticks,
        "SELECT symbol, price FROM ticks": ticks.select("symbol", "price"),
        "SELECT symbol, price * quantity AS value FROM ticks": ticks.select(
            "symbol", value=col("price") * col("quantity")
        ),
        "select Symbol from TICKS where Price > 100": ticks.where(col("price") > 100).select(Symbol=col("symbol")),
        "SELECT * FROM ticks WHERE quantity BETWEEN 1 AND 5 OR exchange IN ('NYSE', 'AMEX')": ticks.where(
            col("quantity").between(1, 5) | col("exchange").isin("NYSE", "AMEX")
        ),
        "SELECT * FROM ticks WHERE exchange NOT LIKE 'N%' AND symbol IS NOT NULL": ticks.where(
            ~col("exchange").like("N%") & col("symbol").is_not_null()
        ),
        "SELECT * FROM ticks WHERE ts >= '2015-01-01 12:00:00'": ticks.where(
            col("ts") >= datetime(2015, 1, 1, 12, tzinfo=UTC)
        ),
        "SELECT CASE WHEN price > 10 THEN 'high' ELSE 'low' END AS kind_of FROM ticks": ticks.select(
            kind_of=hr.when(col("price") > 10).then(hr.lit("high")).otherwise(hr.lit("low"))
        ),
        "SELECT CAST(price AS LONG) AS whole, upper(symbol) AS s, coalesce(exchange, '?') AS e "
        "FROM ticks": ticks.select(
            whole=col("price").cast("LONG"), s=col("symbol").upper(), e=hr.coalesce("exchange", hr.lit("?"))
        ),
        "SELECT DISTINCT symbol FROM ticks": ticks.select("symbol")
        .group_by("symbol")
        .window(hr.snapshot())
        .aggregate(_sql_n=hr.count())
        .select("symbol"),
        "SELECT DISTINCT id FROM spans": spans.distinct("id"),
        "SELECT DISTINCT symbol FROM ticks [TUMBLING 5 s]": ticks.window(hr.tumbling("5 s")).distinct("symbol"),
        "SELECT DISTINCT symbol FROM ticks [SIZE 3]": ticks.window(hr.sliding(3)).distinct("symbol"),
        "SELECT symbol, price FROM ticks GROUP BY symbol": ticks.select("symbol", "price"),
        # windows of rule 5
        "SELECT symbol, avg(price) AS p FROM ticks [TUMBLING 5 s] GROUP BY symbol": per_symbol.window(
            hr.tumbling("5 s")
        ).aggregate(p=hr.avg("price")),
        "SELECT symbol, avg(price) FROM ticks [HOPPING 60 s EVERY 10 s] GROUP BY symbol": per_symbol.window(
            hr.hopping("60 s", every="10 s")
        ).aggregate(hr.avg("price")),
        "SELECT symbol, avg(price) AS p FROM ticks [SIZE 60 ON ts EVERY 10 ON ts] GROUP BY symbol": per_symbol.window(
            hr.hopping("60 s", every="10 s")
        ).aggregate(p=hr.avg("price")),
        "SELECT sum(price) AS p FROM bids [SIZE 5 ON at EVERY 2 ON at]": bids.window(
            hr.hopping(5, every=2, origin=1)
        ).aggregate(p=hr.sum("price")),
        "SELECT count(*) AS n FROM ticks [RANGE 10 seconds SLIDE 5 second]": ticks.window(
            hr.hopping("10 s", every="5 s")
        ).aggregate(n=hr.count()),
        "SELECT count(*) FROM spans [SNAPSHOT]": spans.window(hr.snapshot()).aggregate(hr.count()),
        "SELECT id, max(n) AS n FROM spans [COUNT BY START 3] GROUP BY id": spans.group_by("id")
        .window(hr.count_by_start(3))
        .aggregate(n=hr.max("n")),
        "SELECT max(n) AS n FROM spans [COUNT BY END 2 PARTITIONED BY id]": spans.group_by("id")
        .window(hr.count_by_end(2))
        .aggregate(n=hr.max("n"))
        .select("n"),
        "SELECT symbol, count(*) AS n FROM ticks [SESSION 30 s] GROUP BY symbol": per_symbol.window(
            hr.session("30 s")
        ).aggregate(n=hr.count()),
        "SELECT avg(price) AS p FROM ticks [TUMBLING 5 s] WHERE quantity > 0": ticks.where(col("quantity") > 0)
        .window(hr.tumbling("5 s"))
        .aggregate(p=hr.avg("price")),
        "SELECT symbol, sum(price * quantity) / sum(quantity) AS vwap FROM ticks [TUMBLING 5 s] GROUP BY symbol "
        "HAVING count(*) > 1 AND symbol <> 'X'": per_symbol.window(hr.tumbling("5 s"))
        .aggregate(vwap=hr.sum(col("price") * col("quantity")) / hr.sum("quantity"), _sql_1=hr.count())
        .where((col("_sql_1") > 1) & (col("symbol") != "X"))
        .select("symbol", "vwap"),
        "SELECT hour(ts) AS h, count(DISTINCT symbol) AS n, quantile(price, 0.9) AS q FROM ticks [TUMBLING 5 s] "
        "GROUP BY h": ticks.group_by(h=col("ts").hour())
        .window(hr.tumbling("5 s"))
        .aggregate(n=hr.distinct_count("symbol"), q=hr.quantile("price", 0.9)),
        # windows of rule 8
        "SELECT avg(price) AS p FROM ticks [SIZE 100]": ticks.window(hr.sliding(100)).aggregate(p=hr.avg("price")),
        "SELECT symbol, avg(price) AS p FROM ticks [SIZE 100 EVERY 10 PARTITIONED BY symbol] "
        "TICK TIME": per_symbol.window(hr.sliding(100, every=10, tick="time")).aggregate(p=hr.avg("price")),
        "SELECT count(*) AS n FROM ticks [SIZE 100 EVERY 60 ON ts]": ticks.window(
            hr.sliding(100, every="60 s")
        ).aggregate(n=hr.count()),
        "SELECT count(*) AS n FROM ticks [SIZE 60 ON ts EVERY 100]": ticks.window(
            hr.sliding("60 s", every=100)
        ).aggregate(n=hr.count()),
        "SELECT count(*) AS n FROM ticks [SIZE 1 min EVERY 60 ON ts]": ticks.window(
            hr.sliding(hr.arrival("1 min"), every="60 s")
        ).aggregate(n=hr.count()),
        "SELECT count(*) AS n FROM bids [SIZE 3 ON at EVERY 1 ON at STARTING FIRST] TICK BATCH BY bidder": bids.window(
            hr.sliding("3 ticks", every="1 tick", starting="first", tick="batch", batch="bidder")
        ).aggregate(n=hr.count()),
        "SELECT count(*) AS n FROM ticks [DELTA abs(this.price - first.price) THRESHOLD 10]": ticks.window(
            hr.delta((col("price") - col("first.price")).abs(), 10)
        ).aggregate(n=hr.count()),
        "SELECT count(*) AS n FROM ticks [LANDMARK '2015-01-01 01:00:00' EVERY 3600 ON ts]": ticks.window(
            hr.landmark("2015-01-01T01:00:00", every="1 h")
        ).aggregate(n=hr.count()),
        "SELECT count(*) AS n FROM ticks [FIXED '2015/01/01 12:00:00' TO '2015/01/01 14:00:00']": ticks.window(
            hr.fixed("2015-01-01T12:00:00", "2015-01-01T14:00:00")
        ).aggregate(n=hr.count()),
        "SELECT sum(CASE WHEN n > 1 THEN n END) AS n FROM spans [SIZE 3]": spans.window(hr.sliding(3)).aggregate(
            n=hr.sum(hr.when(col("n") > 1).then("n"))
        ),
        "SELECT *, avg(n) OVER (PARTITION BY id ROWS 2 PRECEDING) AS a FROM spans": spans.group_by("id")
        .over(rows=2)
        .aggregate(a=hr.avg("n")),
        "SELECT *, sum(n) OVER (RANGE 10 s PRECEDING) AS a FROM spans": spans.over(range="10 s").aggregate(
            a=hr.sum("n")
        ),
        "SELECT *, sum(n) OVER (PARTITION BY id ROWS 49 PRECEDING SLIDE 10) AS a FROM spans": spans.group_by("id")
        .over(rows=49, slide=10)
        .aggregate(a=hr.sum("n")),
        "SELECT *, max(n) OVER (RANGE 60 s PRECEDING SLIDE 10 s) AS a FROM spans": spans.over(
            range="60 s", slide="10 s"
        ).aggregate(a=hr.max("n")),
        "SELECT *, max(n) OVER (SLIDE 10) AS a FROM spans": spans.over(slide=10).aggregate(a=hr.max("n")),
        "SELECT *, max(n) OVER (SLIDE 10 s) AS a FROM spans": spans.over(slide="10 s").aggregate(a=hr.max("n")),
        "SELECT * FROM ticks [TUMBLING 5 s]": ticks.window(hr.tumbling("5 s")).contents(),
        # lifetimes
        "SELECT * FROM ticks [RANGE 10 s]": ticks.set_duration("10 s"),
        "SELECT * FROM ticks [RANGE UNBOUNDED]": ticks.set_duration(hr.INFINITY),
        "SELECT * FROM spans [SHIFT 5 s] [EXTEND - 1 s] [CAP 3 s]": spans.shift("5 s")
        .extend("-1 s")
        .cap_duration("3 s"),
        "SELECT * FROM spans [CAP 9 s] [CHOP 5 s STARTING AT 1]": spans.cap_duration("9 s").chop("5 s", 1),
        "SELECT * FROM spans [POINT AT END]": spans.point_at_end(),
        "SELECT * FROM spans [COALESCE]": spans.coalesce(),
        # joins
        "SELECT id, n, m FROM spans JOIN others USING (id)": spans.join(others, on="id"),
        "SELECT spans.id, n, m FROM spans INNER JOIN others ON spans.id = others.id AND n < m": spans.join(
            others, on="id", where=col("n") < col("m")
        ),
        "SELECT a.n, b.n AS other FROM spans AS a CROSS JOIN spans AS b": spans.join(spans).select(
            "n", other=col("n_right")
        ),
        "SELECT * FROM spans LEFT JOIN others USING (id)": spans.left_join(others, on="id"),
        "SELECT * FROM spans ANTI JOIN others USING id": spans.anti_join(others, on="id"),
        "SELECT * FROM spans CLIP JOIN others ON spans.id = others.id": spans.clip(others, on="id"),
        # several streams, orders, consistency
        "SELECT id, n FROM spans UNION ALL SELECT id, m FROM others": spans.union(others.select("id", n=col("m"))),
        "SELECT id FROM spans UNION SELECT id FROM others": spans.select("id").union(others.select("id")).distinct(),
        "SELECT * FROM ticks [TUMBLING 10 s] ORDER BY price DESC LIMIT 3": ticks.window(hr.tumbling("10 s")).top(
            3, by="price"
        ),
        "SELECT * FROM ticks [SIZE 3] ORDER BY price LIMIT 1 BY symbol": ticks.window(hr.sliding(3)).top(
            1, by="price", each="symbol", descending=False
        ),
        "SELECT * FROM ticks [TUMBLING 5 s] ORDER BY price LIMIT 1 BY symbol": per_symbol.window(
            hr.tumbling("5 s")
        ).top(1, by="price", descending=False),
        "SELECT * FROM spans ORDER BY n LIMIT 1 BY id": spans.group_by("id").top(1, by="n", descending=False),
        "SELECT symbol FROM ticks EMIT FINAL": ticks.select("symbol").final(),
        "SELECT n + 1 AS n FROM (SELECT n FROM spans WHERE n > 0) AS inner_one": spans.where(col("n") > 0)
        .select("n")
        .select(n=col("n") + 1),
    }


def test_sql_and_python_build_equal_plans(streams: dict[str, Stream]):
    different = []
    for text, wanted in plans(streams).items():
        found = hr.sql(text, **streams)
        if found.node != wanted.node:
            different.append(f"{text}\n--- SQL\n{found.explain()}\n--- Python\n{wanted.explain()}")
    assert not different, "\n\n".join(different)


def test_plans_said_in_sql_are_the_same_plans(streams: dict[str, Stream]):
    names = {stream.node: name for name, stream in streams.items()}
    for text, wanted in plans(streams).items():
        if "SIZE 1 min EVERY" in text:  # two clocks: only the one that a stream goes by has words of its own
            with pytest.raises(PlanError, match="no words"):
                unbind(wanted.node, names)
            continue
        spoken = unbind(wanted.node, names)
        assert hr.sql(spoken.text, functions=spoken.functions, **streams).node == wanted.node, f"{text}\n{spoken.text}"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_no_literal_has_are_said_all_the_same(value: float):
    """Found by sums of infinities, which came back from SQL as sums of nothing."""
    source = hr.events([{"le": 0, "x": 1.0}], "x DOUBLE")
    spoken = unbind(source.select(x=hr.lit(value)).node, {source.node: "s"})
    (found,) = hr.sql(spoken.text, s=source).cht()["x"].to_pylist()
    assert repr(found) == repr(value)
