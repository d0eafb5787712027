"""Which sites of a network can reach each other while links fail, drawn after every report.

A link is an event that lasts as long as it is up. A failure ends it; a leased line has a fixed end; a repair may be
reported late, and the time of a failure corrected. Every report corrects the results that depend on it.
"""

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.events import history

NEWS = {
    "the network as it was built": """
        insert  | 0  | ∞  |        | hq    | north
        insert  | 0  | ∞  |        | north | east
        insert  | 0  | ∞  |        | east  | plant
        insert  | 0  | ∞  |        | plant | depot
        insert  | 0  | ∞  |        | hq    | south
    """,
    "north – east fails at 8": "retract | 0  | ∞  | 8      | north | east",
    "a line south – plant is leased from 12 to 20": "insert  | 12 | 20 |        | south | plant",
    "hq – south fails at 16": "retract | 0  | ∞  | 16     | hq    | south",
    "late: north – east was mended at 10": "insert  | 10 | ∞  |        | north | east",
    "corrected: hq – south failed at 23": "retract | 0  | 16 | 23     | hq    | south",
}
UNTIL = 28

lines = {news: [line.strip() for line in text.strip().splitlines()] for news, text in NEWS.items()}
links = hr.events(
    "\n".join(["kind | le | re | re_new | src | dst", *(line for part in lines.values() for line in part)]),
    batches=[len(part) for part in lines.values()],
)

# Links go both ways, and every site reaches itself.
both = links.union(links.select(src=col("dst"), dst=col("src")))
sites = both.select(origin=col("src"), node=col("src")).distinct()


def further(found: hr.Stream) -> hr.Stream:
    """A site that is reached leads on to its neighbours."""
    return found.join(both, on={"node": "src"}).select("origin", node=col("dst"))


reached = hr.recurse(sites, further)
pairs = reached.where(col("origin") < col("node"))

Span = tuple[str, int, int]


def spans(table: list[dict[str, object]]) -> list[Span]:
    """When each pair of sites is connected."""
    return sorted((f"{r['origin']} – {r['node']}", int(str(r["le"])), int(str(r["re"]))) for r in table)


def drawn(found: list[Span], before: list[Span]) -> str:
    """A line for each pair: ━ connected, · not; ▲ and ▼ where the latest report changed that."""

    def connected(spans: list[Span], pair: str, time: int) -> bool:
        return any(name == pair and le <= time < re for name, le, re in spans)

    out = []
    for pair in sorted({name for name, _, _ in [*found, *before]}):
        cells = ""
        for time in range(UNTIL):
            now, then = connected(found, pair, time), connected(before, pair, time)
            cells += "━" if now and then else "▲" if now else "▼" if then else "·"
        out.append(f"  {pair:14} {cells}")
    return "\n".join([*out, f"  {'':14} {''.join(f'{t:<4}' for t in range(0, UNTIL, 4))}"])


# The history after each report: the sum of all changes up to then.
run = pairs.run()
batches = [changes for changes, _ in run.results["out"].batches]
known = [spans(history(Changes.concat(batches[: n + 1])).to_pylist()) for n in range(len(NEWS))]
for number, news in enumerate(NEWS):
    print(f"\n{news}\n{drawn(known[number], known[number - 1] if number else known[0])}")

# From 8 to 12 the plant was cut off; by the late report of the repair, it was only from 8 to 10.
plant = [[(le, re) for pair, le, re in found if pair == "hq – plant"] for found in known]
assert plant[1] == [(0, 8)]
assert plant[2] == [(0, 8), (12, 20)]
assert plant[3] == [(0, 8), (12, 16)]
assert plant[4] == plant[5] == [(0, 8), (10, hr.INFINITY)]

# Other batches give the same answer, and so does batch SQL over the history.
assert hr.same_history(pairs.cht(batch_rows=1), pairs.history(engine="duckdb").cht())
