"""Metrics of queries, in the text format of Prometheus: the same for a query of a process and for those of a server.

Beside them are what else watches a query that runs: alarms, and the spans of OpenTelemetry.

| module | holds |
|---|---|
| `families.py` | metrics as values, and the text that Prometheus reads |
| `queries.py` | the figures of a query, and the metrics made of them |
| `alarms.py` | rules over these figures, and what an alarm does |
| `calling.py` | the thread that calls the functions of alarms |
| `endpoint.py` | the HTTP server of a process without a Headrace server: `start(..., metrics_port=9108)` |
| `alarms.py` | rules over the figures, and the alarms that they begin and end |
| `spans.py` | the spans of OpenTelemetry of each batch |
"""
