"""Tests of the doctor's checks of a cluster's state."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from faas_stack.doctor.context import (
    Autoscaler,
    Case,
    ClusterState,
    FunctionContext,
    Surroundings,
)
from faas_stack.doctor.rules import examine
from faas_stack.stack import stack_file
from scaler.planning.placement import Node
from tests.faas_stack.doctor_case import Doctor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCALED = "{com.carpool.slo: 200ms, com.carpool.scale.policy: infless}"
NODE = Node("n", 4.0, 2, 8000.0)


def findings(folder: Path, facts: ClusterState | None, text: str = "") -> list[tuple[str, str]]:
    """Return the checks and problems found for a function in a cluster's state."""
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
def test_each_problem_is_found_by_its_check_only(
    tmp_path: Path, facts: dict[str, Any], text: str, check: str, said: str
) -> None:
    """Each problem is found by its own check and by no other."""
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
        ({"nodes": None}, 'labels: {com.carpool.cpu: "3", com.carpool.scale.min: "2"}'),
    ],
)
def test_unrelated_objects_are_no_findings(
    tmp_path: Path, facts: dict[str, Any], text: str
) -> None:
    """What does not concern the functions, such as others' autoscalers, is no finding."""
    assert [] == findings(tmp_path, ClusterState(**{"nodes": (NODE,), **facts}), text)


def test_no_cluster_findings_without_cluster(tmp_path: Path) -> None:
    """Without a cluster there are no findings about one."""
    assert [] == findings(tmp_path, None, "constraints: [cpu=pinned]")


def kubeconfig(folder: Path, url: str, user: str) -> Path:
    """Write the configuration for a cluster, and return its path."""
    config = folder / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,\n"
        f" users: [{{name: u, user: {{{user}}}}}],\n"
        f' clusters: [{{name: c, cluster: {{server: "{url}"}}}}],\n'
        " contexts: [{name: c, context: {cluster: c, user: u}}]}\n"
    )
    return config


EXEC = "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: no-such-login}"


@pytest.mark.parametrize(
    ("user", "said"), [("token: t", "cannot be reached"), (EXEC, "no credentials")]
)
def test_unreachable_cluster_is_a_finding(
    user: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cluster that does not respond, or a login that fails, is a finding of its own."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "https://127.0.0.1:1", user)))
    (found,) = Doctor(tmp_path, capsys).says({}, "--kubernetes")
    assert ("reachable", "--kubernetes") == (found["check"], found["where"])
    assert said in found["fix"]


def test_cluster_that_allows_no_questions_has_no_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nodes that this user may not list are not taken for nodes without capacity."""
    with forbidding() as url:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, url, "token: t")))
        assert [] == Doctor(tmp_path, capsys).says({"limits": {"cpu": "1"}}, "--kubernetes")


@contextmanager
def forbidding() -> Iterator[str]:
    """Run an API server that forbids everything but the question for its version."""

    class Forbids(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.path == "/version"
            body = b'{"kind": "Status", "message": "this user cannot create or list anything"}'
            self.send_response(200 if allowed else 403)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Forbids) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
