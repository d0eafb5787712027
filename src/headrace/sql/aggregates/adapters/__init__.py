"""Aggregates written in SQL as the modules and folds that the engine runs."""
