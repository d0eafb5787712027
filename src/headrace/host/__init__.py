"""Hosts: ways to run the same stages. `local` in process, `spark` as a job a batch; `driving` is a query's loop."""
