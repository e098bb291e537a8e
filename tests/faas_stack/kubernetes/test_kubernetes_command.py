"""Tests of the options of ``carpool provider kubernetes`` and of unreachable clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool import __main__ as command
from faas_stack.provider.app import ProviderOptions
from faas_stack.provider.call_limit import call_limit_s
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.kubernetes_command import DRAIN_S, main

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
"""


def told(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return the error output of a command that cannot start."""
    assert command.main(["provider", "kubernetes", "--port", "0", *options]) in (1, 2)
    return capsys.readouterr().err


def test_invalid_options_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    """All invalid options are reported together."""
    options = ("--user", "0", "--gpu-resource", "gpu=many", "--scaler", "scaler:8091")
    said = told(capsys, *options)
    for part in ("--user = '0'", "--gpu-resource = 'gpu=many'", "--scaler-token-file = ''"):
        assert part in said, part


def test_unusable_kubeconfig_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A kubeconfig that is missing, invalid or without the named context is refused."""
    assert "--kubeconfig" in told(capsys, "--kubeconfig", str(tmp_path / "none"))
    (tmp_path / "config").write_text("clusters: []\n")
    assert "--kubeconfig" in told(capsys, "--kubeconfig", str(tmp_path / "config"))
    (tmp_path / "config").write_text(CONFIG)
    other = told(capsys, "--kubeconfig", str(tmp_path / "config"), "--context", "other")
    assert "'other' not found" in other


def test_unreachable_api_server_prevents_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The provider does not start without its API server and says why."""
    (tmp_path / "config").write_text(CONFIG)
    said = told(capsys, "--kubeconfig", str(tmp_path / "config"))
    assert "the API server cannot be reached" in said


def test_missing_extra_is_named() -> None:
    """Without lightkube, the error names the extras to install."""
    assert "stack,scaler,kubernetes" == command.extras("faas_stack.stack.up:main", "lightkube")
    with pytest.raises(SystemExit):
        main(["--help"])


def test_provider_drains_calls_before_its_pod_is_killed() -> None:
    """The provider drains longer than a default call takes and ends before its pod is killed."""
    function = Deployment.from_json(b'{"service": "fn", "image": "img"}')
    assert ProviderOptions().grace_s < call_limit_s(function) < DRAIN_S < 120
