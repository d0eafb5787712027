"""Aggregates written in SQL (rule 7): checked, compiled to Python, and used as modules."""

from headrace.sql.aggregates.module import SqlAggregate, SqlRows, module_of, modules_of

__all__ = ["SqlAggregate", "SqlRows", "module_of", "modules_of"]
