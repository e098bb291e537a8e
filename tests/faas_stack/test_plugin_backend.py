"""Tests of ``carpool provider NAME`` with a backend of another package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

from carpool.__main__ import main
from tests.faas_stack.plugin_provider import running
from tests.installed import install
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

NAME = "tests.faas_stack.plugin_backend:Workers"


def _install(folder: Path) -> None:
    """Install the backend under the name ``workers``."""
    install(folder, "edge", "carpool.provider_backends", f"workers = {NAME}")


@pytest.mark.slow
def test_plugin_backend_runs_functions(tmp_path: Path) -> None:
    """A provider with an installed package's backend runs functions and ends at SIGTERM."""
    _install(tmp_path)
    with running(tmp_path, "workers", {"image": "any"}) as url:
        deployment = {"service": "echo", "image": "any"}
        deployed = requests.post(f"{url}/system/functions", json=deployment, timeout=30)
        assert 202 == deployed.status_code, deployed.text
        call = f"{url}/function/echo/x"
        wait_until(lambda: 200 == requests.get(call, timeout=30).status_code, what="an answer")
        refused = {"service": "other", "image": "unknown"}
        answer = requests.post(f"{url}/system/functions", json=refused, timeout=30)
        assert 400 <= answer.status_code < 500


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["tests.faas_stack.plugin_backend:Unfinished"], "it lacks size, busy_gpus, check, stop"),
        (["nomad"], "expected one of docker, kubernetes, pkg.module:Class"),
        ([NAME], "image"),
        ([NAME, "--params", '{"image": 3}'], "image = '3': expected str"),
        ([NAME, "--params", "image"], "--params"),
        ([NAME, "--params", '{"image": "any"}', "--scaler", "here"], "--scaler"),
    ],
)
def test_unusable_backend_or_option_is_refused(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unusable backends, parameters and options are refused with an error."""
    assert 2 == main(["provider", *argv])
    assert said in capsys.readouterr().err


def test_name_of_installed_backend_leads_to_its_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of an entry point is that of the backend: its own parameter is missing."""
    assert 2 == main(["provider", "workers"])
    assert "expected one of docker, kubernetes" in capsys.readouterr().err
    _install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert 2 == main(["provider", "workers"])
    assert "image" in capsys.readouterr().err
