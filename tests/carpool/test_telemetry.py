"""ONNX Runtime in Carpool's processes stores nothing on disk and sends nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.watchdog_plugin import models
from tests.watchdog_plugin.processes import start

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "http://127.0.0.1:9"
SESSIONS = {
    "handler": "from watchdog_plugin.onnx.model import OnnxModel; OnnxModel(model, 1).warm_up([1])",
    "predictor": "from carpool.onnx_graph.optimised import read_graph; read_graph(model)",
    "import alone": "import carpool, onnxruntime",
}
TELL = """
links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")[:-1]]
sockets = [link for link in links if link.startswith("socket:")]
json.dump({"threads": len(os.listdir("/proc/self/task")), "sockets": sockets}, sys.stdout)
sys.stdout.flush()
os._exit(0)
"""


def ran(folder: Path, code: str, **environment: str) -> dict[str, object]:
    """Run ``code`` with its home in ``folder``, and return its thread count and its sockets."""
    home, temporary = folder / "home", folder / "tmp"
    home.mkdir()
    temporary.mkdir()
    model = models.mlp(folder / "model.onnx")
    head = f"import json, os, pathlib, sys; model = pathlib.Path({str(model)!r}); "
    done = subprocess.run(
        [sys.executable, "-c", head + code + TELL],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(temporary),
            "OPENBLAS_NUM_THREADS": "1",
            "HTTPS_PROXY": NOWHERE,
            **environment,
        },
        check=True,
        stdout=subprocess.PIPE,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def files(folder: Path) -> list[str]:
    """Return all files that a process left in its home or temporary folder."""
    return [str(path) for name in ("home", "tmp") for path in (folder / name).rglob("*")]


@pytest.mark.parametrize("session", SESSIONS)
def test_telemetry_leaves_no_files_sockets_or_threads(tmp_path: Path, session: str) -> None:
    """There are no files, no sockets and no further thread, which an upload would need."""
    assert {"threads": 1, "sockets": []} == ran(tmp_path, SESSIONS[session])
    assert [] == files(tmp_path)


def test_enabled_telemetry_is_detected(tmp_path: Path) -> None:
    """With telemetry enabled, a device identifier and a thread are found, as a counter-check."""
    found = ran(tmp_path, SESSIONS["import alone"], ORT_DISABLE_TELEMETRY="0")
    if not files(tmp_path):
        pytest.skip("this build of ONNX Runtime has no telemetry")
    assert any(path.endswith("deviceid") for path in files(tmp_path))
    assert 1 != found["threads"]


def test_handler_importing_onnxruntime_first_sends_no_telemetry(tmp_path: Path) -> None:
    """A real handler that imports ONNX Runtime first leaves no files in its home."""
    function = tmp_path / "function"
    home = tmp_path / "home"
    home.mkdir()
    models.mlp(function / "model.onnx")
    (function / "handler.py").write_text("import onnxruntime\n")
    outside = {name: "" for name in ("CI", "GITHUB_ACTIONS", "GITLAB_CI") if name in os.environ}
    with start(tmp_path, HOME=str(home), **outside) as handler:
        handler.wait_ready()
        with handler.connect() as client:
            (answer,) = client.batch([b'{"instances": [[1, 2, 3, 4]]}'])
    assert 200 == answer.status
    assert [] == list(home.rglob("*"))
