"""Benchmarks: figures beside goals, as ratios inside one run."""
