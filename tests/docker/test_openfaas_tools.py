"""OpenFaaS's own programs with the provider: faas-cli's complete workflow, and the gateway."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from carpool.basic_auth import credentials, credentials_for, folder_of
from tests.docker.command import Command
from tests.faas_stack.rig import IMAGE
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.docker, pytest.mark.slow]
TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
GATEWAY = "http://127.0.0.1:8080"  # its port cannot be chosen
HANDLER = "def handle_batch(items):\n    return [item.bytes().upper() for item in items]\n"


class Prometheus(BaseHTTPRequestHandler):
    """A server without series, which is enough for the gateway to list functions."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "success", "data": {"result": []}}')

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def provider(docker_images: None, tmp_path: Path) -> Iterator[str]:  # noqa: ARG001
    """Run a provider as a program, and yield its URL."""
    command = Command(tmp_path)
    try:
        with command.serving() as (_, url):
            yield url
    finally:
        command.clear()


@pytest.fixture
def gateway(provider: str) -> Iterator[str]:
    """Run the real gateway in front of the provider, and yield its URL."""
    program = require_tool("gateway")
    prometheus = ThreadingHTTPServer(("127.0.0.1", 0), Prometheus)
    threading.Thread(target=prometheus.serve_forever, daemon=True).start()
    env = {
        **os.environ,
        "functions_provider_url": f"{provider}/",
        "function_namespace": "openfaas-fn",
        "scale_from_zero": "true",
        "read_timeout": "65s",
        "write_timeout": "65s",
        "upstream_timeout": "60s",
        "faas_prometheus_host": "127.0.0.1",
        "faas_prometheus_port": str(prometheus.server_port),
        "basic_auth": "true",
        "secret_mount_path": str(folder_of(provider)),
    }
    process = subprocess.Popen((program,), env=env, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is None and healthy(GATEWAY), what="the gateway")
        yield GATEWAY
    finally:
        process.terminate()
        process.wait(HANG_S)
        prometheus.shutdown()
        prometheus.server_close()


def healthy(url: str) -> bool:
    """Return whether the gateway and the provider behind it are healthy."""
    with contextlib.suppress(requests.RequestException):
        return requests.get(f"{url}/healthz", timeout=HANG_S).ok
    return False


def test_faas_cli_from_new_to_remove(provider: str, tmp_path: Path) -> None:
    """Run ``new``, ``build``, ``deploy``, ``describe``, ``logs`` and ``remove`` as authors do."""
    program = require_tool("faas-cli")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "template").symlink_to(TEMPLATES)

    def faas(*words: str, given: str = "") -> str:
        done = subprocess.run(
            (program, *words),
            cwd=folder,
            env={**os.environ, "HOME": str(tmp_path)},
            input=given,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    faas("new", "shout", "--lang", "python3-batch", "--gateway", provider)
    (folder / "shout" / "handler.py").write_text(HANDLER)
    (folder / "shout" / "handler_test.py").write_text("import unittest\n")
    password = credentials(folder_of(provider)).password
    faas("login", "--gateway", provider, "--password-stdin", given=password)
    faas("build", "-f", "stack.yaml")
    faas("deploy", "-f", "stack.yaml", "--gateway", provider)
    answer = requests.post(f"{provider}/function/shout", data=b"hello", timeout=HANG_S)
    assert (200, "HELLO") == (answer.status_code, answer.text)
    assert "shout" in faas("list", "--gateway", provider)
    assert "Ready" in faas("describe", "shout", "--gateway", provider)
    faas("logs", "shout", "--gateway", provider, "--tail=false")
    faas("deploy", "-f", "stack.yaml", "--gateway", provider)  # an update
    faas("remove", "-f", "stack.yaml", "--gateway", provider)
    listed = requests.get(
        f"{provider}/system/functions", auth=credentials_for(provider), timeout=HANG_S
    )
    assert [] == listed.json()


def test_function_is_called_through_gateway(provider: str, gateway: str) -> None:
    """Deploy, start from zero and call through the gateway, which adds its headers.

    The gateway has the provider's credentials, and requires them from its own callers.
    """
    system = f"{gateway}/system/functions"
    assert 401 == requests.get(system, timeout=HANG_S).status_code
    pair = credentials_for(provider)
    labels = {"com.carpool.scale.min": "0"}
    document = {"service": "fn", "image": IMAGE, "labels": labels}
    answer = requests.post(system, json=document, auth=pair, timeout=HANG_S)
    assert 202 == answer.status_code
    with ThreadPoolExecutor(8) as callers:
        call = f"{gateway}/function/fn/path?q=1"
        answers = list(callers.map(lambda _: requests.get(call, timeout=HANG_S), range(16)))
    assert {200} == {answer.status_code for answer in answers}
    seen = answers[0].json()
    assert "/path?q=1" == seen["target"]
    assert {"x-call-id", "x-start-time"} <= {name for name, _ in seen["headers"]}
    (listed,) = requests.get(system, auth=pair, timeout=HANG_S).json()
    assert ("fn", 1, 1) == (listed["name"], listed["replicas"], listed["availableReplicas"])
    removal = {"functionName": "fn", "namespace": "openfaas-fn"}
    assert requests.delete(system, json=removal, auth=pair, timeout=HANG_S).ok
