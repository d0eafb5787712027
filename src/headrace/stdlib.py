"""Aggregates that come with Headrace, written in its SQL dialect.

They are modules, as if `hr.sql_aggregate` had created them from their texts; in SQL they are available by name, unless
a statement creates another aggregate of the same name.

>>> import headrace as hr
>>> from headrace import stdlib
>>> prices = hr.events([{"kind": "insert", "le": t, "re": t + 1, "price": p} for t, p in [(1, 4.0), (2, 8.0)]],
...                    "price DOUBLE")
>>> prices.over().aggregate(mean=stdlib.ewma.of("price", 0.25)).cht()["mean"].to_pylist()
[4.0, 5.0]
>>> hr.sql("SELECT ewma(price, 0.25) AS mean FROM prices", prices=prices).cht()["mean"].to_pylist()
[4.0, 5.0]
>>> stdlib.about("ewma").splitlines()[0]
'An average that forgets: each tuple counts with its weight, all before it with the rest.'
"""

from __future__ import annotations

from headrace.sql.aggregates import SqlAggregate, SqlRows
from headrace.sql.shipped import LIBRARY, NAMES, about, aggregate

__all__ = ["LIBRARY", "about"]


def __getattr__(name: str) -> SqlAggregate | SqlRows:
    if name.startswith("__"):
        raise AttributeError(name)
    return aggregate(name)


def __dir__() -> list[str]:
    return [*__all__, *NAMES]
