"""Modules: users' functions, aggregates and operators (rule 6)."""

from headrace.modules.base import Aggregate, IncrementalAggregate, IncrementalOperator, Module, Operator
from headrace.modules.call import ModuleCall

__all__ = ["Aggregate", "IncrementalAggregate", "IncrementalOperator", "Module", "ModuleCall", "Operator"]
