"""A substitute for of-watchdog in http mode, for machines without the real one.

It reproduces the observed behaviour that matters here: it forks ``fprocess`` (split on blanks),
answers ``/_/ready`` as the child does at ``ready_path``, sends bodies on chunked, answers 500 while
the child does not listen and 504 after ``exec_timeout``, and exits with 1 when the child dies.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from carpool import durations

UPSTREAM = urlsplit(os.environ["upstream_url"]).netloc
TIMEOUT_S = durations.parse(os.environ.get("exec_timeout", "30s"))


class Proxy(BaseHTTPRequestHandler):
    """One connection of the watchdog."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = os.environ["ready_path"] if self.path == "/_/ready" else self.path
        self.forward("GET", path, b"")

    def do_POST(self) -> None:
        self.forward("POST", self.path, self.rfile.read(int(self.headers["content-length"])))

    def forward(self, method: str, path: str, body: bytes) -> None:
        connection = http.client.HTTPConnection(UPSTREAM, timeout=TIMEOUT_S)
        try:
            pieces = iter([body[:1000], body[1000:]]) if body else None
            framing = ("host", "connection", "content-length", "transfer-encoding")
            headers = {n: v for n, v in self.headers.items() if n.lower() not in framing}
            connection.request(method, path, pieces, headers, encode_chunked=bool(body))
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except TimeoutError:
            status, content = 504, b""
        except OSError:
            status, content = 500, b""
        finally:
            connection.close()
        self.send_response(status)
        if status in (500, 504) and not content:
            self.send_header("x-openfaas-internal", "of-watchdog")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Log nothing."""


def main() -> None:
    """Fork the child, serve, and end with the child."""
    child = subprocess.Popen(os.environ["fprocess"].split())
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["port"])), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    child.wait()
    sys.exit(1)


main()
