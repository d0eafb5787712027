"""The local host: runs the stages in this process, batch by batch, always the same way."""

from headrace.host.local.run import run_local

__all__ = ["run_local"]
