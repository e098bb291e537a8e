"""``carpool provider kubernetes``: its options, and clusters that cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool import __main__ as command
from faas_stack.provider.app import Options
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
    """What a command that cannot start says."""
    assert command.main(["provider", "kubernetes", "--port", "0", *options]) in (1, 2)
    return capsys.readouterr().err


def test_options_that_cannot_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    """All are named, each with what was expected."""
    options = ("--user", "0", "--gpu-resource", "gpu=many", "--scaler", "scaler:8091")
    said = told(capsys, *options)
    for part in ("--user = '0'", "--gpu-resource = 'gpu=many'", "--scaler-token-file = ''"):
        assert part in said, part


def test_a_cluster_that_is_named_nowhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file that is not there, is no kubeconfig, or has no such context."""
    assert "--kubeconfig" in told(capsys, "--kubeconfig", str(tmp_path / "none"))
    (tmp_path / "config").write_text("clusters: []\n")
    assert "--kubeconfig" in told(capsys, "--kubeconfig", str(tmp_path / "config"))
    (tmp_path / "config").write_text(CONFIG)
    other = told(capsys, "--kubeconfig", str(tmp_path / "config"), "--context", "other")
    assert "'other' not found" in other


def test_a_cluster_that_cannot_be_reached(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is said, and the provider does not start."""
    (tmp_path / "config").write_text(CONFIG)
    said = told(capsys, "--kubeconfig", str(tmp_path / "config"))
    assert "the API server cannot be reached" in said


def test_the_extra_is_named() -> None:
    """Without lightkube the error says what to install."""
    assert "stack,scaler,kubernetes" == command.extras("faas_stack.stack.up:main", "lightkube")
    with pytest.raises(SystemExit):
        main(["--help"])


def test_the_provider_ends_when_its_calls_have() -> None:
    """It waits longer than a call takes by default, and ends before its pod is killed."""
    function = Deployment.from_json(b'{"service": "fn", "image": "img"}')
    assert Options().grace_s < call_limit_s(function) < DRAIN_S < 120
