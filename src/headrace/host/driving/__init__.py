"""The driver of a query: one loop that plans, runs and commits batches, whatever runs their tasks.

    plan.py       what a batch reads, as a value
    positions.py  how far every source has come
    tasks.py      what a task does: read its share, or run a stage in a bucket
    publish.py    what leaves after a commit
    driver.py     the loop

A batch is a line of *tasks*: intake tasks read files and what loops feed back; then every level of the plan has a task
for each bucket. An *executor* runs them and brings back what the last ones gave: Spark as one job, or this process, one
after the other. Tasks get all they need with the batch: they read no clock and no list of files, so a task that is
run again does the same again.
"""
