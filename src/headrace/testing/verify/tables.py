"""The coverage of a run, as tables: operators under each disorder, and every value of every dimension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.testing.generators.traits import DIMENSIONS
from headrace.testing.verify.campaign import VerificationReport

__all__ = ["Rows", "coverage", "operators", "policies"]

Rows = list[list[str]]


def operators(report: VerificationReport) -> Rows:
    """The number of cases for each operator and degree of disorder; the first row is a header."""
    return _by_disorder("operator", report.operators)


def policies(report: VerificationReport) -> Rows:
    """The same for clipping and timestamping of users' modules."""
    return _by_disorder("policy", report.policies)


def _by_disorder(what: str, counted: Mapping[str, Counter[str]]) -> Rows:
    degrees = DIMENSIONS["disorder"]
    rows = [[what, *(degree.replace("_", " ") for degree in degrees)]]
    for name, counts in sorted(counted.items()):
        rows.append([name, *(str(counts[degree]) if counts[degree] else "–" for degree in degrees)])
    return rows


def coverage(report: VerificationReport) -> Rows:
    """The number of cases for each value of each dimension; the first row is a header."""
    rows = [["dimension", "cases"]]
    for name, counts in report.covered.items():
        if name not in ("operator", "policy"):
            rows.append([name, _counts_text(counts)])
    return rows


def _counts_text(counts: Counter[str]) -> str:
    return " · ".join(f"{value} {number}" for value, number in sorted(counts.items(), key=lambda item: -item[1]))
