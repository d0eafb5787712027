"""Cases on Spark: many in one query, because a run costs seconds whatever it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headrace.api.running import run_quietly
from headrace.errors import HeadraceError
from headrace.events import history_diff
from headrace.history.duckdb import DuckDBHistory
from headrace.testing.checks import Violation, check_output
from headrace.testing.verify.campaign import VerificationFailure, VerificationReport
from headrace.testing.verify.case import VerifyCase

__all__ = ["verify_on_spark"]

_TOGETHER = 20


def verify_on_spark(
    cases: Iterator[VerifyCase], *, master: str | None = None, tell: Callable[[VerificationReport], None] | None = None
) -> VerificationReport:
    """Run cases on Spark and compare each with batch SQL over its history; nothing is made smaller here."""
    report = VerificationReport()
    oracle = DuckDBHistory()
    try:
        while some := list(islice(cases, _TOGETHER)):
            with TemporaryDirectory(prefix="headrace-verify-") as folder:
                _together(some, Path(folder), oracle, report, master)
            if tell is not None:
                tell(report)
    finally:
        oracle.close()
    return report


def _together(
    cases: list[VerifyCase], folder: Path, oracle: DuckDBHistory, report: VerificationReport, master: str | None
) -> None:
    plans = {f"case {number}": case.plan(folder / str(number)) for number, case in enumerate(cases)}
    options: dict[str, Any] = {"master": master} if master else {}
    done = run_quietly(plans, host="spark", buckets=2, **options)
    for name, case in zip(plans, cases, strict=True):
        report.note(case)
        report.checks["on Spark"] += 1
        try:
            check_output(done.events(name))
            difference = history_diff(done.cht(name), oracle.cht(plans[name].node), names=("Spark", "history"))
            if difference:
                raise Violation(difference)
        except (AssertionError, HeadraceError) as error:
            drawn = tuple(told.drawn() for told in case.streams)
            schemas = tuple(str(told.schema) for told in case.streams)
            feeds = tuple(map(str, case.feeds))
            cuts = tuple(told.cuts for told in case.streams)
            told = (feeds, drawn, schemas, cuts)
            failure = VerificationFailure(
                case.name, "on Spark", str(error), case.says, case.python, *told, 2, case.rows, intent=case.intent
            )
            report.failures.append(failure)
