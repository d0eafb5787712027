-- A tuple drawn from all so far, or from those in a window: the one of highest priority (Babcock, Datar and Motwani).
-- Where priorities are drawn at random, so is the tuple; of equal priorities the one that came first counts.
--   item      what is drawn
--   priority  uniform(id), say, of a number that tells tuples apart; with NULL it is never drawn
-- Memory: one tuple for each group; under ROWS and RANGE those that no later one exceeds, with random priorities about
-- ln(n) of a window of n.
CREATE AGGREGATE priority_sample(item STRING, priority DOUBLE): STRING {
    TABLE best(item STRING, priority DOUBLE);
    INITIALIZE: ITERATE: {
        DELETE FROM best WHERE priority < priority_sample.priority;
        INSERT INTO best SELECT item, priority WHERE priority IS NOT NULL AND (SELECT count(*) FROM best) = 0;
        INSERT INTO RETURN SELECT item FROM best;
    }
};

CREATE WINDOW AGGREGATE priority_sample(item STRING, priority DOUBLE): STRING {
    TABLE inwindow(item STRING, priority DOUBLE);
    INITIALIZE: ITERATE: {
        DELETE FROM inwindow WHERE priority < priority_sample.priority OR priority IS NULL;
        INSERT INTO RETURN SELECT item FROM inwindow LIMIT 1;
    }
}
