-- How many of the last tuples were true, approximately and in little memory: an exponential histogram (Datar, Gionis,
-- Indyk and Motwani). Ones are counted in buckets of 1, 2, 4, … of them. Where one too many has the same size, the two
-- oldest become one of the next; only of the oldest bucket is it not known how much still counts, and half of it does.
--   bit   what is counted; NULL is as false
--   last  how many tuples back, the same for all tuples
--   most  how many buckets may have the same size, 2 or more: the answer is wrong by at most a most-th of what is true
-- Memory: about most * log2(last / most) buckets for each group, and no tuples: call it without ROWS or RANGE.
CREATE AGGREGATE approx_ones(bit BOOLEAN, last LONG, most LONG): LONG {
    TABLE seen(n LONG, room LONG) AS VALUES (0, 1);
    TABLE buckets(newest LONG, size LONG);
    INITIALIZE: ITERATE: {
        UPDATE seen SET n = n + 1;
        DELETE FROM buckets WHERE newest <= (SELECT n FROM seen) - last;
        -- The least size that has room for another bucket; all below are full, and pass one on.
        UPDATE seen SET room = coalesce(
            (SELECT min(one.size) FROM buckets AS one
             WHERE (SELECT count(*) FROM buckets AS other WHERE other.size = one.size) < most),
            (SELECT 2 * max(one.size) FROM buckets AS one), 1);
        DELETE FROM buckets WHERE bit AND size < (SELECT room FROM seen)
            AND newest = (SELECT min(other.newest) FROM buckets AS other WHERE other.size = buckets.size);
        UPDATE buckets SET size = 2 * size WHERE bit AND size < (SELECT room FROM seen)
            AND newest = (SELECT min(other.newest) FROM buckets AS other WHERE other.size = buckets.size);
        INSERT INTO buckets SELECT n, 1 FROM seen WHERE bit;
        INSERT INTO RETURN SELECT coalesce(sum(size) - CAST(floor(max(size) / 2) AS LONG), 0) FROM buckets;
    }
}
