"""Early answers and their corrections: the same query with speculative and with final answers."""

import headrace as hr

# The third price arrives in the second batch; its window was answered in the first.
prices = hr.events(
    """
    kind   | le | re | price
    insert | 1  | 2  | 10
    insert | 11 | 12 | 20
    insert | 4  | 5  | 40
    cti    | 12 |    |
    """,
    batches=[2, 2],
)
averages = prices.window(hr.tumbling(10)).aggregate(price=hr.avg("price"))

print("speculative: an answer, then its correction")
print(averages.run(finish=False).events().to_pandas().to_string())

print("final: one answer, later")
print(averages.final().run(finish=False).events().to_pandas().to_string())

# Both have the same history.
assert hr.same_history(averages.cht(), averages.final().cht())
