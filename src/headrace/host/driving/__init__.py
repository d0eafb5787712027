"""The driver of a query: one loop that plans, runs and commits batches, on any host.

    plan.py        the plan of a batch: what it reads
    positions.py   which files every source has read
    ranges.py      how far partitions of sources that adapters read were read
    pace.py        how much a batch reads
    tasks.py       the tasks: read a share of the input, or run a stage in a bucket
    publish.py     publishing outputs after a commit
    delivery.py    delivering rows to sinks that are services
    trips.py       the results of a batch's trips: loops across buckets go round within a batch
    driver.py      one batch: plan, run, commit, publish
    in_process.py  runs tasks in threads of this process
    limits.py      what a report says about the intake
    query.py       the running query: the loop, in a thread, and its public methods
    checkpoint.py  the directory of a query, the same for all hosts
    start.py       from streams and sinks to a running query, on any host
    bounded.py     a query that runs to the end of its inputs

A batch is one trip or more. A trip is a sequence of *tasks*: intake tasks read files and the feedback of loops; then
every level of the plan has a task for each bucket. An *executor* runs them and returns the messages of the last ones:
Spark as one job, or this process, with a thread for each bucket. Tasks get their whole input with the trip: they read
no clock and list no files, so a repeated task does the same again.
"""
