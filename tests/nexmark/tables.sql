-- The 18 queries of NEXMark as Flink's and RisingWave's suites word them, over tables that change: bids, too, are rows
-- that are updated and deleted. DuckDB runs the same text, apart from what `tables_duckdb` in test_tables.py replaces.

-- q0
SELECT auction, bidder, price, date_time, extra FROM bid

-- q1
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid

-- q2
SELECT auction, price FROM bid WHERE mod(auction, 3) = 0

-- q3
SELECT p.name, p.city, p.state, a.id
FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'or' OR p.state = 'id' OR p.state = 'ca')

-- q4
SELECT q.category, avg(q.final) AS price
FROM (
    SELECT max(b.price) AS final, a.category
    FROM auction a, bid b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
) AS q
GROUP BY q.category

-- q5
SELECT auction_bids.auction, auction_bids.num
FROM (
    SELECT auction, count(*) AS num, window_start AS starttime
    FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start
) AS auction_bids
JOIN (
    SELECT max(count_bids.num) AS maxn, count_bids.starttime AS starttime
    FROM (
        SELECT count(*) AS num, window_start AS starttime
        FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
        GROUP BY auction, window_start
    ) AS count_bids
    GROUP BY count_bids.starttime
) AS max_bids
ON auction_bids.starttime = max_bids.starttime AND auction_bids.num >= max_bids.maxn

-- q6
SELECT q.seller, avg(q.final) OVER (
    PARTITION BY q.seller ORDER BY q.date_time, q.id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM (
    SELECT id, seller, price AS final, bid_date_time AS date_time
    FROM (
        SELECT a.id AS id, a.seller AS seller, b.price AS price, b.date_time AS bid_date_time,
               row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.extra, b.bidder) AS rownum
        FROM auction a, bid b
        WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    ) AS ranked
    WHERE rownum <= 1
) AS q

-- q7
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
    SELECT max(price) AS maxprice, window_end AS date_time
    FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND)
    GROUP BY window_end
) AS b1
ON b.price = b1.maxprice
WHERE b.date_time BETWEEN b1.date_time - INTERVAL '10' SECOND AND b1.date_time

-- q8
SELECT p.id, p.name, p.starttime
FROM (
    SELECT id, name, window_start AS starttime FROM TUMBLE(person, date_time, INTERVAL '10' SECOND)
    GROUP BY id, name, window_start
) AS p
JOIN (
    SELECT seller, window_start AS starttime FROM TUMBLE(auction, date_time, INTERVAL '10' SECOND)
    GROUP BY seller, window_start
) AS a
ON p.id = a.seller AND p.starttime = a.starttime

-- q9
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra, auction, bidder,
       price, bid_date_time, bid_extra
FROM (
    SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category,
           a.extra, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.extra, b.bidder) AS rownum
    FROM auction a, bid b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) AS ranked
WHERE rownum <= 1

-- q14
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN extract(hour FROM date_time) >= 8 AND extract(hour FROM date_time) <= 18 THEN 'dayTime'
            WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra, length(extra) AS letters
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- q15
SELECT date_trunc('day', date_time) AS day, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions
FROM bid
GROUP BY date_trunc('day', date_time)

-- q16
SELECT channel, date_trunc('day', date_time) AS day, max(date_trunc('minute', date_time)) AS minute,
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid
GROUP BY channel, date_trunc('day', date_time)

-- q17
SELECT auction, date_trunc('day', date_time) AS day, count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, date_trunc('day', date_time)

-- q18
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (
    SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, extra, price) AS rank_number
    FROM bid
) AS ranked
WHERE rank_number <= 1

-- q19
SELECT *
FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, extra, bidder) AS rank_number
    FROM bid
) AS ranked
WHERE rank_number <= 10

-- q20
SELECT auction, bidder, price, channel, url, b.date_time AS bid_date_time, b.extra AS bid_extra, item_name, description,
       initial_bid, reserve, a.date_time AS auction_date_time, expires, seller, category, a.extra AS auction_extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10

-- q22
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
       split_part(url, '/', 6) AS dir3
FROM bid
