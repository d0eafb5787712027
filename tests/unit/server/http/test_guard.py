"""What pages of other sites may not do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import AppClient
from tests.unit.server.standing_in import StandIn

from headrace.errors import ServerError
from headrace.server.http import HttpServer, HttpSettings, make_app


def status(headers: dict[str, str], url: str = "http://localhost", **settings: Any) -> int:
    client = AppClient(make_app(StandIn(), HttpSettings(**settings)), url=url)
    found = client.post("/sql", json={"sql": "SHOW STREAMS"}, headers=headers).status_code
    return int(found)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"])
def test_names_of_this_machine(host: str):
    assert status({"host": host}) == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1", "@"])
def test_a_name_that_was_pointed_at_this_machine(host: str):
    assert status({"host": host}) == 403


def test_further_names():
    assert status({"host": "streams.example:8080"}, hosts=("streams.example",)) == 200
    assert status({"host": "any.example"}, hosts=("*",)) == 200


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({"origin": "http://localhost"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "https://localhost"}, 403),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_pages_of_other_sites(headers: dict[str, str], wanted: int):
    assert status(headers) == wanted


def test_a_site_that_is_allowed():
    client = AppClient(make_app(StandIn(), HttpSettings(origins=("https://a.example",))))
    headers = {"origin": "https://a.example"}
    found = client.request("OPTIONS", "/sql", headers=headers)
    assert (found.status_code, found.headers["access-control-allow-origin"]) == (204, "https://a.example")
    assert "access-control-allow-credentials" not in found.headers
    assert client.get("/ready", headers=headers).headers["access-control-allow-origin"] == "https://a.example"
    assert "access-control-allow-origin" not in client.get("/ready").headers


def test_another_address_needs_tls():
    with pytest.raises(ServerError, match="need TLS"):
        HttpServer(StandIn(), host="0.0.0.0", port=0)  # noqa: S104 - that is what is refused
    server = HttpServer(StandIn(), host="0.0.0.0", port=0, settings=HttpSettings(plain=True))  # noqa: S104
    server.stop()
