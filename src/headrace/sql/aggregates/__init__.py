"""Aggregates written in SQL (rule 7): checked, compiled to Python, and used as modules."""

from headrace.sql.aggregates.adapters.folder import Folder, Stepper
from headrace.sql.aggregates.adapters.module import SqlAggregate, SqlRows, completes, module_of, modules_of

__all__ = ["Folder", "SqlAggregate", "SqlRows", "Stepper", "completes", "module_of", "modules_of"]
