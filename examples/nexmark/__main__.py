"""Run a query of NEXMark: `python -m examples.nexmark q5`, from the folder of the project.

Without `--data` the events come from the generator, out of order and with corrections. `--sql` runs the query from
`queries.sql`, `--explain` shows the plan.
"""

from __future__ import annotations

import argparse
import inspect
from dataclasses import replace

from examples.nexmark.in_sql import sql_queries
from examples.nexmark.queries import QUERIES, build_query
from examples.nexmark.streams import HOUSE, generated, read


def main() -> None:
    """Run one query; print the question and the first rows of the answer's history."""
    parser = argparse.ArgumentParser(prog="python -m examples.nexmark", description="Run a query of NEXMark.")
    parser.add_argument("query", choices=QUERIES, metavar="QUERY", help=", ".join(QUERIES))
    parser.add_argument("--data", help="a folder with person.csv, auction.csv and bid.csv, instead of the generator")
    parser.add_argument("--events", type=int, default=HOUSE.rows, help="how many events to generate (%(default)s)")
    parser.add_argument("--seed", type=int, default=HOUSE.seed, help="the seed of the generator (%(default)s)")
    parser.add_argument("--rows", type=int, default=10, help="how many rows to show (%(default)s)")
    parser.add_argument("--host", choices=["local", "spark"], default="local", help="where it runs (%(default)s)")
    parser.add_argument("--sql", action="store_true", help="run the SQL of queries.sql")
    parser.add_argument("--explain", action="store_true", help="show the plan, and where it would run")
    given = parser.parse_args()

    house = read(given.data) if given.data else generated(replace(HOUSE, rows=given.events, seed=given.seed))
    stream = sql_queries(house)[given.query] if given.sql else build_query(given.query, house)
    print(inspect.getdoc(QUERIES[given.query]), end="\n\n")
    if given.explain:
        print(stream.explain())
        return
    history = stream.cht(host=given.host)
    print(history.slice(0, given.rows).to_pandas().to_string())
    print(f"{history.num_rows} rows")


if __name__ == "__main__":
    main()
