"""The W of a stock price, drawn: two falls and two rises that return to the start.

Prices are the closing prices of each minute of generated trades, some of which arrive out of order or are corrected. A
match is emitted as soon as it is complete, and retracted if a correction destroys it. `rows="all"` returns every point
of a W, for the picture.
"""

import headrace as hr
from headrace import col, count
from headrace.io.generator import Ticks, ticks

trades = hr.events(
    ticks(Ticks(rows=30_000, seed=5, symbols=5, rate_per_second=2, disorder=0.3, revisions=0.05)),
    progress=hr.advance(delay="10 s"),
)
minutes = trades.group_by("symbol").window(hr.tumbling("1 min")).aggregate(price=hr.last("price"))

# Each leg has two steps or more, the middle stays below the start, and the end comes back to the middle at least.
falls, rises = col("price") < hr.prev("price"), col("price") > hr.prev("price")
below = col("price") < col("Start.price")
w = (
    hr.pattern()
    .then("Start")
    .then("Fall", falls, "{2,}")
    .then("Rise", rises & below, "{2,}")
    .then("Again", falls, "{2,}")
    .then("Back", rises, "{2,}")
    .where(hr.last("Back.price") >= hr.last("Rise.price"))
    .within("30 min")
)
per_symbol = minutes.group_by("symbol")
found = per_symbol.match(
    w,
    high=col("Start.price"),
    low=hr.min("Fall.price"),
    middle=hr.last("Rise.price"),
    second_low=hr.min("Again.price"),
    end=col("price"),
    minutes=count(),
)
answers = found.cht()
table = answers.to_pandas().drop(columns="re").round(2)
table["le"] = table["le"].astype("datetime64[us]")  # times are microseconds
print(table.to_string())
assert answers.num_rows > 0

# The points of one W, each with its leg.
points = per_symbol.match(w, rows="all", leg=hr.classifier(), of=hr.final(count()), began=hr.first("le"))
rows = points.cht().to_pylist()
longest = max(rows, key=lambda row: (row["of"], row["le"]))
w_points = [row for row in rows if (row["symbol"], row["began"]) == (longest["symbol"], longest["began"])]
w_points.sort(key=lambda row: int(row["le"]))


def drawn(points: list[dict[str, object]], height: int = 12) -> str:
    """Prices over time, each by the first letter of its leg."""
    prices = [float(str(point["price"])) for point in points]
    low, high = min(prices), max(prices)
    levels = [round((price - low) / (high - low) * (height - 1)) for price in prices]
    lines = []
    for level in range(height - 1, -1, -1):
        value = low + (high - low) * level / (height - 1)
        cells = [str(p["leg"])[0] if at == level else " " for p, at in zip(points, levels, strict=True)]
        lines.append(f"{value:8.2f} │ {'  '.join(cells)}")
    return "\n".join([*lines, f"{'':8} └{'─' * 3 * len(points)}"])


print(f"\nThe longest, of {longest['symbol']}: Start, Fall, Rise, Again, Back")
print(drawn(w_points))
assert w_points[0]["leg"] == "Start"

# Other batches and buckets give the same matches, and so does SQL over the history.
assert hr.same_history(answers, found.cht(batch_rows=500, buckets=3))
assert hr.same_history(answers, found.history("duckdb").cht())
