"""The way into the server by HTTP: JSON and Arrow, and subscriptions as server-sent events or Arrow streams.

| part | is |
|---|---|
| `app.py` | the routes, who may use them, and errors as JSON |
| `guard.py` | what browsers may do: hosts, origins, and the headers of replies |
| `bodies.py`, `replies.py` | bodies of requests as rows; replies as JSON or Arrow |
| `statements.py`, `inserts.py`, `feeds.py` | `/sql`, rows in, subscriptions out |
| `modules.py` | packages of modules, in and out |
| `about.py`, `openapi.py` | `/health`, `/ready`, `/metrics`, and the description of the routes |
| `serving.py` | the process that listens |
"""

from headrace.server.http.app import make_app
from headrace.server.http.serving import HttpServer
from headrace.server.http.ways import HttpSettings

__all__ = ["HttpServer", "HttpSettings", "make_app"]
