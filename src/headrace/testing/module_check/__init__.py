"""Check that a user's module does what it declares, on random streams, odd values and in other processes.

`check` tests the properties and shrinks failures, `claims` tests what a module declares about itself, `streams` draws
the input, `process` runs modules in a process of their own, and `report` holds the results. It needs hypothesis.
"""

from headrace.testing.module_check.check import module_check
from headrace.testing.module_check.report import Finding, ModuleReport

__all__ = ["Finding", "ModuleReport", "module_check"]
