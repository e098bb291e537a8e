"""A registry with one image over plain HTTP, which requires a user and a password."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LOGIN", "Registry", "registry"]

LOGIN = base64.b64encode(b"someone:s3cret").decode()
_TYPE = "application/vnd.oci.image"


class Registry:
    """Content of the registry.

    Attributes:
        address: address on which it listens.
        image: name by which nodes pull its image.
        pulled: number of requests for the image with credentials.
    """

    def __init__(self, address: str, program: Path) -> None:
        self.address = address
        self.image = f"{address}/program:1"
        self.pulled = 0
        layer = _layer(program)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(gzip.decompress(layer))]},
        }
        described = json.dumps(config).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": _reference("config.v1+json", described),
            "layers": [_reference("layer.v1.tar+gzip", layer)],
        }
        self._manifest = json.dumps(manifest).encode()
        self._contents = {_digest(each): each for each in (described, layer, self._manifest)}

    def content(self, path: str) -> bytes | None:
        """Return the content at a path; None if there is none."""
        last = path.rpartition("/")[2]
        if path == "/v2/program/manifests/1":
            self.pulled += 1
            return self._manifest
        return b"{}" if path == "/v2/" else self._contents.get(last)

    def kind(self, path: str) -> str:
        """Return the media type of the content at a path."""
        return f"{_TYPE}.manifest.v1+json" if "/manifests/" in path else "application/octet-stream"


@contextmanager
def registry(host: str, program: Path) -> Iterator[Registry]:
    """Run a registry on an address of this machine, with an image of a single program."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.headers.get("authorization") != f"Basic {LOGIN}":
                self._answer(401, b"", ("www-authenticate", 'Basic realm="tests"'))
            elif (found := made.content(self.path)) is None:
                self._answer(404, b"")
            else:
                self._answer(200, found, ("content-type", made.kind(self.path)))

        def do_HEAD(self) -> None:
            self.do_GET()

        def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            digest = ("docker-content-digest", _digest(body))
            for name, value in (*headers, digest, ("content-length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer((host, 0), Handler)
    made = Registry(f"{host}:{server.server_port}", program)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield made
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _layer(program: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as layer:
        layer.add(program, program.name)
    return made.getvalue()


def _reference(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": f"{_TYPE}.{kind}", "size": len(content), "digest": _digest(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
