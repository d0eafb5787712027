"""Traced runs: a query runs over recorded input, in process, and every change of every operator is kept.

**What runs.** The query as it is written, with the kernels that run it live, in one bucket and one thread. Only two
rules of the optimizer apply: tables are read, and aggregates combine their rows first, which is one operator here. The
others would move filters into readers and leave out columns, and then the operators are not those of the query. The
answers are the same (rule 1.5).

**What is kept.** `recording.py` is a tap (`stages/measures.py`), the same way by which EXPLAIN ANALYZE measures. It
keeps references to the changes that operators exchange, which are immutable, so a trace costs little more time than
the run, and the memory of its changes. The input of an operator is the output of those it reads, and is not kept twice.
State is in immutable segments; a trace keeps which segments each operator had after each batch.

**What one can ask.** `TracedRun` (`traced.py`) shows all of it as Arrow tables. A trace also keeps how ingress judged
the input, so it can be run again without some of its events, with the same progress: that shows what became of an
event, and tests use it to check causes.

**Sessions.** `DebugSession` (`debugging.py`) is a traced run that waits: `stepping.py` stops it between operators, in a
thread of its own, `breakpoints.py` and `calls.py` say where, and `inputs.py` keeps the rows that it has read, so that
they can be changed and run again.

A *trace* elsewhere in the code is the state of an operator (`trace.py`); here the word is in the public names only.
"""
