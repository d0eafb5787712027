"""Run cases on Spark, many in one query, because every run costs seconds."""

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

_GROUP_SIZE = 20


def verify_on_spark(
    cases: Iterator[VerifyCase], *, master: str | None = None, tell: Callable[[VerificationReport], None] | None = None
) -> VerificationReport:
    """Run cases on Spark and compare each with batch SQL over its history; failures are not shrunk."""
    report = VerificationReport()
    oracle = DuckDBHistory()
    try:
        while group := list(islice(cases, _GROUP_SIZE)):
            with TemporaryDirectory(prefix="headrace-verify-") as folder:
                _run_group(group, Path(folder), oracle, report, master)
            if tell is not None:
                tell(report)
    finally:
        oracle.close()
    return report


def _run_group(
    cases: list[VerifyCase], folder: Path, oracle: DuckDBHistory, report: VerificationReport, master: str | None
) -> None:
    plans = {f"case {number}": case.plan(folder / str(number)) for number, case in enumerate(cases)}
    options: dict[str, Any] = {"master": master} if master else {}
    run = run_quietly(plans, host="spark", buckets=2, **options)
    for name, case in zip(plans, cases, strict=True):
        report.note(case)
        report.checks["on Spark"] += 1
        try:
            check_output(run.events(name))
            difference = history_diff(run.cht(name), oracle.cht(plans[name].node), names=("Spark", "history"))
            if difference:
                raise Violation(difference)
        except (AssertionError, HeadraceError) as error:
            drawn = tuple(stream.drawn() for stream in case.streams)
            schemas = tuple(str(stream.schema) for stream in case.streams)
            feeds = tuple(map(str, case.feeds))
            cuts = tuple(stream.cuts for stream in case.streams)
            inputs = (feeds, drawn, schemas, cuts)
            failure = VerificationFailure(
                case.name, "on Spark", str(error), case.says, case.python, *inputs, 2, case.rows, intent=case.intent
            )
            report.failures.append(failure)
