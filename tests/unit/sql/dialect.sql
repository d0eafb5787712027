-- Queries over the tables of test_dialect.py, each answered as DuckDB answers it.

-- Window functions and an order beside GROUP BY.
SELECT k, sum(x) AS s, rank() OVER (ORDER BY sum(x) DESC) AS r FROM o GROUP BY k;
SELECT k, lag(sum(x)) OVER (ORDER BY k) AS before, sum(x) - lead(sum(x)) OVER (ORDER BY k) AS more FROM o GROUP BY k;
SELECT k, sum(x) AS s FROM o GROUP BY k QUALIFY rank() OVER (ORDER BY sum(x) DESC) <= 2;
SELECT k, sum(x), sum(sum(x)) OVER () AS r FROM o GROUP BY k HAVING sum(x) > 3;
SELECT k, row_number() OVER (ORDER BY k) AS r FROM o GROUP BY k;
SELECT upper(k) AS u, count(*) AS n, dense_rank() OVER (ORDER BY count(*) DESC) AS r FROM o GROUP BY u;
SELECT o.k, name, 100 * sum(x) / sum(1 + sum(x * x)) OVER () AS share FROM o JOIN c ON o.k = c.k GROUP BY o.k, name;
SELECT rank() OVER (ORDER BY max(x)) AS r, max(x) AS m FROM o;
SELECT k, sum(x) AS s, rank() OVER (ORDER BY sum(x) DESC) AS r FROM o GROUP BY k ORDER BY r DESC, k LIMIT 2;
SELECT DISTINCT count(*) AS n, rank() OVER (ORDER BY count(*)) AS r FROM o GROUP BY k;
SELECT k, sum(x) AS s, max(max(x)) OVER w AS m FROM o GROUP BY k WINDOW w AS (ORDER BY k);
SELECT k FROM o GROUP BY k HAVING sum(x) > 2 QUALIFY row_number() OVER (ORDER BY sum(x), k) <= 2 ORDER BY k DESC LIMIT 1;
SELECT k, sum(x) AS s, rank() OVER (ORDER BY sum(x) DESC) AS r FROM o GROUP BY ROLLUP (k);
SELECT k, grouping(k) AS g, rank() OVER (PARTITION BY grouping(k) ORDER BY sum(x)) AS r FROM o GROUP BY CUBE (k);
SELECT x FROM o GROUP BY x ORDER BY count(*) DESC, x LIMIT 2;
SELECT k, count(*) AS n FROM o GROUP BY k ORDER BY count(*) + min(x), k LIMIT 2;
SELECT id, x + 1 AS n FROM o ORDER BY n * 2 - x, id LIMIT 2;
SELECT id, row_number() OVER (ORDER BY x, id) AS r FROM o ORDER BY r DESC LIMIT 2;
SELECT id FROM o ORDER BY row_number() OVER (ORDER BY x DESC, id) LIMIT 2;

-- Sub-queries with groups and LIMIT; columns that are called as a table outside.
SELECT * FROM c, LATERAL (SELECT x, count(*) AS n FROM o WHERE o.k = c.k GROUP BY x ORDER BY x DESC LIMIT 1) AS l;
SELECT name, (SELECT x FROM o WHERE o.k = c.k GROUP BY x ORDER BY count(*) DESC, x LIMIT 1) AS l FROM c;
SELECT * FROM c, LATERAL (SELECT x, count(*) AS n FROM o WHERE o.k >= c.k GROUP BY x ORDER BY n DESC, x LIMIT 1) AS l;
SELECT * FROM c, LATERAL (SELECT x + 1 AS y, count(*) AS n FROM o WHERE o.k >= c.k GROUP BY x + 1 ORDER BY 2, sum(x), y LIMIT 1) AS l;
SELECT * FROM c, LATERAL (SELECT x, rank() OVER (ORDER BY count(*)) AS r FROM o WHERE o.k = c.k GROUP BY x) AS l;
SELECT * FROM c, LATERAL (SELECT x, count(*) AS n FROM o WHERE o.k = c.k GROUP BY x QUALIFY row_number() OVER (ORDER BY x DESC) = 1) AS l;
SELECT name, (SELECT count(*) AS n FROM o WHERE o.k < c.k GROUP BY x ORDER BY x LIMIT 1) AS l FROM c;
SELECT name, (SELECT k FROM o WHERE o.k <> c.k GROUP BY k HAVING count(*) > 0 ORDER BY sum(x) DESC, k LIMIT 1) AS l FROM c;
SELECT name FROM c WHERE name IN (SELECT max(c2.name) FROM c AS c2 WHERE c2.k <= c.k GROUP BY c2.k ORDER BY c2.k DESC LIMIT 1);
SELECT name FROM c WHERE EXISTS (SELECT 1 FROM a WHERE a.c = c.k);
SELECT name, (SELECT sum(v) FROM a WHERE v > 3 * length(c.name) AND a.c >= c.k) AS n FROM c;
SELECT c.k, name, v FROM c, LATERAL (SELECT v FROM a WHERE a.c = c.k) AS l;
SELECT name FROM c WHERE EXISTS (SELECT 1 FROM o WHERE c.k = 'a');

-- Values.
SELECT id, ts + INTERVAL '-1' DAY AS a, ts - INTERVAL '-1' MONTH AS b FROM o;
SELECT id, ts - INTERVAL '1 day 00:00:01' AS a, ts + INTERVAL '-00:30:00' AS b FROM o;
VALUES (1), (NULL);
SELECT * FROM (VALUES (NULL, 'a'), (2, NULL)) AS v (x, y);

-- Rows of values, functions, groups of all.
SELECT id FROM o WHERE (k, x) IN (('a', 1), ('b', 2));
SELECT id FROM o WHERE (k, x) NOT IN (('a', 1), ('b', 2)) OR (id, x) IN ((1, 1));
SELECT id FROM o WHERE (k, x) IN (SELECT k, max(x) FROM o GROUP BY k);
SELECT id FROM o WHERE (k, d) NOT IN (SELECT k, d FROM o WHERE x > 3);
SELECT id FROM o WHERE (k, d) NOT IN (SELECT k, d FROM o WHERE x > 1 AND d IS NOT NULL);
SELECT id, (k, d) IN (SELECT k, d FROM o WHERE x > 1 AND d IS NOT NULL) AS b FROM o WHERE d IS NOT NULL;
SELECT id, ntile(3) OVER (ORDER BY x, id) AS n, percent_rank() OVER (ORDER BY x) AS p, cume_dist() OVER (ORDER BY x) AS c FROM o;
SELECT k, round(var_pop(x), 6) AS p, round(stddev_pop(x), 6) AS s, round(var_samp(x), 6) AS v FROM o GROUP BY k;
SELECT id, round(stddev_pop(x) OVER (PARTITION BY k), 6) AS n FROM o;
SELECT k, upper(k) AS u, count(*) AS n, max(DISTINCT x) AS m FROM o GROUP BY ALL;
SELECT k, ntile(2) OVER (ORDER BY sum(x), k) AS n FROM o GROUP BY k;
SELECT k, count(*) AS n FROM o GROUP BY k ORDER BY k LIMIT 0;
SELECT g.n * 2 AS m FROM generate_series(5, -5, -5) AS g (n) WHERE n < 3;
SELECT o.id, g.n FROM o JOIN generate_series(2, 3) AS g (n) ON g.n = o.id;
