"""Schema registries: services that number the schemas of values, with the interface of Confluent's registry.

Two calls are used: the schema of a number, and the number of a schema under a subject, which registers it. Numbers
never change their schemas, so a process asks for each one once. A user and a password may be part of the URL, or be in
the environment as `HEADRACE_REGISTRY_USER` and `HEADRACE_REGISTRY_PASSWORD`; neither appears in any text.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from typing import Any

from headrace.errors import SchemaError, SourceError, Unavailable

__all__ = ["schema_by_id", "schema_id"]

_TIMEOUT = 10.0
_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND, _BUSY = 404, 429
_FAULTS = 500


def schema_by_id(registry: str, number: int) -> str | None:
    """The text of a schema; None if the registry does not know it, which it may later."""
    try:
        return _known_schema(registry, number)
    except KeyError:
        return None


@lru_cache(maxsize=4096)
def _known_schema(registry: str, number: int) -> str:
    answer = _call(registry, f"/schemas/ids/{number}")
    if answer is None:
        raise KeyError(number)
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise SchemaError(f"schema {number} of the registry is not Avro", given=answer["schemaType"], allowed="AVRO")
    if answer.get("references"):
        raise SchemaError(f"schema {number} of the registry refers to other schemas", allowed="a schema in one piece")
    return str(answer["schema"])


@lru_cache(maxsize=4096)
def schema_id(registry: str, subject: str, schema: str) -> int:
    """The number of an Avro schema under a subject; it is registered if it is new."""
    path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
    answer = _call(registry, path, json.dumps({"schema": schema}).encode())
    if answer is None:
        raise SourceError("the schema registry has no such place", given=registry, instead="the URL of a registry")
    return int(answer["id"])


def _call(registry: str, path: str, body: bytes | None = None) -> Any:
    """The answer to a request; None if there is no such thing."""
    address, login = _address(registry)
    headers = {"Accept": _TYPE, "Content-Type": _TYPE} | ({"Authorization": login} if login else {})
    request = urllib.request.Request(address + path, body, headers)  # noqa: S310 - `_address` allows http and https
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - see above
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(1000).decode("utf-8", errors="replace")
        if error.code == _NOT_FOUND:
            return None
        if error.code >= _FAULTS or error.code == _BUSY:
            raise Unavailable(f"the schema registry answered {error.code}", given=address) from None
        raise SourceError(f"the schema registry refused a request: {error.code} {text}", given=address) from None
    except (OSError, ValueError) as error:  # it does not answer, or not in JSON
        raise Unavailable(f"the schema registry does not answer: {error}", given=address) from None


def _address(registry: str) -> tuple[str, str]:
    """The URL without its user, and the header that names the user."""
    parts = urllib.parse.urlsplit(registry)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SchemaError("a schema registry is a URL", given=registry, instead="http://localhost:8081")
    place, at, host = parts.netloc.rpartition("@")
    user, _, password = place.partition(":")
    user = urllib.parse.unquote(user) if at else os.environ.get("HEADRACE_REGISTRY_USER", "")
    password = urllib.parse.unquote(password) if at else os.environ.get("HEADRACE_REGISTRY_PASSWORD", "")
    address = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    return address, "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
