"""Python functions of users inside expressions (rule 6.1): created by `udf`, run by `run`, identified by code."""

from headrace.expr.python.decorate import udf
from headrace.expr.python.node import Udf, UdfCall, functions_in
from headrace.expr.python.run import run

__all__ = ["Udf", "UdfCall", "functions_in", "run", "udf"]
