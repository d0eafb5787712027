"""Does a user's module do what it declares? Random streams, odd values and other processes try it; it needs hypothesis.

`check` tries one property after the other and shrinks what fails, `claims` tries what a module declares about itself,
`streams` draws the input, `process` runs modules in a process of their own, and `report` is what comes back.
"""

from headrace.testing.module_check.check import module_check
from headrace.testing.module_check.report import Finding, ModuleReport

__all__ = ["Finding", "ModuleReport", "module_check"]
