-- The number of the group that a tuple belongs to, where a new group begins after every longer gap: products on a belt,
-- those of one case following each other closely.
--   seen  when the tuple was seen, as a number that grows; with NULL it is of the group that is there
--   gap   the longest time between two tuples of a group
-- Memory: two numbers for each group.
CREATE AGGREGATE gap_group(seen LONG, gap LONG): LONG {
    TABLE latest(at LONG, number LONG);
    INITIALIZE: { INSERT INTO latest VALUES (seen, 1); INSERT INTO RETURN VALUES (1); }
    ITERATE: {
        UPDATE latest SET number = number + 1 WHERE seen - at > gap;
        UPDATE latest SET at = coalesce(seen, at);
        INSERT INTO RETURN SELECT number FROM latest;
    }
}
