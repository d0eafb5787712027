"""The fluent surface: builds plan nodes and holds no logic of its own."""
