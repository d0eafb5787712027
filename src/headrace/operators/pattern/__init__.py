"""Patterns: the search for matches, compiled, and the operator around it (rule 9.4)."""
