"""The driver of a query: one loop that plans, runs and commits batches, whatever runs their tasks.

    plan.py        what a batch reads, as a value
    positions.py   how far every source has come
    tasks.py       what a task does: read its share, or run a stage in a bucket
    publish.py     what leaves after a commit
    trips.py       what the trips of a batch have made: loops across buckets go round within it
    driver.py      one batch: plan, run, commit, publish
    in_process.py  runs tasks in threads of this process
    query.py       the loop, in a thread, and the query in the hands of who started it
    checkpoint.py  the directory that belongs to a query, the same for all hosts
    start.py       from streams and sinks to a running query, on any host
    bounded.py     a query that runs to the end of its inputs

A batch is one trip or more, and a trip is a line of *tasks*: intake tasks read files and what loops feed back; then
every level of the plan has a task for each bucket. An *executor* runs them and brings back what the last ones gave:
Spark as one job, or this process, a thread for each bucket. Tasks get all they need with the trip: they read no clock
and no list of files, so a task that is run again does the same again.
"""
