"""Check that an adapter keeps the contract of `headrace.io.adapter`: the kit that an author runs on an adapter.

`check_source` and `check_sink` take an adapter, and functions by which they reach its place without it: to append rows,
to read back what was written. They go through the rules of the contract one after the other, from few calls to many,
and stop at the first that is broken: the error says which it is, and shows the calls. So what is shown is short.

What a crash does is tried with real crashes. Ranges are read in new processes; a process that delivers rows is killed
before each line of the adapter in turn, and the delivery is repeated (`processes.py`). At last a small query runs over
the adapter, with a driver that dies between any two steps and another that goes on (`driven.py`). There the driver is
an object of this process, and dies by an exception: that shows every order of calls, but not what an adapter keeps in
memory for longer than the life of its value.

source.py     the rules of sources
sink.py       the rules of sinks
place.py      the place of a sink, and what it must hold
driven.py     a query over the adapter, whose driver dies
processes.py  calls in other processes, some of which are killed
calls.py      calls to an adapter, recorded, with their results in a comparable form
samples.py    rows to append and to deliver
log.py        a source of the kit's own: a directory with files of rows
report.py     the results
"""

from headrace.testing.adapter_check.report import AdapterReport, BrokenContract
from headrace.testing.adapter_check.sink import check_sink
from headrace.testing.adapter_check.source import check_source

__all__ = ["AdapterReport", "BrokenContract", "check_sink", "check_source"]
