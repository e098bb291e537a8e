"""Run the Flask app and the sidecar of docs/own-server.md, which give the answer shown."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import take, take_one
from tests.waiting import HANG_S

BLOCKS = dict.fromkeys(("python", "bash", "json"), "")
for _block in take("docs/own-server.md", "^(?!carpool_wire=oip)"):
    BLOCKS[_block.language] += _block.text
IN_SHORT = take_one("docs/sidecar.md", "^carpool_wire=v1")
pytest.importorskip("gunicorn", reason="the extra scaler has it")


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_sidecar_page_shows_same_command() -> None:
    """The command in docs/sidecar.md is the one that the next test runs."""
    assert IN_SHORT.rstrip() in BLOCKS["bash"]


@pytest.mark.slow
def test_response_matches_page(tmp_path: Path) -> None:
    """Run the commands one after the other as they are printed, on other ports."""
    (tmp_path / "app.py").write_text(BLOCKS["python"], encoding="utf-8")
    command = BLOCKS["bash"]
    for port in ("8501", "8080"):
        command = command.replace(f"127.0.0.1:{port}", f"127.0.0.1:{_free_port()}")
    scripts = str(Path(sys.executable).parent)
    env = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        ["bash", "-euc", f"{command}\necho\nwait"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        try:
            assert BLOCKS["json"].strip() == process.stdout.readline().strip()
        finally:
            os.killpg(process.pid, 15)
            process.wait(HANG_S)
