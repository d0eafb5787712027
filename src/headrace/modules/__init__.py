"""Modules: functions, aggregates and operators by people who know a field, run by the engine (rule 6)."""

from headrace.modules.base import Aggregate, IncrementalAggregate, IncrementalOperator, Module, Operator
from headrace.modules.call import ModuleCall

__all__ = ["Aggregate", "IncrementalAggregate", "IncrementalOperator", "Module", "ModuleCall", "Operator"]
