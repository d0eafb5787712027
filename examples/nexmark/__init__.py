"""NEXMark in Headrace: queries about an auction house.

`queries.py` has the queries, `queries.sql` the same in SQL, `streams.py` the streams.
`python -m examples.nexmark q5` runs a query.
"""
