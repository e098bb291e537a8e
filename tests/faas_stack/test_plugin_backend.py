"""``carpool provider NAME``: a backend that another package brings."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import requests

from carpool.__main__ import main
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

NAME = "tests.faas_stack.plugin_backend:Workers"


@pytest.mark.slow
def test_it_runs_what_is_deployed(tmp_path: Path) -> None:
    """The provider over it answers as over any other, and both end at SIGTERM."""
    options = ("--params", '{"image": "any"}', "--port", "0", "--no-auth")
    command = [sys.executable, "-m", "carpool", "provider", NAME, *options]
    command += ["--state", str(tmp_path / "state")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stderr is not None
            said = re.search(r"provider at (http://\S+);", provider.stderr.readline())
            assert said is not None
            url = said[1]
            deployment = {"service": "echo", "image": "any"}
            deployed = requests.post(f"{url}/system/functions", json=deployment, timeout=30)
            assert 202 == deployed.status_code, deployed.text
            call = f"{url}/function/echo/x"
            wait_until(lambda: 200 == requests.get(call, timeout=30).status_code, what="an answer")
            refused = {"service": "other", "image": "unknown"}
            answer = requests.post(f"{url}/system/functions", json=refused, timeout=30)
            assert 400 <= answer.status_code < 500
        finally:
            provider.terminate()
            assert 0 == provider.wait(timeout=60)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["tests.faas_stack.plugin_backend:Unfinished"], "it lacks size, busy_gpus, check, stop"),
        (["nomad"], "expected one of pkg.module:Class"),
        ([NAME], "image"),
        ([NAME, "--params", '{"image": 3}'], "image = '3': expected str"),
        ([NAME, "--params", "image"], "--params"),
        ([NAME, "--params", '{"image": "any"}', "--scaler", "here"], "--scaler"),
    ],
)
def test_what_cannot_be_used_is_named(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is opened."""
    assert 2 == main(["provider", *argv])
    assert said in capsys.readouterr().err
