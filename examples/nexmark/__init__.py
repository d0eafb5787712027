"""NEXMark in Headrace: an auction house, and questions that are asked of it all the time.

`queries.py` has the queries, `queries.sql` the same in SQL, `streams.py` the streams they are asked of. `python -m
examples.nexmark q5` runs one.
"""
