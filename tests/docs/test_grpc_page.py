"""Run the sidecar and Triton's client of docs/grpc.md, which print the answer shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from tests.docs.snippets import take, take_one
from tests.ports import free_port
from tests.waiting import HANG_S, wait_until
from tests.watchdog_plugin import models

CHANNEL = take_one("docs/grpc.md", r"^grpc\.insecure_channel")
BLOCKS = {
    block.language: block.text
    for language in ("bash", "python", "text")
    for block in take("docs/grpc.md", language=language)
}
READY = "import sys, tritonclient.grpc as t; sys.exit(not t.InferenceServerClient({!r}).{})"


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_page_expression_makes_channel_to_several_pods() -> None:
    """The expression makes a channel, and gRPC accepts its service config."""
    with eval(CHANNEL, {"grpc": grpc}) as channel:
        assert isinstance(channel, grpc.Channel)


@pytest.mark.slow
def test_response_matches_page(tmp_path: Path) -> None:
    """Run the command and the program as they are printed, on other ports."""
    models.mlp(tmp_path / "net" / "model.onnx")
    ports = {f"127.0.0.1:{port}": f"127.0.0.1:{free_port()}" for port in (8080, 9000)}

    def printed(language: str) -> str:
        text: str = BLOCKS[language]
        for address, own in ports.items():
            text = text.replace(address, own)
        return text

    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-euc", f"{printed('bash')}\nwait"]
    is_ready = READY.format(ports["127.0.0.1:9000"], "is_server_ready()")
    with subprocess.Popen(command, cwd=tmp_path, env=env, start_new_session=True) as process:
        try:
            wait_until(lambda: run(is_ready).returncode == 0, what="the sidecar")
            client = run(printed("python"))
            assert BLOCKS["text"] == client.stdout, client.stderr
        finally:
            os.killpg(process.pid, 15)
            process.wait(HANG_S)
