"""Aggregates over windows: partial results, merged where a group is, and the answers made of them."""
