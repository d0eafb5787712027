"""What a query does, for people to read: its operators stage by stage, its loops drawn, and the job that a batch is.

`steps` gives the operators of a cut plan as data and as text, `loops` draws the body of a loop, and `job` says what is
shuffled. How an operator runs, and why, comes from the operator itself (`operators/choice.py`).
"""
