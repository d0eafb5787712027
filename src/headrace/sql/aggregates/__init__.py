"""Aggregates written in SQL (rule 7): checked, compiled to Python, and used as modules."""

from headrace.sql.aggregates.adapters.folder import SqlFolder, SqlStepper
from headrace.sql.aggregates.adapters.module import SqlAggregate, SqlRows, completes, module_of, modules_of

__all__ = ["SqlAggregate", "SqlFolder", "SqlRows", "SqlStepper", "completes", "module_of", "modules_of"]
