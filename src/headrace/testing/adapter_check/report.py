"""The results of checking an adapter: which rules it keeps, which one it breaks, and the calls that show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from headrace.testing.checks import Violation

__all__ = ["AdapterReport", "Broken", "BrokenContract", "RuleResult", "Skipped", "run_rules"]

Verdict = Literal["ok", "broken", "skipped"]
_MARKS = {"ok": "✓", "broken": "✗", "skipped": "-"}
T = TypeVar("T")


@dataclass(frozen=True)
class RuleResult:
    """The result of one rule."""

    rule: str
    verdict: Verdict
    #: What the rule says; for one that was skipped, why.
    text: str
    #: What was found instead, and the calls that show it.
    detail: str = ""
    calls: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{_MARKS[self.verdict]} {self.rule:<12} {self.text}"]
        lines += [f"    {line}" for line in self.detail.splitlines()]
        if self.calls:
            lines += ["    the calls that show it:", *(f"      {call}" for call in self.calls)]
        return "\n".join(lines)


@dataclass(frozen=True)
class AdapterReport:
    """The results of all rules, up to the first broken one."""

    adapter: str
    findings: tuple[RuleResult, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return self.broken is None

    @property
    def broken(self) -> str | None:
        """The name of the broken rule, if there is one."""
        return next((finding.rule for finding in self.findings if finding.verdict == "broken"), None)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The rules that could not be checked: something was not given."""
        return tuple(finding.rule for finding in self.findings if finding.verdict == "skipped")

    def __getitem__(self, rule: str) -> RuleResult:
        return next(finding for finding in self.findings if finding.rule == rule)

    def __str__(self) -> str:
        summary = "all rules are kept" if self.ok else f"broken: {self.broken}"
        return "\n".join([self.adapter, *map(str, self.findings), summary])


class BrokenContract(Violation):
    """An adapter breaks a rule of its contract; `report` has the rules that it keeps."""

    code = "ADAPTER"

    def __init__(self, report: AdapterReport) -> None:
        self.report = report
        finding = report[report.broken or ""]
        super().__init__(f"{report.adapter} breaks a rule of the contract of adapters\n{finding}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.report,)


class Broken(Exception):
    """A rule is broken."""


class Skipped(Exception):
    """A rule cannot be checked."""


@dataclass
class Example:
    """The calls of the example that runs: the smallest examples of a rule run first."""

    calls: list[str] = field(default_factory=list)

    def begin(self, *calls: str) -> None:
        """Begin another example, with calls that belong to each."""
        self.calls[:] = calls

    def add(self, call: str) -> None:
        """Add a call."""
        self.calls.append(call)


#: The name of a rule, its text, and the function that checks it.
Rule = tuple[str, str, Callable[[T], None]]


def run_rules(adapter: str, check: T, example: Example, rules: Sequence[Rule[T]]) -> AdapterReport:
    """Check the rules in turn; raise at the first broken one."""
    findings: list[RuleResult] = []
    for name, text, function in rules:
        example.begin()
        try:
            function(check)
        except Skipped as reason:
            findings.append(RuleResult(name, "skipped", str(reason)))
        except Broken as broken:
            findings.append(RuleResult(name, "broken", text, str(broken), tuple(example.calls)))
        except Exception as error:  # of the adapter: it is reported
            detail = f"a call raised {type(error).__name__}: {error}"
            findings.append(RuleResult(name, "broken", text, detail, tuple(example.calls)))
            raise BrokenContract(AdapterReport(adapter, tuple(findings))) from error
        else:
            findings.append(RuleResult(name, "ok", text))
        if findings[-1].verdict == "broken":
            raise BrokenContract(AdapterReport(adapter, tuple(findings)))
    return AdapterReport(adapter, tuple(findings))
