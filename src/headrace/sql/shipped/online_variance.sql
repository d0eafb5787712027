-- The variance of a sample: of all tuples so far, or of those in a window; one pass, and stable (Welford).
--   next  what varies; NULL changes nothing. The variance of less than two values is NULL
-- Memory: three numbers for each group, and under ROWS and RANGE the tuples of the window.
CREATE AGGREGATE online_variance(next DOUBLE): DOUBLE {
    TABLE state(n LONG, mean DOUBLE, squares DOUBLE) AS VALUES (0, 0.0, 0.0);
    INITIALIZE: ITERATE: {
        UPDATE state SET n = n + 1, mean = mean + (next - mean) / (n + 1),
            squares = squares + (next - mean) * (next - (mean + (next - mean) / (n + 1))) WHERE next IS NOT NULL;
        INSERT INTO RETURN SELECT squares / (n - 1) FROM state WHERE n > 1;
    }
};

CREATE WINDOW AGGREGATE online_variance(next DOUBLE): DOUBLE {
    TABLE inwindow(next DOUBLE);
    TABLE state(n LONG, mean DOUBLE, squares DOUBLE) AS VALUES (0, 0.0, 0.0);
    INITIALIZE: ITERATE: {
        UPDATE state SET n = n + 1, mean = mean + (next - mean) / (n + 1),
            squares = squares + (next - mean) * (next - (mean + (next - mean) / (n + 1))) WHERE next IS NOT NULL;
        INSERT INTO RETURN SELECT squares / (n - 1) FROM state WHERE n > 1;
    }
    EXPIRE: {
        UPDATE state SET n = 0, mean = 0.0, squares = 0.0 WHERE oldest().next IS NOT NULL AND n = 1;
        UPDATE state SET n = n - 1, mean = mean - (oldest().next - mean) / (n - 1),
            squares = squares - (oldest().next - mean) * (oldest().next - (mean - (oldest().next - mean) / (n - 1)))
            WHERE oldest().next IS NOT NULL AND n > 1;
        INSERT INTO RETURN SELECT squares / (n - 1) FROM state WHERE n > 1;
    }
}
