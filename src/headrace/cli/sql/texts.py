"""Texts of the shell: its help, and what to write in place of commands of other shells."""

from __future__ import annotations

__all__ = ["ELSEWHERE", "GREETING", "HELP"]

GREETING = "Headrace SQL. Statements end with a semicolon; help lists the commands, Ctrl-D quits."
HELP = """\
help, quit, exit and clear need no backslash. Statements end with ; and may have several lines:
  CREATE STREAM s (k STRING, ts DATETIME, x DOUBLE) ORDER BY ts SOURCE FILE ('s.csv');   the rows of a file
  SELECT k, sum(x) AS total FROM s [TUMBLING 1 min] GROUP BY k;                          a query
  EXPLAIN SELECT …;                                                                      how it runs
  EXPLAIN ANALYZE SELECT …;                                                              what it costs
SHOW STREAMS, TABLES, FUNCTIONS, … list what there is, and SHOW SETTINGS what SET sets."""

_LIST, _KEYS, _FILE = "\\d", "the arrow keys, which bring back earlier input", "INSERT INTO FILE ('out') SELECT …;"
#: Commands of psql, and what to write here.
ELSEWHERE = {
    **dict.fromkeys(("c", "connect", "l", "dn", "dv", "dm", "di", "z"), _LIST),
    **dict.fromkeys(("e", "s", "p"), _KEYS),
    **dict.fromkeys(("o", "copy"), _FILE),
    **dict.fromkeys(("conninfo", "set", "pset"), "SHOW SETTINGS;"),
    "timing": "EXPLAIN ANALYZE SELECT …;",
    "da": "SHOW AGGREGATES;",
    "g": ";",
}
