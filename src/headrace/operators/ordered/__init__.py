"""Windows of tuples in their order, and aggregates over what precedes each tuple (rules 7.5, 8.2 and 8.3)."""
