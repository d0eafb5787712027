-- Questions that users of streaming databases put to tables that change, in the words they use there: views over views,
-- the best of each group, joins of five tables, sub-queries, sets. DuckDB runs the same text.

-- orders by status
SELECT status, count(*) AS n FROM orders GROUP BY status

-- revenue of each category
SELECT category, sum(price * qty) AS revenue, count(DISTINCT oid) AS orders
FROM orders JOIN items ON oid = iorder JOIN products ON iproduct = pid
GROUP BY category

-- one row for everything
SELECT count(*) AS n, sum(qty) AS pieces, min(qty) AS least, max(qty) AS most, avg(qty) AS mean FROM items

-- one row although nothing matches
SELECT count(*) AS n, sum(qty) AS pieces FROM items WHERE qty > 1000

-- customers without an order
SELECT cid, cname FROM customers WHERE NOT EXISTS (SELECT 1 FROM orders WHERE ocustomer = cid)

-- customers without an order, by an outer join
SELECT cid, cname FROM customers LEFT JOIN orders ON ocustomer = cid WHERE oid IS NULL

-- customers without an order, by NOT IN
SELECT cid FROM customers WHERE cid NOT IN (SELECT ocustomer FROM orders)

-- how many orders each customer has, also none
SELECT cid, cname, count(oid) AS n FROM customers LEFT JOIN orders ON ocustomer = cid GROUP BY cid, cname

-- what each customer has spent, also nothing
SELECT cid, coalesce(sum(price * qty), 0) AS spent
FROM customers LEFT JOIN orders ON ocustomer = cid LEFT JOIN items ON iorder = oid LEFT JOIN products ON iproduct = pid
GROUP BY cid

-- five tables
SELECT city, category, method, sum(qty) AS pieces
FROM customers, orders, items, products, payments
WHERE cid = ocustomer AND oid = iorder AND iproduct = pid AND yorder = oid
GROUP BY city, category, method

-- the dearest product of each category
SELECT category, pname, price
FROM (SELECT *, row_number() OVER (PARTITION BY category ORDER BY price DESC, pid) AS place FROM products) AS ranked
WHERE place = 1

-- the three latest orders of each customer
SELECT ocustomer, oid, placed
FROM (SELECT *, row_number() OVER (PARTITION BY ocustomer ORDER BY placed DESC, oid) AS place FROM orders) AS ranked
WHERE place <= 3

-- the three latest orders of each customer, with QUALIFY
SELECT ocustomer, oid FROM orders QUALIFY row_number() OVER (PARTITION BY ocustomer ORDER BY placed DESC, oid) <= 3

-- the ten best customers
SELECT ocustomer, sum(price * qty) AS spent
FROM orders JOIN items ON oid = iorder JOIN products ON iproduct = pid
GROUP BY ocustomer ORDER BY spent DESC, ocustomer LIMIT 10

-- the places of products by price
SELECT pid, rank() OVER (ORDER BY price DESC) AS place, dense_rank() OVER (ORDER BY price DESC) AS dense FROM products

-- a product's price beside the mean of its category
SELECT pid, price, avg(price) OVER (PARTITION BY category) AS mean FROM products

-- the share of a category
SELECT category, sum(price) AS total, sum(price) / (SELECT sum(price) FROM products) AS share
FROM products GROUP BY category

-- the order before
SELECT oid, ocustomer, lag(oid) OVER (PARTITION BY ocustomer ORDER BY placed, oid) AS before FROM orders

-- a running total
SELECT yid, sum(amount) OVER (PARTITION BY method ORDER BY yid ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total
FROM payments

-- a moving sum
SELECT yid, sum(amount) OVER (ORDER BY yid ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS last_three FROM payments

-- products dearer than the mean
SELECT pid, pname FROM products WHERE price > (SELECT avg(price) FROM products)

-- products dearer than the mean of their category
SELECT p.pid, p.pname FROM products p WHERE p.price > (SELECT avg(q.price) FROM products q WHERE q.category = p.category)

-- orders that are not paid in full
SELECT oid, owed, paid
FROM (
    SELECT oid, sum(price * qty) AS owed
    FROM orders JOIN items ON oid = iorder JOIN products ON iproduct = pid GROUP BY oid
) AS bills
JOIN (SELECT yorder, sum(amount) AS paid FROM payments GROUP BY yorder) AS receipts ON yorder = oid
WHERE paid < owed

-- cases
SELECT CASE WHEN price < 20 THEN 'cheap' WHEN price < 60 THEN 'fair' ELSE 'dear' END AS class, count(*) AS n
FROM products GROUP BY CASE WHEN price < 20 THEN 'cheap' WHEN price < 60 THEN 'fair' ELSE 'dear' END

-- a pivot by hand
SELECT ocustomer,
       sum(CASE WHEN status = 'open' THEN 1 ELSE 0 END) AS open,
       sum(CASE WHEN status = 'sent' THEN 1 ELSE 0 END) AS sent,
       count(*) FILTER (WHERE status = 'back') AS back
FROM orders GROUP BY ocustomer

-- groups with a condition
SELECT ocustomer, count(*) AS n FROM orders GROUP BY ocustomer HAVING count(*) > 3

-- groups with a condition by an alias
SELECT ocustomer, count(*) AS n FROM orders GROUP BY 1 HAVING n > 3

-- different values
SELECT DISTINCT city, tier FROM customers

-- everything that has been bought by two kinds of customers
SELECT iproduct FROM items JOIN orders ON iorder = oid WHERE ocustomer < 8
INTERSECT
SELECT iproduct FROM items JOIN orders ON iorder = oid WHERE ocustomer >= 8

-- products that nobody buys
SELECT pid FROM products EXCEPT SELECT iproduct FROM items

-- two kinds of people
SELECT cname AS who, 'customer' AS what FROM customers WHERE tier > 2
UNION ALL
SELECT pname, 'product' FROM products WHERE price > 80

-- names and cities without duplicates
SELECT city AS word FROM customers UNION SELECT category FROM products

-- views over views
CREATE OR REPLACE VIEW bills AS
    SELECT oid, ocustomer, sum(price * qty) AS total
    FROM orders JOIN items ON oid = iorder JOIN products ON iproduct = pid GROUP BY oid, ocustomer;
CREATE OR REPLACE VIEW spenders AS SELECT ocustomer, sum(total) AS spent, count(*) AS n FROM bills GROUP BY ocustomer;
SELECT city, sum(spent) AS spent, max(n) AS most FROM spenders JOIN customers ON ocustomer = cid GROUP BY city

-- a query in a query in a query
WITH bills AS (SELECT iorder, sum(qty) AS pieces FROM items GROUP BY iorder),
     large AS (SELECT iorder FROM bills WHERE pieces > (SELECT avg(pieces) FROM bills))
SELECT cname FROM customers WHERE cid IN (SELECT ocustomer FROM orders WHERE oid IN (SELECT iorder FROM large))

-- an order beside another one
SELECT a.oid AS first, b.oid AS second
FROM orders a JOIN orders b ON a.ocustomer = b.ocustomer AND a.oid < b.oid
WHERE a.status = 'back' AND b.status = 'back'

-- orders of the last hour of the log
SELECT oid FROM orders WHERE placed > (SELECT max(placed) FROM orders) - INTERVAL '1' HOUR

-- orders of each hour
SELECT date_trunc('hour', placed) AS hour, count(*) AS n, count(DISTINCT ocustomer) AS people
FROM orders GROUP BY date_trunc('hour', placed)

-- what is on either side
SELECT oid, yid FROM orders FULL JOIN payments ON yorder = oid WHERE oid IS NULL OR yid IS NULL

-- sums of several kinds
SELECT city, tier, count(*) AS n FROM customers GROUP BY ROLLUP (city, tier)

-- the dearest item of each order, by LATERAL
SELECT o.oid, best.pname
FROM orders o, LATERAL (
    SELECT pname FROM items JOIN products ON iproduct = pid WHERE iorder = o.oid ORDER BY price DESC, pid LIMIT 1
) AS best

-- one of each, by DISTINCT ON
SELECT DISTINCT ON (category) category, pname FROM products ORDER BY category, price, pid

-- names in a list
SELECT category, string_agg(pname, ', ' ORDER BY pid) AS names FROM products GROUP BY category

-- whether there is one
SELECT cid, EXISTS (SELECT 1 FROM orders WHERE ocustomer = cid AND status = 'open') AS waits FROM customers
