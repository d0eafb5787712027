"""Wrong statements of all kinds, over a stream `ticks (symbol, ts, price, quantity, ok)`: one on each line."""

from __future__ import annotations

__all__ = ["WRONG"]

_LINES = r"""
SELECT sym FROM ticks
SELECT symbl FROM ticks
SELECT x FROM ticks
SELECT prize * 2 FROM ticks
SELECT t.price FROM ticks
SELECT ticks.prce FROM ticks
SELECT symbol FROM tick
SELECT symbol FROM Tcks
SELECT symbol FROM orders
SELEC symbol FROM ticks
SELECT symbol FORM ticks
SELECT symbol FROM ticks WERE price > 1
SELECT symbol FROM ticks WHERE
SELECT FROM ticks
SELECT symbol, FROM ticks
SELECT symbol price FROM ticks WHERE WHERE price > 1
SELECT symbol FROM ticks WHERE price = 'abc'
SELECT symbol FROM ticks WHERE symbol > 1
SELECT symbol FROM ticks WHERE symbol
SELECT symbol FROM ticks WHERE price
SELECT symbol FROM ticks WHERE price AND quantity
SELECT symbol + 1 FROM ticks
SELECT symbol - price FROM ticks
SELECT -symbol FROM ticks
SELECT NOT price FROM ticks
SELECT ok + 1 FROM ticks
SELECT ts * 2 FROM ticks
SELECT ts + ts FROM ticks
SELECT price || symbol FROM ticks
SELECT price LIKE 'a%' FROM ticks
SELECT symbol BETWEEN 1 AND 2 FROM ticks
SELECT symbol IN (1, 2) FROM ticks
SELECT CASE WHEN price THEN 1 END FROM ticks
SELECT CASE WHEN ok THEN 1 ELSE 'a' END FROM ticks
SELECT CASE WHEN ok THEN END FROM ticks
SELECT CAST(price AS) FROM ticks
SELECT CAST(price AS NUMBR) FROM ticks
SELECT CAST(price) FROM ticks
SELECT CAST(ts AS BOOLEAN) FROM ticks
SELECT ISNULL(price, 0) FROM ticks
SELECT nvl2(price, 1, 2) FROM ticks
SELECT DATEADD(day, 1, ts) FROM ticks
SELECT DATEDIFF(day, ts, ts) FROM ticks
SELECT unix_timestamp(ts) FROM ticks
SELECT rowid FROM ticks
SELECT TOP 10 symbol FROM ticks
SELECT symbol FROM ticks WHERE price == 1 && quantity > 1
SELECT symbol FROM ticks WHERE price > 1 || quantity > 1
SELECT symbol FROM ticks WHERE !ok
SELECT symbol FROM ticks WHERE price =! 1
SELECT symbol FROM ticks WHERE price => 1
SELECT symbol FROM ticks WHERE price =< 1
SELECT symbol FROM ticks EMIT CHANGES
CREATE STREAM s2 (a INT, ts DATETIME, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
CREATE STREAM s2 (a INTEGR)
CREATE STREAM s2 (a, b)
CREATE STREAM s2 (a INT, a INT)
CREATE STREAM s2 a INT
CREATE STREAM (a INT)
CREATE STREAM s2
CREATE STRAEM s2 (a INT)
CREATE SOURCE s2 (a INT)
CREATE SINK s2 FROM ticks
CREATE FUNCTION f AS 'x'
CREATE DATABASE d
USE db
BEGIN
COMMIT
SELECT symbol, sum(price) FROM ticks
SELECT symbol, sum(price) FROM ticks GROUP BY symbol
SELECT symbol, sum(price) AS s FROM ticks [TUMBLING 10 s]
SELECT symbol, price FROM ticks [TUMBLING 10 s] GROUP BY symbol
SELECT symbol, sum(sum(price)) AS s FROM ticks [TUMBLING 10 s] GROUP BY symbol
SELECT sum(symbol) AS s FROM ticks [TUMBLING 10 s]
SELECT avg(ok) AS s FROM ticks [TUMBLING 10 s]
SELECT sum() AS s FROM ticks [TUMBLING 10 s]
SELECT sum(price, 2) AS s FROM ticks [TUMBLING 10 s]
SELECT sum(*) AS s FROM ticks [TUMBLING 10 s]
SELECT count(price, 1) AS s FROM ticks [TUMBLING 10 s]
SELECT quantile(price) AS s FROM ticks [TUMBLING 10 s]
SELECT quantile(price, 2) AS s FROM ticks [TUMBLING 10 s]
SELECT symbol FROM ticks WHERE sum(price) > 1
SELECT symbol FROM ticks [TUMBLING 10 s] GROUP BY sum(price)
SELECT symbol, count(*) AS n FROM ticks [TUMBLING 10 s] GROUP BY symbol HAVING prce > 1
SELECT count(*) AS n FROM ticks [TUMBLE 10 s]
SELECT count(*) AS n FROM ticks [TUMBLING]
SELECT count(*) AS n FROM ticks [TUMBLING 10]
SELECT count(*) AS n FROM ticks [TUMBLING 10 parsecs]
SELECT count(*) AS n FROM ticks [TUMBLING 0 s]
SELECT count(*) AS n FROM ticks [TUMBLING -1 s]
SELECT count(*) AS n FROM ticks [HOPPING 10 s]
SELECT count(*) AS n FROM ticks [HOPPING 10 s BY 5 s]
SELECT count(*) AS n FROM ticks [SLIDING 10 s]
SELECT count(*) AS n FROM ticks [SIZE]
SELECT count(*) AS n FROM ticks [SIZE 0]
SELECT count(*) AS n FROM ticks [SIZE 10 ON price]
SELECT count(*) AS n FROM ticks [SIZE 10 ON nothing]
SELECT count(*) AS n FROM ticks [SESSION]
SELECT count(*) AS n FROM ticks [RANGE 10 s
SELECT count(*) AS n FROM ticks [TUMBLING 1 DAY ZONE 'Mars/Base']
SELECT count(*) AS n FROM ticks [LANDMARK 'x']
SELECT count(*) AS n FROM ticks [DELTA price]
SELECT count(*) AS n FROM ticks [CUMULATE 10 s]
SELECT a.symbol FROM ticks a JOIN ticks b ON a.symbol = b.symbol
SELECT a.symbol FROM ticks [RANGE 10 s] AS a JOIN ticks AS b ON a.symbol = b.prce
SELECT a.symbol FROM ticks [RANGE 10 s] AS a JOIN ticks AS b ON a.symbol = c.symbol
SELECT a.symbol FROM ticks [RANGE 10 s] AS a JOIN ticks AS b ON a.symbol = b.price
SELECT a.symbol FROM ticks [RANGE 10 s] AS a JOIN ticks AS b ON a.symbol
SELECT a.symbol FROM ticks [RANGE 10 s] AS a JOIN ticks AS b USING (name)
SELECT a.symbol FROM ticks [RANGE 10 s] AS a OUTER JOIN ticks AS b ON a.symbol = b.symbol
SELECT symbol FROM ticks ORDER BY price
SELECT symbol FROM ticks GROUP BY symbol WHERE price > 1
SELECT symbol FROM ticks LIMIT 5 WHERE price > 1
SELECT symbol FROM ticks WHERE price > 1 FROM ticks
WHERE price > 1 SELECT symbol FROM ticks
FROM ticks SELECT symbol
SELECT symbol FROM ticks UNION SELECT price FROM ticks
SELECT symbol FROM ticks UNION SELECT symbol, price FROM ticks
SELECT abs(symbol) FROM ticks
SELECT abs(price, 2) FROM ticks
SELECT abs() FROM ticks
SELECT round(symbol) FROM ticks
SELECT substring(symbol) FROM ticks
SELECT substring(price, 1, 2) FROM ticks
SELECT uper(symbol) FROM ticks
SELECT lenght(symbol) FROM ticks
SELECT squareroot(price) FROM ticks
SELECT pow(price) FROM ticks
SELECT median(price) FROM ticks
SELECT coalesce() FROM ticks
SELECT coalesce(price, symbol) FROM ticks
SELECT year(price) FROM ticks
SELECT date_trunc('fortnight', ts) FROM ticks
SELECT nonsense(price) FROM ticks
SELECT finance.nonsense(price) FROM ticks
SELECT charindex('a', symbol) FROM ticks
SELECT len(price) FROM ticks
SELECT iff(ok, 1, 2) FROM ticks
SELECT decode(symbol, 'A', 1) FROM ticks
SELECT regexp_replace(symbol, 'a', 'b') FROM ticks
SELECT split_part(symbol, ',', 1) FROM ticks
SELECT initcap(symbol) FROM ticks
SELECT stdev(price) AS s FROM ticks [TUMBLING 10 s]
SELECT countif(ok) AS s FROM ticks [TUMBLING 10 s]
SELECT any_value(symbol) AS s FROM ticks [TUMBLING 10 s]
SELECT arg_max(symbol, price) AS s FROM ticks [TUMBLING 10 s]
SELECT collect_list(symbol) AS s FROM ticks [TUMBLING 10 s]
SELECT uuid() FROM ticks
SELECT 'abc FROM ticks
SELECT "abc FROM ticks
SELECT `abc FROM ticks
SELECT "symbol" FROM ticks WHERE symbol = "A"
SELECT symbol FROM ticks /* comment
SELECT symbol FROM ticks WHERE price > 1;;; SELECT x FROM ticks
SELECT symbol FROM ticks; SELEC x
SELECT symbol FROM ticks SELECT price FROM ticks
SELECT ΔΣ FROM ticks
SELECT “symbol” FROM ticks
SELECT symbol FROM ticks WHERE symbol = ‘A’
SELECT symbol FROM ticks WHERE price ≥ 1
SELECT 1a FROM ticks
SELECT symbol FROM ticks WHERE price > 1.2.3
SELECT symbol FROM ticks WHERE price > $1
SELECT symbol FROM ticks WHERE price > ?
SELECT symbol FROM ticks WHERE price > :p
SELECT @x FROM ticks
SELECT symbol FROM ticks WHERE price > #2024-01-01#
SELECT symbol FROM ticks WHERE (price > 1
SELECT symbol FROM ticks WHERE price > 1)
SELECT (symbol FROM ticks
SELECT symbol FROM ticks WHERE price IS 1
SELECT symbol FROM ticks WHERE price NOT NULL
SELECT symbol FROM ticks WHERE ts > '2024-13-01'
SELECT symbol FROM ticks WHERE ts > 'yesterday'
SELECT symbol FROM ticks WHERE ts > DATETIME '2024-13-01'
SELECT symbol FROM ticks WHERE ts = 5
SELECT symbol FROM ticks WHERE symbol REGEXP '['
SELECT select FROM ticks
SELECT order FROM ticks
SELECT symbol AS select FROM ticks
SELECT symbol FROM ticks AS where
SELECT symbol, symbol FROM ticks
SELECT symbol AS le FROM ticks
SELECT price AS x, x + 1 AS y FROM ticks
CREATE STREAM s2 (a INT) SOURCE FILE ()
CREATE STREAM s2 (a INT) SOURCE FILE ('nothing.csv')
CREATE STREAM s2 (a INT) SOURCE FILE ('nothing.csv', ',', 1, 2, 3)
CREATE STREAM s2 (a INT) SOURCE FILE (pth => 'nothing.csv')
CREATE STREAM s2 (a INT) SOURCE FIL ('nothing.csv')
CREATE STREAM s2 (a INT) SOURCE HOST ('localhost')
CREATE STREAM s2 (a INT) SOURCE HOST ('localhost', 'x')
CREATE STREAM s2 (a INT) SOURCE HOST ('localhost', 99999999)
CREATE STREAM s2 (a INT) SOURCE postgres ('x')
CREATE STREAM s2 (a STRING, x INT) ORDER BY a SOURCE FILE ('nothing.csv')
CREATE STREAM s2 (a INT) LIFETIME FROM a TO b SOURCE FILE ('nothing.csv')
CREATE STREAM s2 (a INT) WITH PROGRESS ADVANCE
CREATE STREAM s2 (a INT) SOURCE FILE ('nothing.csv') WITH PROGRESS LATER
CREATE STREAM s2 (a INT) SOURCE FILE ('nothing.csv') LATE IGNORE
CREATE STREAM s2 (a INT) SOURCE FILE ('nothing.csv') BAD ROWS DROP
CREATE STREAM s2 (a INT) AS SELECT symbol, price FROM ticks
CREATE STREAM s2 (a INT) AS SELECT symbol FROM ticks
CREATE SCHEMA ticks2
CREATE SCHEMA s (a INT) EXTENDS nothing
CREATE TABLE t2 (a INT)  SOURCE HOST ('localhost', 9)
DROP STREAM nothing
DROP ticks
DROP AGGREGATE ticks
SHOW STREMS
SHOW DATABASES
SHOW
DESCRIBE nothing
DESCRIBE
EXPLAIN
EXPLAIN PLAN FOR SELECT symbol FROM ticks
EXPLAIN nothing
VERIFY ticks SEEDS x
VERIFY ticks OVER 'nonsense'
SET hst = spark
SET host = moon
SET rows = 0
SET rows = 'many'
SET host
SET batch_rows = NULL
RESET host
MERGE ticks, nothing
MERGE ticks
INSERT INTO ticks SELECT symbol FROM ticks
INSERT ticks SELECT symbol FROM ticks
INSERT INTO FILE () SELECT symbol FROM ticks
INSERT INTO FILE ('out', 'xml') SELECT symbol FROM ticks
INSERT INTO FILE ('out', encoding => 'x') SELECT symbol FROM ticks
INSERT INTO FILE ('out', encoding => 'upsert') SELECT symbol FROM ticks
INSERT INTO KONSOLE () SELECT symbol FROM ticks
ON ticks INSERT INTO a SELECT x WHERE price > 1
ON nothing INSERT INTO a SELECT x
SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A B) DEFINE C AS price > 1)
SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES A.price AS p DEFINE A AS price > 1)
SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A B))
SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY price MEASURES A.price AS p PATTERN (A) )
SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES A.prce AS p PATTERN (A) )
SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES X.price AS p PATTERN (A) )
SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES A.price AS p PATTERN (A $) )
SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES A.price AS p PATTERN (A*) )
SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES A.price AS p PATTERN (A B)) DEFINE B AS price > 1
WITH a AS (SELECT x FROM ticks) SELECT * FROM a
WITH a (SELECT symbol FROM ticks) SELECT * FROM a
WITH a AS (SELECT symbol FROM ticks) SELECT * FROM b
WITH RECURSIVE r AS (SELECT symbol FROM r) SELECT * FROM r
WITH RECURSIVE r AS (SELECT symbol FROM ticks UNION SELECT symbol FROM r [TUMBLING 10 s]) SELECT * FROM r
SELECT price, sum(price) OVER (ROWS 3) FROM ticks
SELECT price, sum(price) OVER (PARTITION BY nothing ROWS 3 PRECEDING) FROM ticks
SELECT price, abs(price) OVER (ROWS 3 PRECEDING) FROM ticks
SELECT price, sum(price) OVER (RANGE 3 PRECEDNG) FROM ticks
CREATE AGGREGATE f(x DOUBLE): DOUBLE { }
CREATE AGGREGATE f(x DOUBLE) { INITIALIZE : { } }
SELECT ewma(price) AS e FROM ticks [TUMBLING 10 s]
SELECT ewma(symbol, 0.5) AS e FROM ticks [TUMBLING 10 s]
SELECT finance.ema(price, alpha => 'x') AS e FROM ticks [TUMBLING 10 s]
SELECT finance.ema(price, alfa => 0.1) AS e FROM ticks [TUMBLING 10 s]
SELECT time_weighted_avg(symbol) AS e FROM ticks [TUMBLING 10 s]
SELECT symbol FROM ticks [APPLY finance.nothing(price)]
SELECT DISTINCT symbol FROM ticks [TUMBLING 10 s] LIMIT x
SELECT symbol FROM ticks ORDER BY price LIMIT -1
SELECT symbol FROM ticks ORDER BY nothing LIMIT 3
SELECT symbol FROM ticks EMIT LATE
SELECT symbol FROM ticks TICK NEVER
SELECT symbol FROM ticks INTO ticks
SELECT 99999999999999999999999 FROM ticks
SELECT ticks.* , price.* FROM ticks
SELECT LAST(price, 1) FROM ticks
SELECT PREV(price) FROM ticks
SELECT le FROM ticks WHERE le > 'x'
SELECT window_start FROM ticks
SELECT '日本', 数量 FROM ticks
SELECT symbol FROM ticks WHERE symbol = 'a'b'
"""


def _aggregate(begin: str = "INSERT INTO s VALUES (x);", then: str = "", takes: str = "x DOUBLE") -> str:
    return (
        f"CREATE AGGREGATE f({takes}): DOUBLE {{ TABLE s(a DOUBLE); INITIALIZE: {{ {begin} }} "
        f"ITERATE: {{ {then} }} TERMINATE: {{ INSERT INTO RETURN SELECT a FROM s; }} }}"
    )


_LONGER = (
    _aggregate("INSERT INTO s VALUES (y);"),
    _aggregate("INSERT INTO t VALUES (x);"),
    _aggregate("INSERT INTO s VALUES (x, x);"),
    _aggregate("INSERT INTO s VALUES ('a');"),
    _aggregate(then="UPDATE s SET b = 1;"),
    _aggregate(takes="x DUBLE"),
    "SELECT symbol\nFROM ticks\nWHERE prce > 1\n  AND quantity > 2",
    "SELECT\tprce FROM ticks",
    "CREATE SCHEMA s (a INT);\nCREATE SCHEMA t (a INT);\nSELECT y FROM ticks;\nSHOW STREAMS",
    "SELECT " + "(" * 300 + "1" + ")" * 300 + " FROM ticks",
    "SELECT " + ", ".join(f"c{i}" for i in range(300)) + " FROM ticks",
    "SELECT symbol FROM ticks WHERE symbol = 'a\0'",
)

WRONG = (*_LINES.strip().splitlines(), *_LONGER)
