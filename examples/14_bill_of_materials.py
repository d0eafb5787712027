"""What does a bike cost to make? Parts of parts of parts, in SQL, while prices move and the design changes.

A wheel has 32 spokes and a bike has two wheels, so a bike has 64: quantities are multiplied along a path, and added
over all paths. So every derivation counts (UNION ALL), including a second one of the same part. Prices and designs are
events with lifetimes; a corrected price corrects every cost that depends on it.
"""

import headrace as hr
from headrace import col

contains = hr.events(
    """
    le | re | whole | part  | n
    0  | ∞  | bike  | wheel | 2
    0  | ∞  | bike  | frame | 1
    0  | ∞  | wheel | spoke | 32
    0  | ∞  | wheel | hub   | 1
    0  | 20 | hub   | bolt  | 4
    20 | ∞  | hub   | bolt  | 2
    0  | ∞  | frame | bolt  | 6
    0  | ∞  | frame | tube  | 3
    """
)
prices = hr.events(
    """
    kind    | le | re | re_new | part  | price
    insert  | 0  | ∞  |        | spoke | 0.5
    insert  | 0  | ∞  |        | bolt  | 0.25
    insert  | 0  | 8  |        | tube  | 9.0
    insert  | 8  | ∞  |        | tube  | 12.0
    retract | 0  | ∞  | 14     | spoke | 0.5
    insert  | 14 | ∞  |        | spoke | 0.75
    retract | 14 | ∞  | 26     | spoke | 0.75
    insert  | 26 | ∞  |        | spoke | 0.6
    retract | 8  | ∞  | 8      | tube  | 12.0
    insert  | 8  | ∞  |        | tube  | 10.0
    """,
    batches=[8, 2],  # the last two rows are a correction, in a second batch
)

needed = hr.sql(
    """
    WITH RECURSIVE needed (whole, part, n) AS (
        SELECT whole, part, n FROM contains
        UNION ALL
        SELECT needed.whole, contains.part, needed.n * contains.n
        FROM needed JOIN contains ON needed.part = contains.whole
    )
    SELECT * FROM needed
    """,
    contains=contains,
)
quantities = hr.sql("SELECT whole, part, sum(n) AS n FROM needed [SNAPSHOT] GROUP BY whole, part", needed=needed)
cost = hr.sql(
    """
    SELECT whole, sum(n * price) AS cost
    FROM (SELECT whole, n, price FROM needed JOIN prices USING (part)) [SNAPSHOT] GROUP BY whole
    """,
    needed=needed,
    prices=prices,
)

# The same loop in Python.
step = lambda made: made.join(contains, on={"part": "whole"}).select(  # noqa: E731
    "whole", part=col("part_right"), n=col("n") * col("n_right")
)
assert hr.same_history(hr.recurse(contains, step, distinct=False).cht(), needed.cht())

table = quantities.coalesce().cht().to_pandas().sort_values(["whole", "part", "le"])
table["re"] = ["∞" if end == hr.INFINITY else end for end in table["re"]]
print("what goes into what")
print(table.to_string(index=False))
bolts = [r for r in quantities.coalesce().cht().to_pylist() if (r["whole"], r["part"]) == ("bike", "bolt")]
assert [(r["le"], r["n"]) for r in bolts] == [(0, 6 + 2 * 4), (20, 6 + 2 * 2)]


def steps(stream: hr.Stream) -> list[tuple[int, float]]:
    """The cost of a bike, and the times from which it holds."""
    rows = [row for row in stream.coalesce().cht().to_pylist() if row["whole"] == "bike"]
    return sorted((int(row["le"]), float(row["cost"])) for row in rows)


def drawn(points: list[tuple[int, float]], until: int = 32, height: int = 11) -> str:
    """A line over time."""
    values = [next(cost for le, cost in reversed(points) if le <= time) for time in range(until)]
    low, high = min(values), max(values)
    rows = []
    for level in range(height - 1, -1, -1):
        cells = "".join("━━" if round((v - low) / (high - low) * (height - 1)) == level else "  " for v in values)
        rows.append(f"{low + (high - low) * level / (height - 1):8.2f} │{cells}")
    return "\n".join([*rows, f"{'':8} └{'─' * 2 * until}", f"{'':10}{''.join(f'{t:<8}' for t in range(0, until, 4))}"])


print("\nwhat a bike costs: tubes are dearer at 8, spokes at 14; fewer bolts from 20 on; cheaper spokes at 26")
print(drawn(steps(cost)))
assert steps(cost) == [(0, 62.5), (8, 65.5), (14, 81.5), (20, 80.5), (26, 70.9)]

# The second batch corrects the price of tubes from 12 to 10, so costs are retracted and inserted again.
first, second = (changes for changes, _ in cost.run().results["out"].batches[:2])
revised = sum(weight < 0 for weight in second.weight.tolist())
print(f"\nthe first batch gave {len(first)} costs; the corrected price of tubes retracted {revised} of them")
assert revised > 0

# Batch SQL over the history gives the same costs.
assert hr.same_history(cost.cht(batch_rows=1), cost.history(engine="duckdb").cht())
