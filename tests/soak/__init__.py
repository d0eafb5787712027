"""The soak: a query that runs for long, is killed, and must not grow."""
