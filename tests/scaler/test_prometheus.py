"""Prometheus as a second source of counts: its responses are parsed, its failure reported."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from scaler.prometheus import QUERY, Prometheus, PrometheusError

if TYPE_CHECKING:
    from collections.abc import Iterator


ASKED_S = 1732197600.5


def series(name: str, value: str, what: str = "count") -> dict[str, Any]:
    """Return one series of a response to an instant query."""
    return {"metric": {"function_name": name, "is": what}, "value": [ASKED_S, value]}


def both(name: str, value: str, age_s: float = 0.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the series of a count and of the time when it was read."""
    return series(name, value), series(name, str(ASKED_S - age_s), "time")


def document(*result: dict[str, Any]) -> bytes:
    """Return a whole response."""
    data = {"resultType": "vector", "result": list(result)}
    return json.dumps({"status": "success", "data": data}).encode()


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Run a server with a fixed response and yield its URL and the requested paths."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Do nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_counts_are_summed_over_namespaces_unless_one_is_configured() -> None:
    """OpenFaaS appends the namespace; if one is configured, others are ignored."""
    lines = *both("echo.openfaas-fn", "12"), *both("echo.dev", "3", 2.5), *both("x", "1", -0.25)
    with answering(document(*lines)) as (url, asked):
        assert {"echo": (15, 2.5), "x": (1, 0.0)} == Prometheus(url).readings()
        assert {"echo": (3, 2.5), "x": (1, 0.0)} == Prometheus(f"{url}/", "dev").readings()
    query = urlsplit(asked[0])
    assert ("/api/v1/query", [QUERY]) == (query.path, parse_qs(query.query)["query"])


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 503, "503"),
        (b"<html>", 200, "cannot be queried"),
        (b'{"status": "success"}', 200, "returned an unexpected response"),
        (document({"metric": {"function_name": "echo"}}), 200, "returned an unexpected response"),
        (document(*both("echo", "+Inf")), 200, "returned an unexpected response"),
        (document(series("echo", "1")), 200, "returned an unexpected response"),
    ],
)
def test_invalid_response_is_reported(body: bytes, status: int, said: str) -> None:
    """The error for an invalid response names the server."""
    with (
        answering(body, status) as (url, _),
        pytest.raises(PrometheusError, match=said) as error,
    ):
        Prometheus(url).readings()
    assert url.removeprefix("http://") in str(error.value).replace("host=", "")


def test_unreachable_server_is_reported() -> None:
    """The error says that the server cannot be queried."""
    with pytest.raises(PrometheusError, match="cannot be queried"):
        Prometheus("http://127.0.0.1:1").readings()
