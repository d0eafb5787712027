"""Averages and chart patterns for prices: modules for Headrace.

A price (or quantity) that is null, NaN or infinite does not count, in any of them.
"""

from headrace_finance.averages import ExponentialMovingAverage, TimeWeightedAverage, Vwap
from headrace_finance.patterns import HeadAndShoulders, WPattern

__all__ = ["ExponentialMovingAverage", "HeadAndShoulders", "TimeWeightedAverage", "Vwap", "WPattern"]
