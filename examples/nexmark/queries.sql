-- The queries of NEXMark in SQL: each gives the same history as its twin in queries.py.
--
-- Three streams are given: persons, who never end; auctions, which last while they are open; bids, which are instants.
-- Two things are Python's: the function `directory` (q22) and the operator `ranked` (q19).

-- Every bid, as it comes.
QUERY q0 AS SELECT auction, bidder, price, date_time FROM bids;

-- The prices in euros.
QUERY q1 AS SELECT auction, bidder, date_time, price * 0.908 AS price FROM bids;

-- What is offered for these five items.
QUERY q2 AS SELECT auction, price FROM bids WHERE auction IN (1007, 1020, 2001, 2019, 2087);

-- Who sells things of category 10 in Oregon, Idaho or California. A join pairs events while both last.
QUERY q3 AS
SELECT name, city, state, a.id
FROM auctions AS a JOIN persons AS p ON a.seller = p.id
WHERE category = 10 AND state IN ('or', 'id', 'ca');

-- Bids on open auctions: a bid that never ends is cut to its auction's lifetime by the join.
SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time
FROM auctions AS a
JOIN bids [RANGE UNBOUNDED] AS b ON a.id = b.auction AND b.date_time >= a.date_time
INTO offers;

-- Who leads when the auction ends has won: one instant more, to meet the end.
CREATE STREAM leading AS SELECT * FROM offers ORDER BY price DESC, bid_date_time LIMIT 1 BY id;
SELECT l.*
FROM leading [EXTEND 1 tick] AS l JOIN auctions [POINT AT END] AS ended ON l.id = ended.id
INTO sales;

-- The average selling price of each category, over all auctions that have ended so far.
QUERY q4 AS SELECT category, avg(price) AS avg FROM sales [RANGE UNBOUNDED] [SNAPSHOT] GROUP BY category;

-- Which auctions had the most bids in the last ten seconds, every two seconds? The windows overlap: while the largest
-- count is looked up, they are cut to two seconds each, so that they do not overlap.
CREATE STREAM counts AS
SELECT auction, num
FROM (SELECT auction, count(*) AS num FROM bids [HOPPING 10 s EVERY 2 s] GROUP BY auction) [RANGE 2 s];
CREATE STREAM busiest AS
SELECT c.auction, c.num
FROM counts AS c JOIN (SELECT max(num) AS most FROM counts [SNAPSHOT]) AS m ON c.num = m.most;
QUERY q5 AS SELECT * FROM busiest [RANGE 10 s];

-- What each seller got on average for an item and the ten sold before it, in the order of the winning bids: a sale
-- reaches back a day, to meet its bid.
CREATE STREAM sold AS
SELECT s.seller, b.price, b.date_time
FROM bids AS b JOIN sales [SHIFT - 1 day] [RANGE 1 day] AS s
  ON b.auction = s.id AND b.bidder = s.bidder AND b.price = s.price AND b.date_time = s.bid_date_time;
QUERY q6 AS
SELECT seller, avg(price) AS avg
FROM (SELECT * FROM sold [RANGE UNBOUNDED] ORDER BY date_time DESC LIMIT 11 BY seller) [SNAPSHOT]
GROUP BY seller;

-- The highest bid of each ten seconds; of equal ones, the earliest.
QUERY q7 AS
SELECT auction, price, bidder, date_time FROM bids [TUMBLING 10 s] ORDER BY price DESC, date_time LIMIT 1;

-- Who opened an auction within the same ten seconds in which they registered?
QUERY q8 AS
SELECT p.id, p.name
FROM (SELECT id, name, count(*) AS registered FROM persons [NOW] [TUMBLING 10 s] GROUP BY id, name) AS p
JOIN (SELECT seller, count(*) AS opened FROM auctions [NOW] [TUMBLING 10 s] GROUP BY seller) AS a ON p.id = a.seller;

-- Which bid won each auction?
QUERY q9 AS
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, auction, bidder, price,
       bid_date_time
FROM sales;

-- Which bids are worth one to fifty million euros, by day or night, and how many c's are in `extra`?
QUERY q14 AS
SELECT auction, bidder, date_time, price * 0.908 AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bids
WHERE price * 0.908 > 1000000 AND price * 0.908 < 50000000;

-- How many bids, bidders and auctions are there each day, in all and by the rank of the price?
QUERY q15 AS
SELECT count(*) AS total_bids,
       count(CASE WHEN price < 10000 THEN 1 END) AS rank1_bids,
       count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS rank2_bids,
       count(CASE WHEN price >= 1000000 THEN 1 END) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT CASE WHEN price < 10000 THEN bidder END) AS rank1_bidders,
       count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END) AS rank2_bidders,
       count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT CASE WHEN price < 10000 THEN auction END) AS rank1_auctions,
       count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN auction END) AS rank2_auctions,
       count(DISTINCT CASE WHEN price >= 1000000 THEN auction END) AS rank3_auctions
FROM bids [TUMBLING 1 day];

-- The same for each channel, and in which minute did its last bid of the day come?
QUERY q16 AS
SELECT channel, date_trunc('minute', max(date_time)) AS minute,
       count(*) AS total_bids,
       count(CASE WHEN price < 10000 THEN 1 END) AS rank1_bids,
       count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS rank2_bids,
       count(CASE WHEN price >= 1000000 THEN 1 END) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT CASE WHEN price < 10000 THEN bidder END) AS rank1_bidders,
       count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END) AS rank2_bidders,
       count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT CASE WHEN price < 10000 THEN auction END) AS rank1_auctions,
       count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN auction END) AS rank2_auctions,
       count(DISTINCT CASE WHEN price >= 1000000 THEN auction END) AS rank3_auctions
FROM bids [TUMBLING 1 day]
GROUP BY channel;

-- How many bids has each auction each day, and what are their prices like?
QUERY q17 AS
SELECT auction,
       count(*) AS total_bids,
       count(CASE WHEN price < 10000 THEN 1 END) AS rank1_bids,
       count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS rank2_bids,
       count(CASE WHEN price >= 1000000 THEN 1 END) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bids [TUMBLING 1 day]
GROUP BY auction;

-- The last bid of each bidder on each auction: it is that until the next comes; of the same instant, `extra` decides.
QUERY q18 AS
SELECT b.* FROM bids [RANGE UNBOUNDED] AS b CLIP JOIN bids AS n ON b.bidder = n.bidder AND b.auction = n.auction
ORDER BY extra LIMIT 1 BY bidder, auction;

-- The ten highest bids on each auction, and in which order.
CREATE STREAM highest AS
SELECT * FROM bids [RANGE UNBOUNDED] ORDER BY price DESC, date_time, extra LIMIT 10 BY auction;
QUERY q19 AS
SELECT * FROM highest [SNAPSHOT PARTITIONED BY auction]
  [APPLY ranked(bidder, price, channel, url, date_time, extra)];

-- Which bids are made on things of category 10, and what are these? The auction has opened; it may have ended.
QUERY q20 AS
SELECT auction, bidder, price, channel, url, item_name, description, initial_bid, reserve, expires, seller, category,
       b.date_time AS bid_date_time, b.extra AS bid_extra, a.date_time AS auction_date_time, a.extra AS auction_extra
FROM bids AS b JOIN auctions [RANGE UNBOUNDED] AS a ON b.auction = a.id
WHERE a.category = 10;

-- Through which directories does the address lead?
QUERY q22 AS
SELECT auction, bidder, price, channel, directory(url, 3) AS dir1, directory(url, 4) AS dir2, directory(url, 5) AS dir3
FROM bids;
