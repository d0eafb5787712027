"""Recursion: networks whose links fail, parts of parts, the cheapest way, and money that goes in circles.

A loop is a seed and a function of the results so far. When a link fails or is corrected, everything derived from it is
retracted.
"""

import headrace as hr
from headrace import col


def show(title: str, stream: hr.Stream, by: tuple[str, ...] = ("le",)) -> None:
    """The history of a query as a table."""
    table = stream.cht().to_pandas().sort_values(list(by))
    ends = ["∞" if end == hr.INFINITY else end for end in table["re"]]
    print(f"\n{title}\n{table.assign(re=ends).to_string(index=False)}")


# A network in which links come up and go down. Which nodes can the server reach, and from when to when?
links = hr.events(
    """
    kind    | le | re | re_new | src    | dst
    insert  | 0  | ∞  |        | server | a
    insert  | 0  | ∞  |        | a      | b
    insert  | 0  | ∞  |        | b      | c
    insert  | 0  | ∞  |        | c      | b
    insert  | 5  | 9  |        | server | c
    retract | 0  | ∞  | 4      | server | a
    """,
    batches=[4, 1, 1],
)
server = hr.events("le | re | node\n0 | ∞ | server")
reached = hr.recurse(server, lambda found: found.join(links, on={"node": "src"}).select(node=col("dst")))
show("reached from the server", reached, ("node", "le"))
# At 4 the link to a fails. b and c are still linked to each other, but not to the server; from 5 to 9 they are again.
spans = {(row["node"], row["le"], row["re"]) for row in reached.cht().to_pylist()}
assert {("a", 0, 4), ("b", 0, 4), ("b", 5, 9), ("c", 5, 9)} < spans
print(reached.explain())

# A bill of materials. All derivations count, not only whether there is one: a bolt goes into many parts.
parts = hr.events(
    """
    le | re | whole | part  | n
    0  | ∞  | bike  | wheel | 2
    0  | ∞  | wheel | spoke | 32
    0  | ∞  | wheel | hub   | 1
    0  | 20 | hub   | bolt  | 4
    10 | ∞  | spoke | bolt  | 1
    """
)
needed = hr.recurse(
    parts,
    lambda made: made.join(parts, on={"part": "whole"}).select(
        "whole", part=col("part_right"), n=col("n") * col("n_right")
    ),
    distinct=False,
)
bolts = needed.where((col("whole") == "bike") & (col("part") == "bolt"))
total = bolts.window(hr.snapshot()).aggregate(bolts=hr.sum("n"))
show("bolts of a bike", total)
assert total.cht()["bolts"].to_pylist() == [8, 72, 64]

# The cheapest way. Of several ways to a node only the cheapest continues; when a road is closed, another is cheapest.
roads = hr.events(
    """
    kind    | le | re | re_new | src  | dst  | cost
    insert  | 0  | ∞  |        | home | hill | 7
    insert  | 0  | ∞  |        | home | lake | 2
    insert  | 0  | ∞  |        | lake | hill | 3
    insert  | 0  | ∞  |        | hill | town | 4
    retract | 0  | ∞  | 6      | lake | hill | 3
    """,
    batches=[4, 1],
)


def least(ways: hr.Stream) -> hr.Stream:
    """Of the ways to each node, the least cost at every instant."""
    return ways.group_by("node").window(hr.snapshot()).aggregate(cost=hr.min("cost"))


home = hr.events("le | re | node | cost\n0 | ∞ | home | 0")
cheapest = least(
    hr.recurse(
        home,
        lambda ways: least(
            ways.join(roads, on={"node": "src"}).select(node=col("dst"), cost=col("cost") + col("cost_right"))
        ),
        max_rounds=20,
    )
).coalesce()
show("the cheapest way from home", cheapest, ("node", "le"))
town = [(row["le"], row["cost"]) for row in cheapest.cht().to_pylist() if row["node"] == "town"]
assert town == [(0, 9), (6, 11)]

# Money that comes back. A transfer lasts ten ticks; find payers whose money returns to them.
transfers = hr.events(
    """
    le | re | payer | payee | amount
    1  | 11 | ann   | bob   | 900
    3  | 13 | bob   | cyd   | 880
    4  | 14 | cyd   | dan   | 20
    6  | 16 | cyd   | ann   | 870
    """
)
chains = hr.recurse(
    transfers.where(col("amount") > 500).select("payer", "payee", steps=hr.lit(1).cast("LONG")),
    lambda chain: (
        chain.join(transfers.where(col("amount") > 500), on={"payee": "payer"})
        .where((col("payer") != col("payee")) & (col("steps") < 5))
        .select("payer", payee=col("payee_right"), steps=col("steps") + 1)
    ),
)
circles = chains.where(col("payer") == col("payee"))
show("money that came back", circles, ("payer",))
assert circles.cht().num_rows == 3

# Batch SQL, which shares no code with the engine, gives the same histories.
for query in (reached, needed, cheapest, circles):
    assert hr.same_history(query.cht(batch_rows=1, buckets=3), query.history(engine="duckdb").cht())
