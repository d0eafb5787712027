"""Forms of statements in other dialects of SQL, for the hints of errors where a text cannot be parsed."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["FORMS", "Form", "form_at"]


class Form(NamedTuple):
    """A form of another dialect: the text before the place where parsing fails, the text there, and what to write.

    A group `at` of either pattern is the place of the mistake. `{}` in the hint stands for the group `given`.
    """

    before: str
    after: str
    hint: str
    #: The form, in a text that shows it; tests run it.
    example: str


_CONDITION = "NOT, AND and OR join conditions"
_NO_PARAMETERS = "the value itself: statements have no parameters"
_ORDER = "the order of clauses: SELECT … FROM … WHERE … GROUP BY … HAVING … ORDER BY … LIMIT"
_STRAIGHT = "straight quotes: 'text', \"name\""

#: Tried in order.
FORMS = (
    Form(
        r"EMIT\s+",
        r"CHANGES\b",
        "EMIT SPECULATIVE, the default: early answers and corrections",
        "SELECT a FROM s EMIT CHANGES",
    ),
    Form(
        r"(?P<at>WATERMARK)\s+FOR\s+",
        r"\w",
        "after the columns, ORDER BY ts … WITH PROGRESS ADVANCE 5 s",
        "CREATE STREAM s (ts DATETIME, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)",
    ),
    Form(r"SELECT\s+(?P<at>TOP)\s+", r"(?P<given>\d+)", "ORDER BY … LIMIT {}, at the end", "SELECT TOP 10 a FROM s"),
    Form(r"(?P<at>&)", r"&", "AND", "SELECT a FROM s WHERE a > 1 && b > 1"),
    Form(
        r"(?P<at>\|\|)\s*[\w.]+\s*",
        r"[<>=]",
        f"OR: || joins texts, and {_CONDITION}",
        "SELECT a FROM s WHERE a > 1 || b > 1",
    ),
    Form(r"(?P<at><=)", r">", "IS NOT DISTINCT FROM", "SELECT a FROM s WHERE a <=> 1"),
    Form(r"(?P<at>=)\s*", r"!", "<>", "SELECT a FROM s WHERE a =! 1"),
    Form(r"", r"!", "NOT", "SELECT a FROM s WHERE !ok"),
    Form(r"", r"=>", ">=", "SELECT a FROM s WHERE a => 1"),
    Form(r"(?P<at>=)\s*", r"<", "<=", "SELECT a FROM s WHERE a =< 1"),
    Form(r"", r"≥", ">=", "SELECT a FROM s WHERE a ≥ 1"),
    Form(r"", r"≤", "<=", "SELECT a FROM s WHERE a ≤ 1"),
    Form(r"", r"≠", "<>", "SELECT a FROM s WHERE a ≠ 1"),
    Form(r"", r"[“”„«»‘’]", _STRAIGHT, "SELECT “a” FROM s"),
    Form(r"", r"[$:@]\w|\?(?!\?)", _NO_PARAMETERS, "SELECT a FROM s WHERE a > ?"),
    Form(r"", r"#", "-- for a comment", "SELECT a # the first\nFROM s"),
    Form(r"'", r"\w", "'' for ' in a text", "SELECT a FROM s WHERE a = 'it's'"),
    Form(
        r"(?P<at>WINDOW)\s+(?P<given>TUMBLING|HOPPING|SESSION)\s*",
        r"\(",
        "brackets after the stream: FROM s [{} …]",
        "SELECT a FROM s WINDOW TUMBLING (SIZE 10 SECONDS)",
    ),
    Form(
        r"CREATE\s+(?:STREAM|TABLE)\b[^;]*(?P<at>WITH)\s*\(\s*",
        r"\w",
        "SOURCE kafka ('servers', 'topic'), or SOURCE FILE ('path')",
        "CREATE STREAM s (a INT) WITH (kafka_topic = 'a')",
    ),
    Form(
        r"CREATE\s+(?:STREAM|TABLE)\b[^;]*",
        r"WITH\s*\(",
        "SOURCE kafka ('servers', 'topic'), or SOURCE FILE ('path')",
        "CREATE TABLE s (a INT) WITH ('connector' = 'kafka')",
    ),
    Form(
        r"CREATE\s+STREAM\b[^;]*\w\s+",
        r"PRIMARY\b",
        "after the columns, LIFETIME CHANGES KEY …, for rows that are changes of a table",
        "CREATE STREAM s (a INT PRIMARY KEY)",
    ),
    Form(
        r"CREATE\s+STREAM\b[^;]*\w\s+",
        r"NOT\s+NULL",
        "nothing: every column may be NULL",
        "CREATE STREAM s (a INT NOT NULL)",
    ),
    Form(
        r"CREATE\s+STREAM\s+\w+\s+(?P<at>\w+)\s+",
        r"\w",
        "columns in parentheses: (a INT, b STRING)",
        "CREATE STREAM s a INT",
    ),
    Form(
        r"(?<!LEFT)(?<!RIGHT)(?<!FULL)\s+",
        r"OUTER\s+JOIN",
        "LEFT JOIN, RIGHT JOIN or FULL JOIN",
        "SELECT a FROM s AS x OUTER JOIN t ON a = b",
    ),
    Form(r"\A\s*|;\s*", r"FROM\b", "SELECT first: SELECT * FROM …", "FROM s SELECT a"),
    Form(r"\A\s*|;\s*", r"RENAME\b", "DROP and CREATE", "RENAME TABLE s TO t"),
    Form(r"(?:\A|;)\s*ALTER\s+", r"\w+", "DROP and CREATE", "ALTER VIEW s RENAME TO t"),
    Form(r"(?:\A|;)\s*ALTER\s+\w+\s+\w+\s+", r"\w+", "DROP and CREATE", "ALTER TABLE s ADD COLUMN x INT"),
    Form(
        r"\A\s*|;\s*",
        r"(?:BEGIN|COMMIT|ROLLBACK|START|END|USE)\b",
        "nothing: each statement takes effect by itself",
        "BEGIN",
    ),
    Form(
        r"(?:\A|;)\s*START\s+",
        r"TRANSACTION\b",
        "nothing: each statement takes effect by itself",
        "START TRANSACTION",
    ),
    Form(r"\A\s*|;\s*", r"RESET\b", "SET name = value", "RESET host"),
    Form(r"\A\s*|;\s*", r"DESC\s+(?P<given>\w+)", "DESCRIBE {}", "DESC s"),
    Form(r"\A\s*|;\s*", r"(?:VALUES|TABLE)\b", "SELECT …", "TABLE s"),
    Form(
        r"\bCREATE\s+",
        r"(?:SOURCE|CONNECTION|CONNECTOR)\b",
        "CREATE STREAM name (…) SOURCE …",
        "CREATE SOURCE s (a INT)",
    ),
    Form(r"\bCREATE\s+", r"SINK\b", "INSERT INTO kafka (…) SELECT …", "CREATE SINK s FROM t"),
    Form(r"\bCREATE\s+", r"(?:DATABASE|CATALOG)\b", "nothing: a session has one catalog", "CREATE DATABASE d"),
    Form(
        r"\bCREATE\s+",
        r"(?:UNIQUE\s+)?INDEX\b",
        "nothing: queries keep what they need sorted",
        "CREATE INDEX i ON s (a)",
    ),
    Form(r"(?:\A|;)\s*(?P<at>SET)\s*", r";", "SHOW SETTINGS", "SET;"),
    Form(r"(?:\A|;)\s*SET\s+", r"'", "a name, without quotes: SHOW SETTINGS lists them", "SET 'rows' = 3"),
    Form(r"\bSHOW\s+", r"(?:CATALOGS|DATABASES)\b", "nothing: a session has one catalog", "SHOW DATABASES"),
    Form(r"\bSHOW\s+", r"JOBS\b", "SHOW QUERIES", "SHOW JOBS"),
    Form(r"\bSHOW\s+", r"(?:COLUMNS|FIELDS)\s+(?:FROM|IN)\s+(?P<given>\w+)", "DESCRIBE {}", "SHOW COLUMNS FROM s"),
    Form(r"\bDROP\s+", r"(?P<given>\w+)\s*(?:;|\Z)", "DROP STREAM {}", "DROP s"),
    Form(r"EXPLAIN\s+(?P<at>PLAN)\s+", r"FOR\b", "EXPLAIN SELECT …", "EXPLAIN PLAN FOR SELECT a FROM s"),
    Form(r"\bIS\s+", r"(?P<given>[\w']+)", "= {}; IS is for NULL", "SELECT a FROM s WHERE a IS 1"),
    Form(r"(?P<at>NOT)\s+", r"NULL", "IS NOT NULL", "SELECT a FROM s WHERE a NOT NULL"),
    Form(r"(?P<at>\*)\s*", r"(?:EXCLUDE|REPLACE)\b", "the columns by name", "SELECT * EXCLUDE (a) FROM s"),
    Form(r"(?P<at>\*)\s*EXCEPT\s*\(\s*", r"\w", "the columns by name", "SELECT * EXCEPT (a) FROM s"),
    Form(r"(?P<at>,)\s*", r"FROM\b", "no comma before FROM", "SELECT a, FROM s"),
    Form(r"SELECT\s+", r"FROM\b", "SELECT * FROM …", "SELECT FROM s"),
    Form(r"\b(?P<given>WHERE|HAVING|LIMIT|FROM)\s+", r"(?P=given)\b", "{} once", "SELECT a FROM s WHERE WHERE a > 1"),
    Form(
        r"\b(?:GROUP\s+BY|HAVING|ORDER\s+BY|LIMIT)\b[^;()]*",
        r"(?:WHERE|FROM|JOIN)\b",
        _ORDER,
        "SELECT a FROM s GROUP BY a WHERE a > 1",
    ),
    Form(r"\b(?:HAVING|ORDER\s+BY|LIMIT)\b[^;()]*", r"GROUP\b", _ORDER, "SELECT a FROM s LIMIT 5 GROUP BY a"),
    Form(r"\bLIMIT\b[^;()]*", r"(?:HAVING|ORDER)\b", _ORDER, "SELECT a FROM s LIMIT 5 ORDER BY a"),
    Form(r"\bWHERE\b[^;()]*", r"(?:FROM|JOIN)\b", _ORDER, "SELECT a FROM s WHERE a > 1 JOIN t ON a = b"),
    Form(
        r"\[\s*",
        r"(?:CUMULATE|CUMULATIVE)\b",
        "[LANDMARK … EVERY …]: everything since a time",
        "SELECT a FROM s [CUMULATE 10 s]",
    ),
    Form(r"\[\s*", r"SLIDING\b", "[HOPPING 10 s EVERY 1 s], or [SIZE 100 EVERY 1]", "SELECT a FROM s [SLIDING 10 s]"),
    Form(r"\[\s*", r"TUMBLE\b", "[TUMBLING …]", "SELECT a FROM s [TUMBLE 10 s]"),
    Form(r"\[\s*", r"HOP\b", "[HOPPING … EVERY …]", "SELECT a FROM s [HOP 10 s]"),
    Form(r"\[\s*HOPPING\b[^\]]*", r"(?:BY|SLIDE|ADVANCE)\b", "EVERY", "SELECT a FROM s [HOPPING 10 s BY 5 s]"),
    Form(
        r"\[\s*(?:TUMBLING|HOPPING|SESSION|SHIFT|EXTEND|CAP)\s+",
        r"(?P<given>\d+)\s*(?:\]|EVERY)",
        "a unit behind the number, such as {} s",
        "SELECT a FROM s [TUMBLING 10]",
    ),
    Form(
        r"\[\s*\w+\s+",
        r"(?P<given>\d+)\s*[A-Za-z]+",
        "a unit behind the number: ms, s, min, h, d, week, month, year",
        "SELECT a FROM s [TUMBLING 10 parsecs]",
    ),
)
_BEHIND = 400  # characters before the place that a pattern sees


def form_at(text: str, start: int) -> tuple[str, int] | None:
    """The hint for a form of another dialect at a place where parsing fails, and where the form starts."""
    before, origin = text[max(0, start - _BEHIND) : start], max(0, start - _BEHIND)
    for form in FORMS:
        hit = re.search(f"(?:{form.before})\\Z", before, re.IGNORECASE | re.DOTALL)
        known = hit.groupdict() if hit else {}
        after = form.after.replace("(?P=given)", re.escape(known.get("given") or ""))
        there = re.compile(after, re.IGNORECASE).match(text, start) if hit else None
        if hit is not None and there is not None:
            given = {**known, **there.groupdict()}.get("given") or ""
            place = origin + hit.start("at") if known.get("at") else start
            return form.hint.replace("{}", given), place
    return None
