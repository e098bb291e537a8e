"""Commands of the pages that run until they are stopped start, work, and end without an error."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
import requests

from carpool.__main__ import main
from tests.docs.snippets import ROOT, take_one
from tests.ports import free_port
from tests.waiting import HANG_S, wait_until
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from collections.abc import Iterator

_, NEW, UP, SIMULATE = (
    line.partition("#")[0] for line in take_one("README.md", "^pip install").splitlines()
)
PROVIDER = take_one("docs/commands.md", "^carpool provider -f stack.yaml")
BACKEND = take_one("docs/provider.md", language="python")
PLUGIN = take_one("docs/provider.md", "^carpool provider edge:Backend")
SCALER = take_one("docs/scaler.md", "^carpool scaler run")
SIDECAR = take_one("docs/commands.md", "^fprocess=")
OWN_SERVER = take_one("docs/own-server.md", "^carpool_wire=oip")
STACK = """\
provider: {name: openfaas}
functions:
  classify: {lang: python3-batch, handler: ./classify, image: classify:latest}
"""
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}

pytestmark = pytest.mark.slow


class _Server:
    """A running command, and the file with its output."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def said(self, pattern: str) -> str:
        """Wait for a line with the pattern, and return its first group."""
        wait_until(lambda: bool(re.search(pattern, self._log.read_text())), what=pattern)
        found = re.search(pattern, self._log.read_text())
        assert found
        return found[1]

    def stop(self) -> None:
        """Press Ctrl-C; the command ends without an error."""
        self._process.send_signal(signal.SIGINT)
        assert 0 == self._process.wait(HANG_S), self._log.read_text()


@contextmanager
def started(text: str, folder: Path, *options: str, **env: str) -> Iterator[_Server]:
    """Run a command of a page in ``folder``, with further ``options`` such as a test's ports."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", **env}
    log = folder / f"{len(list(folder.glob('*.log')))}.log"
    command = ["bash", "-euc", " ".join((text.strip(), *options))]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, cwd=folder, env={**os.environ, **own}, stdout=out, stderr=out
        ) as process,
    ):
        try:
            yield _Server(process, log)
        finally:
            process.kill()


def answered(url: str, document: object) -> requests.Response:
    """Return the first good answer to a document, as the server may still be starting."""
    answers: list[requests.Response] = []

    def asked() -> bool:
        try:
            answers.append(requests.post(url, json=document, timeout=HANG_S))
        except requests.ConnectionError:
            return False
        return answers[-1].ok

    wait_until(asked, what=url)
    return answers[-1]


def test_readme_commands_serve_model_and_simulate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader's model is served, and the scenario is simulated."""
    monkeypatch.chdir(tmp_path)
    models.mlp(tmp_path / "model.onnx")
    assert 0 == main(NEW.split()[1:])
    with started(UP, tmp_path, "--port", "0", "--scaler-port", "0", "--no-watchdog") as up:
        url = up.said(r"classify +(http://\S+)")
        answer = answered(url, {"instances": [[1, 2, 3, 4]]})
        assert 3 == len(answer.json()["predictions"][0])
        up.stop()
    assert 0 == main(shlex.split(SIMULATE, comments=True)[1:])


def test_scaler_finds_provider_credentials(tmp_path: Path) -> None:
    """The scaler finds the provider's credentials, and answers health checks."""
    (tmp_path / "stack.yaml").write_text(STACK)
    (tmp_path / "classify").mkdir()
    (tmp_path / "classify" / "handler.py").write_text("def handle_batch(items): return items\n")
    with started(PROVIDER, tmp_path, "--port", "0") as provider:
        gateway = provider.said(r"provider at http://(\S+);")
        text = SCALER.replace("127.0.0.1:8080", gateway).replace("8090", "0")
        with started(text, tmp_path) as scaler:
            address = scaler.said(r"listening on 0\.0\.0\.0(:\d+)")
            assert requests.get(f"http://127.0.0.1{address}/healthz", timeout=HANG_S).ok
            scaler.stop()
        provider.stop()


class _Served(BaseHTTPRequestHandler):
    """Answers each request."""

    def do_GET(self) -> None:
        """Answer with a short text."""
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"served")


@contextmanager
def answering() -> Iterator[str]:
    """Run a server as a machine at the edge might, and yield its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Served) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_provider_runs_functions_on_custom_backend(tmp_path: Path) -> None:
    """The class and its parameters are found, and calls are passed to a running server."""
    (tmp_path / "edge.py").write_text(BACKEND)
    with answering() as address:
        text = PLUGIN.replace("10.0.0.2:8080", address)
        with started(text, tmp_path, "--port", "0", "--no-auth") as provider:
            url = provider.said(r"provider at (http://\S+);")
            deployment = {"service": "echo", "image": "any"}
            deployed = requests.post(f"{url}/system/functions", json=deployment, timeout=HANG_S)
            assert 202 == deployed.status_code, deployed.text
            assert "served" == requests.get(f"{url}/function/echo", timeout=HANG_S).text
            provider.stop()
    assert (tmp_path / "state").is_dir()


def test_sidecar_starts_its_handler(tmp_path: Path) -> None:
    """The handler is started in the folder above ``function``."""
    models.mlp(tmp_path / "function" / "model.onnx")
    port = free_port()
    with started(SIDECAR, tmp_path, sidecar_listen=f"127.0.0.1:{port}") as sidecar:
        answer = answered(f"http://127.0.0.1:{port}/", {"instances": [[1, 2, 3, 4]]})
        assert 3 == len(answer.json()["predictions"][0])
        sidecar.stop()


def test_sidecar_forwards_response_of_open_inference_server(tmp_path: Path) -> None:
    """The sidecar passes on the answer of a Flask app under gunicorn."""
    text = OWN_SERVER
    ports = {port: str(free_port()) for port in ("8501", "8080")}
    for port, own in ports.items():
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
    app = f"gunicorn --bind 127.0.0.1:{ports['8501']} tests.services.flask_oip:app"
    with started(app, tmp_path) as server, started(text, tmp_path) as sidecar:
        url = f"http://127.0.0.1:{ports['8080']}/v2/models/m/infer"
        outputs = {
            o["name"]: o["data"] for o in answered(url, {"inputs": [TENSOR]}).json()["outputs"]
        }
        assert {"y": [2.0, 4.0, 6.0, 8.0], "total": [10.0]} == outputs
        sidecar.stop()
        server.stop()
