-- NEXMark as batch SQL in DuckDB, written by hand over the final histories of the inputs: the tables `persons`,
-- `auctions` and `bids`, each with `le` and `re`. Every query gives the whole history of its answer, lifetimes included.
-- A line `-- qN` starts a query; what comes before the first one is run once.

CREATE MACRO forever() AS 9223372036854775807;
CREATE MACRO seconds(n) AS n * 1000000;
CREATE MACRO days(n) AS n * 86400000000;

-- The winner of each auction: of the bids within its lifetime the highest, or the lowest; of equal ones the earliest.
CREATE VIEW valid AS
SELECT a.re AS ended, a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller,
       a.category, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.le AS bid_le
FROM auctions a JOIN bids b ON b.auction = a.id AND b.le >= a.le AND b.le < a.re;

CREATE VIEW sale AS
FROM valid QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_le) = 1;

CREATE VIEW sale_lowest AS
FROM valid QUALIFY row_number() OVER (PARTITION BY id ORDER BY price, bid_le) = 1;

CREATE VIEW daily AS
SELECT *, le // days(1) * days(1) AS day, CASE WHEN price < 10000 THEN 1 WHEN price < 1000000 THEN 2 ELSE 3 END AS rank
FROM bids;

-- q0
SELECT le, re, auction, bidder, price, date_time FROM bids;

-- q1
SELECT le, re, auction, bidder, date_time, price::DOUBLE * 0.908::DOUBLE AS price FROM bids;

-- q2
SELECT le, re, auction, price FROM bids WHERE auction IN (1007, 1020, 2001, 2019, 2087);

-- q3
SELECT greatest(a.le, p.le) AS le, least(a.re, p.re) AS re, p.name, p.city, p.state, a.id
FROM auctions a JOIN persons p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('or', 'id', 'ca') AND a.le < p.re AND p.le < a.re;

-- q4
WITH averages AS (
    SELECT DISTINCT category, ended AS le,
           avg(price) OVER (PARTITION BY category ORDER BY ended RANGE UNBOUNDED PRECEDING) AS avg
    FROM sale
)
SELECT le, lead(le, 1, forever()) OVER (PARTITION BY category ORDER BY le) AS re, category, avg FROM averages;

-- q5
WITH hits AS (
    SELECT auction, unnest(range(5)) AS back, (le // seconds(2) - back) * seconds(2) AS w FROM bids
)
SELECT w AS le, w + seconds(10) AS re, auction, count(*) AS num FROM hits GROUP BY w, auction
QUALIFY num = max(num) OVER (PARTITION BY w);

-- q6
SELECT bid_le AS le, lead(bid_le, 1, forever()) OVER (PARTITION BY seller ORDER BY bid_le) AS re, seller,
       avg(price) OVER (PARTITION BY seller ORDER BY bid_le ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg
FROM sale;

-- q6 of the lowest
SELECT bid_le AS le, lead(bid_le, 1, forever()) OVER (PARTITION BY seller ORDER BY bid_le) AS re, seller,
       avg(price) OVER (PARTITION BY seller ORDER BY bid_le ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg
FROM sale_lowest;

-- q7
WITH numbered AS (SELECT *, le // seconds(10) AS w FROM bids)
SELECT w * seconds(10) AS le, (w + 1) * seconds(10) AS re, auction, price, bidder, date_time
FROM numbered QUALIFY row_number() OVER (PARTITION BY w ORDER BY price DESC, date_time) = 1;

-- q8
WITH registered AS (SELECT id, name, le // seconds(10) AS w FROM persons),
     opened AS (SELECT seller, le // seconds(10) AS w FROM auctions)
SELECT DISTINCT w * seconds(10) AS le, (w + 1) * seconds(10) AS re, id, name
FROM registered SEMI JOIN opened ON opened.seller = registered.id AND opened.w = registered.w;

-- q9
SELECT ended AS le, ended + 1 AS re, * FROM sale;

-- q14
SELECT le, re, auction, bidder, date_time, price::DOUBLE * 0.908::DOUBLE AS price,
       CASE WHEN hour(make_timestamp(le)) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(make_timestamp(le)) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END AS "bidTimeType",
       len(regexp_extract_all(extra, 'c')) AS c_counts
FROM bids WHERE price * 908 > 1000000000 AND price * 908 < 50000000000;

-- q15
SELECT day AS le, day + days(1) AS re, count(*) AS total_bids,
       count(*) FILTER (rank = 1) AS rank1_bids,
       count(*) FILTER (rank = 2) AS rank2_bids,
       count(*) FILTER (rank = 3) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (rank = 1) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (rank = 2) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (rank = 3) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (rank = 1) AS rank1_auctions,
       count(DISTINCT auction) FILTER (rank = 2) AS rank2_auctions,
       count(DISTINCT auction) FILTER (rank = 3) AS rank3_auctions
FROM daily GROUP BY day;

-- q16
SELECT day AS le, day + days(1) AS re, channel,
       time_bucket(INTERVAL 1 MINUTE, make_timestamp(max(daily.le))) AS minute,
       count(*) AS total_bids,
       count(*) FILTER (rank = 1) AS rank1_bids,
       count(*) FILTER (rank = 2) AS rank2_bids,
       count(*) FILTER (rank = 3) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (rank = 1) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (rank = 2) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (rank = 3) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (rank = 1) AS rank1_auctions,
       count(DISTINCT auction) FILTER (rank = 2) AS rank2_auctions,
       count(DISTINCT auction) FILTER (rank = 3) AS rank3_auctions
FROM daily GROUP BY day, channel;

-- q17
SELECT day AS le, day + days(1) AS re, auction, count(*) AS total_bids,
       count(*) FILTER (rank = 1) AS rank1_bids,
       count(*) FILTER (rank = 2) AS rank2_bids,
       count(*) FILTER (rank = 3) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM daily GROUP BY day, auction;

-- q18
SELECT * REPLACE (lead(le, 1, forever()) OVER (PARTITION BY bidder, auction ORDER BY le) AS re) FROM bids;

-- q19
-- The ten change with a bid that is one of them as it comes.
WITH entering AS (
    SELECT b.auction, b.le FROM bids b JOIN bids o ON o.auction = b.auction AND o.le <= b.le
    GROUP BY b.auction, b.le, b.price
    HAVING count(*) FILTER (o.price > b.price OR (o.price = b.price AND o.le < b.le)) < 10
), spans AS (
    SELECT auction, le, lead(le, 1, forever()) OVER (PARTITION BY auction ORDER BY le) AS re FROM entering
)
SELECT s.le, s.re, b.* EXCLUDE (le, re),
       row_number() OVER (PARTITION BY s.auction, s.le ORDER BY b.price DESC, b.le) AS rank_number
FROM spans s JOIN bids b ON b.auction = s.auction AND b.le <= s.le QUALIFY rank_number <= 10;

-- q20
SELECT b.le, b.re, b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_date_time, b.extra AS bid_extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_date_time, a.expires, a.seller,
       a.category, a.extra AS auction_extra
FROM bids b JOIN auctions a ON b.auction = a.id AND b.le >= a.le AND a.category = 10;

-- q22
SELECT le, re, auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bids;
