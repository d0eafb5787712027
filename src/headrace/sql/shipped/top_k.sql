-- The k tuples of highest score: of all so far, or of those in a window, the highest first. Of equal scores those that
-- came first count.
--   item   what is ranked
--   score  by what; NULL is not ranked
--   k      how many, the same for all tuples
-- Memory: k tuples for each group; under ROWS and RANGE those that fewer than k later ones exceed.
CREATE AGGREGATE top_k(item STRING, score DOUBLE, k LONG): (item STRING, score DOUBLE) {
    TABLE best(place LONG, item STRING, score DOUBLE, above LONG);
    TABLE seen(n LONG, k LONG) AS VALUES (0, 0);
    INITIALIZE: ITERATE: {
        UPDATE seen SET n = n + 1, k = top_k.k;
        UPDATE best SET above = above + 1 WHERE score < top_k.score;
        INSERT INTO best SELECT n, top_k.item, top_k.score, (SELECT count(*) FROM best WHERE score >= top_k.score)
            FROM seen WHERE top_k.score IS NOT NULL;
        DELETE FROM best WHERE above >= top_k.k;
    }
    TERMINATE: { INSERT INTO RETURN SELECT item, score FROM best ORDER BY above; }
};

CREATE WINDOW AGGREGATE top_k(item STRING, score DOUBLE, k LONG): (item STRING, score DOUBLE) {
    TABLE inwindow(item STRING, score DOUBLE, k LONG);
    TABLE kept(place LONG, item STRING, score DOUBLE, beaten LONG);
    TABLE passed(came LONG, gone LONG) AS VALUES (0, 0);
    INITIALIZE: ITERATE: {
        UPDATE passed SET came = came + 1;
        UPDATE kept SET beaten = beaten + 1 WHERE score < top_k.score;
        DELETE FROM kept WHERE beaten >= top_k.k;
        INSERT INTO kept SELECT came, top_k.item, top_k.score, 0 FROM passed WHERE top_k.score IS NOT NULL;
        INSERT INTO RETURN SELECT item, score FROM kept AS one
            WHERE (SELECT count(*) FROM kept AS other
                   WHERE other.score > one.score OR (other.score = one.score AND other.place < one.place)) < top_k.k
            ORDER BY score DESC, place;
    }
    EXPIRE: {
        UPDATE passed SET gone = gone + 1;
        DELETE FROM kept WHERE place = (SELECT gone FROM passed);
    }
}
