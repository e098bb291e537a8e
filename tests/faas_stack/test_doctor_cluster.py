"""What the checks of clusters make of what a cluster says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from faas_stack.doctor.cluster_state import Autoscaler, ClusterState
from faas_stack.doctor.context import Case, FunctionContext, Surroundings
from faas_stack.doctor.rules import examine
from faas_stack.stack import stack_file
from scaler.planning.placement import Node
from tests.faas_stack.doctor_case import Doctor

if TYPE_CHECKING:
    from pathlib import Path

SCALED = "{com.carpool.slo: 200ms, com.carpool.scale.policy: infless}"
NODE = Node("n", 4.0, 2, 8000.0)


def findings(folder: Path, facts: ClusterState | None, text: str = "") -> list[tuple[str, str]]:
    """The findings about a function of such a kind, with the texts of their problems."""
    path = folder / "stack.yaml"
    path.write_text(
        "provider: {name: openfaas}\n"
        f"functions:\n  fn:\n    skip_build: true\n    image: fn:1\n    {text}\n"
    )
    stack, _ = stack_file.read(path)
    assert stack is not None
    contexts = tuple(FunctionContext.of(function) for function in stack.functions)
    found = examine(Case(stack, contexts, Surroundings(cluster=facts)))
    return [(each.check, str(each.problem)) for each in found if each.check.startswith("cluster")]


@pytest.mark.parametrize(
    ("facts", "text", "check", "said"),
    [
        (
            {"autoscalers": (Autoscaler("ScaledObject", "openfaas-fn", "so", "fn--b1-c1"),)},
            f"labels: {SCALED}",
            "cluster-autoscaler",
            "ScaledObject openfaas-fn/so = 'fn--b1-c1'",
        ),
        (
            {"namespaces": {"openfaas-fn": "does not exist"}},
            "",
            "cluster-namespace",
            "kubectl create namespace openfaas-fn",
        ),
        (
            {"refusals": (("fn", "exceeded quota: small"),)},
            "",
            "cluster-pod",
            "exceeded quota: small",
        ),
        (
            {"nodes": (NODE,)},
            'labels: {com.carpool.cpu: "3", com.carpool.scale.min: "2"}',
            "cluster-capacity",
            "1 nodes have 1 cores and 200 % of GPUs left",
        ),
        (
            {"missing_rights": (("openfaas/gateway", "patch pods in openfaas-fn"),)},
            "",
            "cluster-rights",
            "patch pods in openfaas-fn",
        ),
        (
            {"unpinned": ("n",)},
            "constraints: [cpu=pinned]\n    limits: {memory: 1Gi}",
            "cluster-pinning",
            "cpuManagerPolicy: static; n do not have it",
        ),
        (
            {},
            "constraints: [cpu=pinned]\n    limits: {cpu: '2'}",
            "cluster-pinning",
            "a memory limit, too",
        ),
    ],
)
def test_each_trap_is_found(
    tmp_path: Path, facts: dict[str, Any], text: str, check: str, said: str
) -> None:
    """By its check, with what is wrong in it; and nothing else is."""
    ((found, problem),) = findings(tmp_path, ClusterState(**{"nodes": (NODE,), **facts}), text)
    assert check == found
    assert said in problem


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"autoscalers": (Autoscaler("ScaledObject", "other", "so", "fn"),)}, f"labels: {SCALED}"),
        ({"autoscalers": (Autoscaler("ScaledObject", "openfaas-fn", "so", "fn"),)}, ""),
        ({"unpinned": ("n",)}, ""),
        ({}, "constraints: [cpu=pinned]\n    labels: {com.carpool.memory: 1GB}"),
        ({"namespaces": {"other": "does not exist"}}, ""),
        ({"nodes": (Node("n", 4.0, 1, 8000.0, 4),)}, 'labels: {com.carpool.gpu: "40"}'),
    ],
)
def test_what_does_not_concern_the_functions_is_no_finding(
    tmp_path: Path, facts: dict[str, Any], text: str
) -> None:
    """Autoscalers of others or of functions that nothing else scales, and the like."""
    assert [] == findings(tmp_path, ClusterState(**{"nodes": (NODE,), **facts}), text)


def test_without_a_cluster_nothing_is_said_of_one(tmp_path: Path) -> None:
    """Where none was asked."""
    assert [] == findings(tmp_path, None, "constraints: [cpu=pinned]")


EXEC = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: no-such-login}"


@pytest.mark.parametrize(
    ("user", "said"), [("token: t", "cannot be reached"), (EXEC, "no credentials")]
)
def test_a_cluster_that_cannot_be_asked_is_said(
    user: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cluster that does not answer, or a login that fails, is a finding of its own."""
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,\n"
        f" users: [{{name: u, user: {{{user}}}}}],\n"
        ' clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}],\n'
        " contexts: [{name: c, context: {cluster: c, user: u}}]}\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    (found,) = Doctor(tmp_path, capsys).says({}, "--kubernetes")
    assert ("reachable", "--kubernetes") == (found["check"], found["where"])
    assert said in found["fix"]
