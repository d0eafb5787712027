"""The Spark host: Headrace on Structured Streaming."""
