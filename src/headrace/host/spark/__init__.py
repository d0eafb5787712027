"""The Spark host: every batch of a query is one Spark job."""
