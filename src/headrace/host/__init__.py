"""Hosts: ways to run the same stages. `local` in process, `spark` as a Structured Streaming query."""
