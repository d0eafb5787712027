"""Events, lifetimes and the history: an insert whose end is unknown at first, and the retractions that shorten it."""

import headrace as hr

orders = hr.events("""
    kind    | le | re | re_new | order | state
    insert  | 1  | ∞  |        | 17    | open
    retract | 1  | ∞  | 10     | 17    | open
    retract | 1  | 10 | 5      | 17    | open
    insert  | 5  | ∞  |        | 17    | paid
    cti     | 6  |    |        |       |
""")

print(orders.cht().to_pandas().to_string())
assert orders.cht().select(["le", "re", "state"]).to_pylist() == [
    {"le": 1, "re": 5, "state": "open"},
    {"le": 5, "re": hr.INFINITY, "state": "paid"},
]

# The number of open and paid orders in each window of ten ticks. An event belongs to every window it overlaps.
per_window = orders.group_by("state").window(hr.tumbling(10)).aggregate(n=hr.count())
print(per_window.cht().to_pandas().to_string())
