-- The mean of all tuples so far, or of those in a window, kept up with one division for each tuple (Welford).
--   next  what is averaged; NULL changes nothing
-- Memory: two numbers for each group, and under ROWS and RANGE the tuples of the window.
CREATE AGGREGATE online_mean(next DOUBLE): DOUBLE {
    TABLE state(n LONG, mean DOUBLE) AS VALUES (0, NULL);
    INITIALIZE: ITERATE: {
        UPDATE state SET n = n + 1, mean = coalesce(mean + (next - mean) / (n + 1), next) WHERE next IS NOT NULL;
        INSERT INTO RETURN SELECT mean FROM state;
    }
};

CREATE WINDOW AGGREGATE online_mean(next DOUBLE): DOUBLE {
    TABLE inwindow(next DOUBLE);
    TABLE state(n LONG, mean DOUBLE) AS VALUES (0, NULL);
    INITIALIZE: ITERATE: {
        UPDATE state SET n = n + 1, mean = coalesce(mean + (next - mean) / (n + 1), next) WHERE next IS NOT NULL;
        INSERT INTO RETURN SELECT mean FROM state;
    }
    EXPIRE: {
        UPDATE state SET n = n - 1, mean = CASE WHEN n > 1 THEN mean - (oldest().next - mean) / (n - 1) END
            WHERE oldest().next IS NOT NULL;
        INSERT INTO RETURN SELECT mean FROM state;
    }
}
