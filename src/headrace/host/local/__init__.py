"""The local host: runs the stages in this process, batch by batch, to the end of the input or until stopped.

run.py   bounded inputs, deterministically: the call returns the results
live.py  unbounded inputs, by the loop of `headrace.host.driving`, with a checkpoint
"""

from headrace.host.local.live import start_local
from headrace.host.local.run import run_local

__all__ = ["run_local", "start_local"]
