"""The same in SQL: streams and windows as text, from Python and back.

A script creates streams from others and has several queries; they run as one query, in which each stream is computed
once. SQL and Python build the same plans.
"""

import tempfile
from pathlib import Path

import headrace as hr

TICKS = """\
symbol,ts,price,quantity
A,2024-05-01T12:00:01Z,10.0,100
B,2024-05-01T12:00:04Z,50.0,10
A,2024-05-01T12:00:12Z,12.0,300
A,2024-05-01T12:00:05Z,11.0,100
B,2024-05-01T12:00:31Z,54.0,30
A,2024-05-01T12:00:33Z,15.0,200
"""
SCRIPT = """
CREATE SCHEMA tick (symbol STRING, ts DATETIME, price DOUBLE, quantity INT);
CREATE STREAM ticks tick ORDER BY ts SOURCE FILE ('ticks.csv', ',') WITH PROGRESS ADVANCE 10 s LATE DIVERT;

ON ticks
  INSERT INTO large SELECT * WHERE quantity >= 200
  INSERT INTO small SELECT * WHERE quantity < 200;

QUERY vwap AS
SELECT symbol, sum(price * quantity) / sum(quantity) AS vwap FROM ticks [HOPPING 60 s EVERY 10 s] GROUP BY symbol;

QUERY last_two AS
SELECT symbol, avg(price) AS price FROM ticks [SIZE 2 EVERY 1 PARTITIONED BY symbol];

QUERY recent_high AS
SELECT symbol, price, max(price) OVER (PARTITION BY symbol ROWS 1 PRECEDING) AS recent FROM large;
"""

with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "ticks.csv").write_text(TICKS)
    script = hr.script(SCRIPT, base=folder)
    print("streams:", ", ".join(script.streams))

    # All queries of the script, as one; host="spark" runs them on Spark.
    run = script.run()
    for name in script.queries:
        print(f"\n{name}\n{run.cht(name).to_pandas().to_string()}")

    # Python can use the streams of a script, and SQL the streams of Python.
    small = script.streams["small"].where(hr.col("price") > 10)
    counted = hr.sql("SELECT count(*) AS n FROM trades [TUMBLING 1 min]", trades=small)
    assert counted.node == small.window(hr.tumbling("1 min")).aggregate(n=hr.count()).node
    print(f"\nsmall trades above 10: {counted.cht()['n'].to_pylist()}")

    # An error shows the place.
    try:
        hr.sql("SELECT symbol, avg(prise) FROM trades [TUMBLING 10 s] GROUP BY symbol", trades=small)
    except hr.HeadraceError as error:
        print(f"\n{error}")
