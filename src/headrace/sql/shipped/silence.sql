-- Nothing heard for a while: OVER (PARTITION BY k RANGE d PRECEDING ACTIVE EXPIRATION) gives, d after the last tuple of a
-- group, what was heard then.
--   heard  what to give: what the last tuple said
-- Memory: what was heard within d.
CREATE WINDOW AGGREGATE silence(heard STRING): STRING {
    TABLE inwindow(heard STRING);
    INITIALIZE: ITERATE: { }
    EXPIRE: { INSERT INTO RETURN SELECT oldest().heard WHERE (SELECT count(*) FROM inwindow) = 1; }
}
