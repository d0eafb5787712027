"""Windows of any kind over groups of any number: what is in them, and what aggregates and modules make of it."""
