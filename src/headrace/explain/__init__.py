"""Describe a query to its users: the operators stage by stage, the body of each loop, and the job that runs a batch.

`steps` lists the operators of a cut plan as data and as text, `loops` draws the body of a loop, and `job` lists what is
shuffled. Each operator states how it runs, and why (`operators/choice.py`).
"""
