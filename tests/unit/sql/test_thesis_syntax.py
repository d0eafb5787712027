"""Every example of the FlinkCQL thesis can be read, letter for letter."""

from __future__ import annotations

import pytest

from headrace.sql import syntax as s
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql

# The window of section 2.2 stands there without a stream; here it stands behind StockTick.
WINDOW = "SELECT * FROM StockTick {}"

EXAMPLES: list[tuple[str, str, list[type]]] = [
    (
        "2.1, a derived stream",
        """CREATE STREAM HighStockTick AS
SELECT * FROM StockTick
WHERE price > 100
""",
        [s.CreateStream],
    ),
    (
        "2.2, a window specification",
        WINDOW.format("""[
SIZE 3 hours EVERY 1 hours
PARTITIONED BY Exchange
WHERE Quantity > 100.000
]
"""),
        [s.Ask],
    ),
    ("3.1, as CQL writes it", WINDOW.format("[RANGE 10 seconds SLIDE 5 second]"), [s.Ask]),
    ("3.1, as Flink writes it", WINDOW.format("[SIZE 10 sec EVERY 5 sec]"), [s.Ask]),
    ("4, a declarative query", 'SELECT * from StockTick where Exchange = "NYSE"', [s.Ask]),
    (
        "4.1.2, a schema",
        """CREATE SCHEMA StockTickSchema (symbol String, sourceTimestamp Long, price Double, quantity Int,
exchange String)""",
        [s.CreateSchema],
    ),
    # The two stand on two lines without a semicolon between them.
    ("4.1.2, a schema like another", "CREATE SCHEMA StockTickSchema2 StockTickSchema", [s.CreateSchema]),
    ("4.1.2, a larger schema", "CREATE SCHEMA StockTickSchema3 (id Int) EXTENDS StockTickSchema", [s.CreateSchema]),
    ("4.1.2, a stream with a named schema", "CREATE STREAM StockTick StockTickSchema;", [s.CreateStream]),
    (
        "4.1.2, a stream with a schema of its own",
        "CREATE STREAM StockTick (symbol String, price Double, quantity Int)",
        [s.CreateStream],
    ),
    (
        "4.1.2, a stream from a host",
        'CREATE STREAM StockTick StockTickSchema SOURCE HOST ("98.138.253.109", 2000)',
        [s.CreateStream],
    ),
    (
        "4.1.2, a stream from a query",
        "CREATE STREAM StockPrice (symbol String, price Double) AS SELECT symbol, price FROM StockTick",
        [s.CreateStream],
    ),
    (
        "4.1.3, insert",
        "CREATE STREAM StockTick StockTickSchema; INSERT INTO StockTick AS stockStream;",
        [s.CreateStream, s.Insert],
    ),
    ("4.1.3, merge", "MERGE stockTickFromNYSE, stockTickFromAMEX, stockTickFromNASDAQ", [s.Merge]),
    (
        "4.1.3, split",
        """on StockTick
insert into LargeTicks select symbol, price where quantity >= 100000
insert into MediumTicks select symbol, price where quantity between 20000 and 100000
insert into SmallTicks select symbol, price where quantity > 0
""",
        [s.Split],
    ),
    (
        "4.1.3, the window again",
        WINDOW.format("""[
SIZE 3 hours
EVERY 1 hours
PARTITIONED BY Exchange
]"""),
        [s.Ask],
    ),
    ("4.1.3, SIZE in system time", WINDOW.format("[SIZE 1 min]"), [s.Ask]),
    ("4.1.3, SIZE in application time", WINDOW.format("[SIZE 60 on sourceTimestamp]"), [s.Ask]),
    ("4.1.3, SIZE in tuples", WINDOW.format("[SIZE 100]"), [s.Ask]),
    ("4.1.3, an average", "SELECT avg(quantity) FROM StockTick [SIZE 100]", [s.Ask]),
    # Invalid as a query, for the binder to say; as a text it is well-formed.
    ("4.1.3, an average of everything", "SELECT avg(quantity) FROM StockTick", [s.Ask]),
    (
        "4.1.3, group by",
        """SELECT ave(quantity)
FROM StockTick [SIZE 2]
GROUP BY symbol, exchange
""",
        [s.Ask],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kinds"), [pytest.param(text, kinds, id=where) for where, text, kinds in EXAMPLES])
def test_an_example_is_read_and_written_and_read_again(text: str, kinds: list[type]):
    script = parse(text)
    assert [type(statement) for statement in script.statements] == kinds
    assert parse(to_sql(script)) == script


def test_the_window_of_the_thesis_says_what_the_thesis_says():
    (ask,) = parse(EXAMPLES[1][1]).statements
    assert isinstance(ask, s.Ask)
    assert isinstance(ask.query.body, s.Select)
    assert ask.query.body.source.brackets == (
        s.SizeWindow(
            size=s.Arrival(s.Duration(((3, "hours"),))),
            every=s.Arrival(s.Duration(((1, "hours"),))),
            partition=(s.Column(s.Name("Exchange")),),
            where=s.Binary(">", s.Column(s.Name("Quantity")), s.Number(100.0)),
        ),
    )


def test_the_source_of_the_thesis_has_texts_for_arguments():
    (stream,) = parse('CREATE STREAM t u SOURCE HOST ("98.138.253.109", 2000)').statements
    assert isinstance(stream, s.CreateStream)
    assert stream.source == s.SourceClause(s.Name("HOST"), (s.Text("98.138.253.109"), s.Number(2000)))
