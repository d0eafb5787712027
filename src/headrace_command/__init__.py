"""The command `headrace`: Ctrl-C ends it quietly while the package is still being loaded, too.

It is not in the package, because a module in there is loaded after all that the package loads.
"""

from __future__ import annotations

import os
import signal

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130  # the exit status that shells report after Ctrl-C


def main() -> None:
    """Load the command line and run it with the arguments of the process."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))  # an exception might be caught by an import
    from headrace.cli import main as run

    signal.signal(signal.SIGINT, handler)
    run()
