-- Items that are frequent, approximately: a row for each tuple whose item makes up at least a share of all so far, or of
-- those in a window, with how often it was seen. Counted three times, by three hashes (a counting Bloom filter): the
-- least of the three counts is never too low, and too high only if an item meets others under every hash. A hash is the
-- rest of a division by a prime, so that no two of a thousand million neighbours meet under all three.
--   item   a whole number that tells items apart; NULL is not counted
--   share  from 0 to 1
-- Memory: at most 3053 counts for each group, however many items there are, and under ROWS and RANGE the
-- tuples of the window.
CREATE AGGREGATE frequent_items(item LONG, share DOUBLE): (item LONG, n LONG) {
    TABLE hashes(size LONG, slot LONG, n LONG, KEY (size)) AS VALUES (1021, 0, 0), (1019, 0, 0), (1013, 0, 0);
    TABLE counts(size LONG, slot LONG, n LONG, KEY (size, slot));
    TABLE tuples(n LONG) AS VALUES (0);
    INITIALIZE: ITERATE: {
        UPDATE hashes SET slot = (item % size + size) % size;
        UPDATE hashes SET n = (SELECT coalesce(max(c.n), 0) + 1 FROM counts AS c
                               WHERE c.size = hashes.size AND c.slot = hashes.slot);
        INSERT INTO counts SELECT size, slot, n FROM hashes WHERE item IS NOT NULL;
        UPDATE tuples SET n = n + 1 WHERE item IS NOT NULL;
        INSERT INTO RETURN SELECT item, (SELECT min(h.n) FROM hashes AS h) FROM tuples
            WHERE item IS NOT NULL AND (SELECT min(h.n) FROM hashes AS h) >= share * n;
    }
};

CREATE WINDOW AGGREGATE frequent_items(item LONG, share DOUBLE): (item LONG, n LONG) {
    TABLE inwindow(item LONG, share DOUBLE);
    TABLE hashes(size LONG, slot LONG, n LONG, KEY (size)) AS VALUES (1021, 0, 0), (1019, 0, 0), (1013, 0, 0);
    TABLE counts(size LONG, slot LONG, n LONG, KEY (size, slot));
    TABLE tuples(n LONG) AS VALUES (0);
    INITIALIZE: ITERATE: {
        UPDATE hashes SET slot = (item % size + size) % size;
        UPDATE hashes SET n = (SELECT coalesce(max(c.n), 0) + 1 FROM counts AS c
                               WHERE c.size = hashes.size AND c.slot = hashes.slot);
        INSERT INTO counts SELECT size, slot, n FROM hashes WHERE item IS NOT NULL;
        UPDATE tuples SET n = n + 1 WHERE item IS NOT NULL;
        INSERT INTO RETURN SELECT item, (SELECT min(h.n) FROM hashes AS h) FROM tuples
            WHERE item IS NOT NULL AND (SELECT min(h.n) FROM hashes AS h) >= share * n;
    }
    EXPIRE: {
        UPDATE hashes SET slot = (oldest().item % size + size) % size;
        UPDATE hashes SET n = (SELECT max(c.n) - 1 FROM counts AS c WHERE c.size = hashes.size AND c.slot = hashes.slot);
        INSERT INTO counts SELECT size, slot, n FROM hashes WHERE oldest().item IS NOT NULL;
        UPDATE tuples SET n = n - 1 WHERE oldest().item IS NOT NULL;
    }
}
