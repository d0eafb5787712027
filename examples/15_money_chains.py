"""Money that is passed on: chains of transfers, each soon after the one before and of nearly the same amount.

A transfer lasts two hours. Lifetimes intersect along a derivation, so a chain is found only if all of it happened
within two hours. Every hop may lose a small share; a hop that loses more ends the chain. Reversing a transfer retracts
its chains.
"""

import numpy as np

import headrace as hr
from headrace import col, lit

HOUR = 60
rng = np.random.default_rng(11)
PEOPLE = ["ann", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "lea"]
Transfer = tuple[int, str, str, float]

# A day of ordinary transfers with two chains among them; one transfer of the second chain will be reversed.
usual: list[Transfer] = []
for _ in range(220):
    one, other = rng.choice(PEOPLE, 2, replace=False)
    usual.append((int(rng.integers(24 * HOUR)), str(one), str(other), float(rng.integers(50, 5000))))
planted: list[Transfer] = [
    (600, "ann", "fay", 9000.0), (618, "fay", "bob", 8850.0), (651, "bob", "ida", 8700.0),
    (670, "ida", "gus", 8610.0), (702, "gus", "kim", 8500.0),
    (1100, "lea", "dan", 7000.0), (1120, "dan", "eve", 6900.0), (1128, "eve", "jon", 6800.0),
    (1150, "jon", "hal", 6720.0), (1190, "hal", "cyd", 6650.0),
]  # fmt: skip
REVERSED = planted[7]


def event(kind: str, transfer: Transfer) -> dict[str, object]:
    """The insert or the retraction of a transfer; times are in minutes."""
    at, payer, payee, amount = transfer
    end, new = at + 2 * HOUR, at if kind == "retract" else None
    row = {"kind": kind, "le": at, "re": end, "re_new": new}
    return {**row, "at": at, "payer": payer, "payee": payee, "amount": amount}


known = [*usual, *planted]
arrived = [known[number] for number in rng.permutation(len(known))]  # in any order
rows = [*(event("insert", transfer) for transfer in arrived), event("retract", REVERSED)]
transfers = hr.events(rows, "at LONG, payer STRING, payee STRING, amount DOUBLE", batches=[len(rows) - 1, 1])

way = col("payer").concat(lit(" → "), col("payee"))
seed = transfers.select("payer", "payee", "amount", "at", hops=lit(1).cast("LONG"), way=way)


def passed_on(chain: hr.Stream) -> hr.Stream:
    """The next hop: later, from where the money is, and at most 5 % of it lost."""
    share = col("amount_right") / col("amount")
    hop = chain.join(transfers, on={"payee": "payer"}).where((col("at_right") > col("at")) & share.between(0.95, 1.0))
    return hop.select(
        "payer",
        payee=col("payee_right"),
        amount=col("amount_right"),
        at=col("at_right"),
        hops=col("hops") + 1,
        way=col("way").concat(lit(" → "), col("payee_right")),
    )


chains = hr.recurse(seed, passed_on)
suspicious = chains.where(col("hops") >= 5)
run = suspicious.run()

# The first batch contains both chains; the reversal retracts one of them.
for row in run.events().to_pylist():
    if row["kind"] == "cti":
        continue
    what = "found" if row["kind"] == "insert" else "retracted"
    print(f"{what:10} {row['le'] // 60:02}:{row['le'] % 60:02}  {row['way']}, {row['amount']:.0f} arrived")
(found,) = run.cht().to_pylist()
assert found["way"] == "ann → fay → bob → ida → gus → kim"
# The chain lasts from its last transfer until the first one ends, two hours after its start.
assert (found["le"], found["re"]) == (702, 600 + 2 * HOUR)


def drawn(way: list[str], minutes: int = 4) -> str:
    """Where the money is: a line for each account, from its arrival until it is passed on."""
    hops = {(payer, payee): at for at, payer, payee, _ in planted}
    begin = hops[way[0], way[1]]
    lines = []
    for number, name in enumerate(way):
        came = (hops[way[number - 1], name] - begin) // minutes if number else 0
        last = number + 1 == len(way)
        goes = came + 1 if last else (hops[name, way[number + 1]] - begin) // minutes
        lines.append(f"{name:>5} {' ' * came}{'━' * (goes - came)}{'' if last else '┓'}")
    return "\n".join(lines)


print(f"\nfrom {found['way'].split()[0]} on, one mark for four minutes\n{drawn(found['way'].split(' → '))}")

by_hops = chains.point_at_start().group_by("hops").window(hr.tumbling(24 * HOUR)).aggregate(chains=hr.count())
table = by_hops.cht().to_pandas().sort_values("hops")[["hops", "chains"]]
print(f"\nchains of a day, by length\n{table.to_string(index=False)}")

# The same in SQL, and as batch SQL over the history.
in_sql = hr.sql(
    """
    WITH RECURSIVE chains (payer, payee, amount, at, hops, way) AS (
        SELECT payer, payee, amount, at, CAST(1 AS LONG), payer || ' → ' || payee FROM transfers
        UNION
        SELECT one.payer, next.payee, next.amount, next.at, one.hops + 1, one.way || ' → ' || next.payee
        FROM chains AS one JOIN transfers AS next ON one.payee = next.payer
        WHERE next.at > one.at AND next.amount / one.amount BETWEEN 0.95 AND 1.0
    )
    SELECT * FROM chains WHERE hops >= 5
    """,
    transfers=transfers,
)
assert hr.same_history(in_sql.cht(), run.cht())
assert hr.same_history(run.cht(), suspicious.history(engine="duckdb").cht())
