-- Products that went through a door without anybody who may carry them: OVER (RANGE d PRECEDING ACTIVE EXPIRATION)
-- gives those for which no authorised person was seen within d before or after, as soon as that is certain.
--   tag   what was seen
--   kind  'item' for a product, 'op' for an authorised person; others are passed over
-- Memory: what was seen within d.
CREATE WINDOW AGGREGATE theft_alarm(tag STRING, kind STRING): STRING {
    TABLE inwindow(tag STRING, kind STRING);
    INITIALIZE: ITERATE: {
        DELETE FROM inwindow WHERE kind = 'item' AND (SELECT count(*) FROM inwindow AS seen WHERE seen.kind = 'op') > 0;
    }
    EXPIRE: { INSERT INTO RETURN SELECT oldest().tag WHERE oldest().kind = 'item'; }
}
