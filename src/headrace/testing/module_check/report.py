"""The results of checking a module, as data and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "ModuleReport", "Verdict"]

Verdict = Literal["ok", "failed", "note", "skipped"]
_MARKS = {"ok": "✓", "failed": "✗", "note": "·", "skipped": "-"}


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    check: str
    verdict: Verdict
    detail: str
    examples: int = 0
    seconds: float = 0.0
    #: The smallest input that shows a failure.
    shown: str = ""

    def __str__(self) -> str:
        effort = f"{self.examples:>4} examples {self.seconds:6.2f} s" if self.examples else " " * 22
        line = f"{_MARKS[self.verdict]} {self.check:<14} {effort}   {self.detail}".rstrip()
        return "\n".join([line, *(f"      {row}" for row in self.shown.splitlines())])


@dataclass(frozen=True)
class ModuleReport:
    """The results of all checks."""

    module: str
    seed: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return tuple(f.check for f in self.findings if f.verdict == "failed")

    def __getitem__(self, check: str) -> Finding:
        return next(f for f in self.findings if f.check == check)

    def __str__(self) -> str:
        summary = f"failed: {', '.join(self.failed)}" if self.failed else "all checks passed"
        return "\n".join([f"{self.module}, seed {self.seed}", *map(str, self.findings), summary])
