"""Failures of Spark in one sentence: the first cause, and what to do.

Spark wraps an error in many others, with stacks of the JVM and a dump of the plan. The first cause is extracted from
this text; the complete text goes to the log, `logging.getLogger("headrace")`, at level INFO.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headrace import errors
from headrace.errors import HeadraceError, HostError
from headrace.io.secrets import HIDDEN

__all__ = ["explaining", "failure", "is_gone", "may_pass"]

_log = logging.getLogger("headrace")
#: A `HeadraceError` that a worker has raised.
_OURS = re.compile(
    r"headrace\.errors\.(\w+): \[(\w+)\] (.*?)(?=\s*SQLSTATE|\n\s*\n|\n[A-Z][\w.]*Exception|\Z)", re.DOTALL
)
#: The last line of a Python traceback, and the text of a Java exception.
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*([^\s:]+(?:: .*)?)")
_WRAPPERS = ("pyspark.", "py4j.", "Py4J")
_CAUSED = re.compile(r"Caused by: (?:[a-z]\w*\.)+([A-Z]\w*: [^\n]+)")
_JAVA = re.compile(r"(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error)): ([^\n]+)")
_HEADER = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL)
_LONGEST = 400
#: Spark's messages when machines or workers were lost, or too busy to answer in time.
_PASSING = re.compile(r"Python worker\b.*\bto connect back|ExecutorLostFailure|FetchFailed|Connection reset by peer")


def failure(
    error: BaseException, what: str = "the query", instead: str = "", secrets: Sequence[str] = ()
) -> HeadraceError:
    """The error to show to users: a `HeadraceError` as it is, otherwise a `HostError` with Spark's first cause.

    `instead` is what to do if Spark has failed. `secrets` are values of options, which are hidden.
    """
    if isinstance(error, HeadraceError):
        return error
    text = str(error).strip() or type(error).__name__
    for secret in filter(None, secrets):
        text = text.replace(secret, HIDDEN)
    _log.info("%s failed, in Spark's own words:\n%s", what, text)
    if is_gone(error):
        new = "start a new process"
        return HostError(
            f"{what} failed: Spark's JVM is gone; it has crashed, was killed, or ran out of memory ({_short(text)})",
            instead=f"{new}, and {instead}" if instead else new,
        )
    match = _OURS.search(text)
    if match is not None:
        kind: type[HeadraceError] = getattr(errors, match[1], HeadraceError)
        return kind(match[3].strip())
    return HostError(f"{what} failed: {_cause(text)}", instead=instead)


@contextmanager
def explaining(explain: Callable[[Exception], BaseException]) -> Iterator[None]:
    """Raise failures as the errors that `explain` returns, without Spark's own text, which is pages long."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:  # noqa: BLE001 - Spark raises what Python, Java and gRPC raise
        raise explain(error) from None


def is_gone(error: BaseException) -> bool:
    """Whether Spark's process no longer answers."""
    kind = type(error)
    cut_off = kind.__module__.startswith("py4j.") and kind.__name__ != "Py4JJavaError"
    return isinstance(error, ConnectionError) or cut_off or "StatusCode.UNAVAILABLE" in str(error)


def may_pass(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    return _PASSING.search(str(error)) is not None


def _cause(text: str) -> str:
    """The innermost error: of Python, else of Java, else the first line."""
    python = [line for line in _PYTHON.findall(text) if not line.startswith(_WRAPPERS)]
    if python:
        return _short(python[-1])
    caused = _CAUSED.findall(text)
    if caused:
        return _short(caused[-1])
    message = _HEADER.sub("", text)
    while (java := _JAVA.search(message)) is not None and java[0] != message:  # one inside the other
        message = f"{java[1]}: {java[2]}"
    return _short(message)


def _short(text: str) -> str:
    line = text.strip().splitlines()[0].strip()
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
