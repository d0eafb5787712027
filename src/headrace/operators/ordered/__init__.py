"""Windows of tuples in their order, and aggregates over the tuples before each tuple (rules 7.5, 8.2 and 8.3)."""
