-- An average that forgets: each tuple counts with its weight, all before it with the rest.
--   next    what is averaged; NULL changes nothing
--   weight  how much the newest counts, from 0 to 1
-- Memory: one number for each group.
CREATE AGGREGATE ewma(next DOUBLE, weight DOUBLE): DOUBLE {
    TABLE state(mean DOUBLE) AS VALUES (NULL);
    INITIALIZE: ITERATE: {
        UPDATE state SET mean = coalesce(weight * next + (1.0 - weight) * mean, mean, next);
        INSERT INTO RETURN SELECT mean FROM state;
    }
}
