"""The provider as a process with the chart's account: every action of the OpenFaaS API."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.cluster.chart import Installed
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow  # it starts an API server


@pytest.fixture
def installed(api_server: Cluster, tmp_path: Path) -> Installed:
    """The chart's accounts and roles."""
    found = Installed(api_server, tmp_path)
    found.apply_access()
    return found


@pytest.fixture
def url(installed: Installed, tmp_path: Path) -> Iterator[str]:
    """URL of a provider that uses the chart's account and distributes a scaler's token."""
    token, port = tmp_path / "token", free_port()
    token.write_text("t0ken")
    account = installed.as_account("gateway")
    command = [
        *(sys.executable, "-m", "carpool", "provider", "kubernetes", "--no-auth"),
        *("--port", str(port), "--namespace", installed.functions),
        *("--scaler", "127.0.0.1:8091", "--scaler-token-file", str(token)),
    ]
    env = {"KUBECONFIG": str(account.kubeconfig), "PATH": "/usr/bin", "HOME": str(tmp_path)}
    log = tmp_path / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(command, cwd=tmp_path, stderr=file, env=env) as running,
    ):
        try:
            wait_until(
                lambda: "provider at" in log.read_text() or running.poll() is not None,
                what="the provider",
            )
            assert running.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()


def call(url: str, method: str, path: str, document: object = None) -> Any:
    """Return the response of the OpenFaaS API, which must not be an error."""
    body = None if document is None else json.dumps(document)
    headers = {"content-type": "application/json"}
    answer = requests.request(method, f"{url}{path}", data=body, headers=headers, timeout=60)
    assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json() if answer.text.startswith(("{", "[")) else None


def test_everything_that_the_api_does_is_allowed(installed: Installed, url: str) -> None:
    """The account may manage secrets and functions with and without a scaler, and read logs."""
    secret = {"name": "key", "value": "one"}
    call(url, "POST", "/system/secrets", secret)
    call(url, "PUT", "/system/secrets", {**secret, "value": "two"})
    assert ["key"] == [each["name"] for each in call(url, "GET", "/system/secrets")]
    scaled = {"com.carpool.slo": "100ms", "com.carpool.scale.policy": "infless"}
    for name, labels in (("plain", {}), ("front", scaled)):
        function = {"service": name, "image": "fn:1", "labels": labels, "secrets": ["key"]}
        call(url, "POST", "/system/functions", function)
        call(url, "PUT", "/system/functions", {**function, "envVars": {"a": "b"}})
        call(url, "POST", f"/system/scale-function/{name}", {"serviceName": name, "replicas": 2})
        assert 2 == call(url, "GET", f"/system/function/{name}")["replicas"]
        call(url, "GET", f"/system/logs?name={name}&follow=false")
    assert ["front", "plain"] == [f["name"] for f in call(url, "GET", "/system/functions")]
    found = installed.cluster.api.get(f"/api/v1/namespaces/{installed.functions}/secrets")
    assert {"key", "front.scaler-token"} == {each["metadata"]["name"] for each in found["items"]}
    for name in ("plain", "front"):
        call(url, "DELETE", "/system/functions", {"functionName": name})
    call(url, "DELETE", "/system/secrets", {"name": "key"})
    assert [] == call(url, "GET", "/system/functions")


def test_deployment_to_another_namespace_is_refused(installed: Installed, url: str) -> None:
    """A deployment to another labelled namespace is refused, as the account has no role there."""
    document = {"metadata": {"name": f"other-{installed.home}", "labels": {"openfaas": "1"}}}
    installed.cluster.make("/api/v1/namespaces", document)
    name = document["metadata"]["name"]
    wait_until(lambda: name in call(url, "GET", "/system/namespaces"), what="the label is seen")
    function = {"service": "fn", "image": "fn:1", "namespace": name}
    answer = requests.post(f"{url}/system/functions", json=function, timeout=60)
    assert 403 == answer.status_code
    assert "other-" in answer.text
