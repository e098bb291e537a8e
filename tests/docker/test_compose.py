"""The compose stack and its monitoring; ``test_docker_page.py`` starts it as the page says.

Grafana and OpenFaaS's gateway are in profiles; where their images cannot be pulled, their parts of
the file are checked but not run.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import requests
from docker.client import from_env

from sidecar.runtime.metrics import Metrics
from tests.docker.compose import PROFILES, STACK, Compose, replicas
from tests.faas_stack.rig import IMAGE
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

NETWORKS = ("control", "functions")
GATEWAY = {"gateway_function_invocation_total", "gateway_functions_seconds"}
# The scripted instance has no metrics, but it is looked for.
TARGETS = {"provider": {"up"}, "scaler": {"up"}, "sidecar": {"up", "down"}}
# A scaler that makes up its mind faster than one would have it in earnest.
HASTY = """\
services:
  scaler:
    command:
      - --gateway=http://provider.control:8080
      - --basic-auth=/var/lib/carpool-credentials
      - --token-file=/var/lib/carpool-credentials/carpool-scaler-token
      - --listen=scaler.control:8090
      - --listen-sync=scaler.functions:8090
      - --window=4s
      - --hold=2s
      - --prewarm=fixed
      - '--prewarm-params={"keep_alive_s": 3}'
"""


# What a function finds out of its network: the status of each URL, or why there is none.
PROBE = """\
import json, sys, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

def ask(url):
    request = urllib.request.Request(url, b"{}" if url.endswith("/v1/sync") else None)
    try:
        return urllib.request.urlopen(request, timeout=patience_s).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return "nothing"

patience_s, *urls = int(sys.argv[1]), *sys.argv[2:]
with ThreadPoolExecutor(len(urls)) as pool:
    print(json.dumps(dict(zip(urls, pool.map(ask, urls)))))
"""


def functions(stack: str) -> dict[str, str]:
    """Return the function containers of a stack: ids by name."""
    engine = from_env()
    found = engine.containers.list(ignore_removed=True, filters={"label": f"carpool.stack={stack}"})
    engine.close()
    return {container.name: container.id for container in found}


@pytest.mark.docker
@pytest.mark.slow
def test_documented_stack_runs(compose: Compose, echo: str) -> None:
    """All services start, functions run and are monitored, and functions outlive the provider."""
    compose("up", "-d")
    url, session = compose.provider()
    secret = {"name": "key", "value": "word"}
    assert 202 == session.post(f"{url}/system/secrets", json=secret, timeout=HANG_S).status_code
    deployment = {"service": "fn", "image": IMAGE, "secrets": ["key"]}
    answer = session.post(f"{url}/system/functions", json=deployment, timeout=HANG_S)
    assert (202, "") == (answer.status_code, answer.text)
    assert {"key": "word"} == requests.get(f"{url}/function/fn", timeout=HANG_S).json()["secrets"]

    deployment = {"service": "echo", "image": echo}
    assert (
        202 == session.post(f"{url}/system/functions", json=deployment, timeout=HANG_S).status_code
    )
    prometheus = compose.url("prometheus", 9090)
    wait_until(lambda: TARGETS.items() <= targets(prometheus).items(), what="the targets")

    before = functions(compose.name)
    compose("restart", "provider")
    url, session = compose.provider()
    assert {"echo", "fn"} == replicas(url, session).keys()
    assert 200 == requests.get(f"{url}/function/fn", timeout=HANG_S).status_code
    assert before == functions(compose.name)


@pytest.mark.docker
@pytest.mark.slow
def test_functions_reach_no_more_than_they_need(compose: Compose) -> None:
    """A function reaches other functions and the scaler's sync, and no other service of the stack.

    Provider and scaler run as an ordinary user, so that these two paths give no further access.
    """
    compose("up", "-d")
    url, session = compose.provider()
    deployment = {"service": "fn", "image": IMAGE}
    assert (
        202 == session.post(f"{url}/system/functions", json=deployment, timeout=HANG_S).status_code
    )
    assert 200 == requests.get(f"{url}/function/fn", timeout=HANG_S).status_code
    for service in ("provider", "scaler"):
        assert "uid=1000(app)" in compose("exec", "-T", service, "id")

    ports = {"provider": 8080, "scaler": 8090, "prometheus": 9090}
    paths = ("/system/functions", "/healthz", "/metrics", "/v1/functions", "/")
    where = set(ports.items())
    where |= {(f"{name}.{net}", port) for name, port in ports.items() for net in NETWORKS}
    for name, port in ports.items():
        networks = inspect(compose, name)["NetworkSettings"]["Networks"].values()
        where |= {(network["IPAddress"], port) for network in networks}
        where |= {(network["Gateway"], port) for network in networks}
        published = int(compose.url(name, port).rpartition(":")[2])
        where |= {(network["Gateway"], published) for network in networks}
    tried = [f"http://{host}:{port}{path}" for host, port in where for path in paths]
    provider, scaler = "http://provider.functions:8080", "http://scaler.functions:8090"
    needed = {f"{provider}/function/fn": 200, f"{scaler}/v1/sync": 401}
    assert needed == from_within(compose, 60, *needed)
    open_doors = [target for target in tried if target.startswith((provider, scaler))]
    found = from_within(compose, 3, *tried) | from_within(compose, 60, *open_doors)
    assert {"nothing", 404} == set(found.values()), found
    assert 404 == found[f"{provider}/system/functions"] == found[f"{scaler}/v1/functions"]


def from_within(compose: Compose, patience_s: int, *urls: str) -> dict[str, Any]:
    """Return what a function's container is answered at each URL within ``patience_s`` seconds."""
    engine = from_env()
    try:
        (container,) = functions(compose.name).values()
        done = engine.containers.get(container).exec_run(
            ["python", "-c", PROBE, str(patience_s), *urls]
        )
        assert 0 == done.exit_code, done.output
        found: dict[str, Any] = json.loads(done.output)
        return found
    finally:
        engine.close()


@pytest.mark.docker
@pytest.mark.slow
def test_scaler_in_stack_scales_to_zero_and_back(
    compose: Compose, echo: str, tmp_path: Path
) -> None:
    """Instances follow the load to zero and back, and no file contains the scaler's address."""
    (tmp_path / "hasty.yaml").write_text(HASTY)
    compose.files.append(tmp_path / "hasty.yaml")
    compose("up", "-d", "provider", "scaler")
    url, session = compose.provider()
    labels = {"slo": "1s", "batch.max": "8", "scale.policy": "infless", "scale.min": "0"}
    deployment = {
        "service": "fn",
        "image": echo,
        "labels": {f"com.carpool.{name}": text for name, text in labels.items()},
        "readOnlyRootFilesystem": True,
    }
    assert (
        202 == session.post(f"{url}/system/functions", json=deployment, timeout=HANG_S).status_code
    )
    assert load(url, 20, "3s") >= 60
    wait_until(lambda: len(replicas(url, session)) > 1, what="a plan after what was measured")
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(load, url, 300, "12s")
        # However slow the machine, as many wait by the end that one instance is not enough.
        wait_until(lambda: instances(url, session) > 1, what="a second instance")
        assert step.result() >= 3600
    wait_until(lambda: instances(url, session) == 0, what="no instance")
    wait_until(lambda: 1 == len(functions(compose.name)), what="no container but the front's")
    assert load(url, 1000, "10ms") >= 10
    keep_to_themselves(compose)
    for service in ("provider", "scaler"):
        assert inspect(compose, service)["HostConfig"]["ReadonlyRootfs"]
        wait_until(lambda name=service: healthy(compose, name), what=f"{service} healthy")  # type: ignore[misc]
    session.delete(f"{url}/system/functions", json={"functionName": "fn"}, timeout=HANG_S)
    wait_until(lambda: not functions(compose.name), what="the instances to be taken away")


def instances(url: str, session: requests.Session) -> int:
    """Return the number of instances of the classes of ``fn``."""
    return sum(count for name, count in replicas(url, session).items() if name != "fn")


def healthy(compose: Compose, service: str) -> bool:
    """Return whether the engine reports a service as healthy."""
    return bool(inspect(compose, service)["State"]["Health"]["Status"] == "healthy")


def load(url: str, rate_rps: int, duration: str) -> int:
    """Return the number of answers to a load; all requests must be answered, without a deadline."""
    words = (
        *("--url", f"{url}/function/fn", "--rate", str(rate_rps), "--duration", duration),
        *("--data", "hello", "--header", "x-carpool-class: batch", "--arrivals", "uniform"),
        *("--timeout", "60s", "--json"),
    )
    command = (sys.executable, "-m", "carpool", "load", *words)
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert (found["requests"], {}) == (found["ok"], found["errors"])
    return int(found["ok"])


def inspect(compose: Compose, service: str) -> dict[str, Any]:
    """Return the engine's description of a service's container."""
    engine = from_env()
    try:
        shown: dict[str, Any] = engine.containers.get(compose("ps", "-q", service).strip()).attrs
        return shown
    finally:
        engine.close()


def keep_to_themselves(compose: Compose) -> None:
    """Check that no container's description contains the services' shared credentials."""
    secret = [compose.secret(name) for name in ("carpool-scaler-token", "basic-auth-password")]
    assert 20 < min(map(len, secret))
    engine = from_env()
    for container in engine.containers.list(all=True, ignore_removed=True):
        shown = json.dumps(container.attrs)
        assert not any(text in shown for text in secret), container.name
    engine.close()


def targets(prometheus: str) -> dict[str, set[str]]:
    """Return the health of Prometheus's targets, by job."""
    found: dict[str, set[str]] = {}
    with contextlib.suppress(requests.RequestException):
        told = requests.get(f"{prometheus}/api/v1/targets", timeout=HANG_S).json()["data"]
        for target in told["activeTargets"]:
            found.setdefault(target["labels"]["job"], set()).add(target["health"])
    return found


def test_compose_file_is_valid_for_compose_v1() -> None:
    """Every profile is valid, and publishes nothing beyond this machine."""
    shown = Compose("/var/run/docker.sock")(*PROFILES, "config")
    for service in ("provider", "scaler", "prometheus", "grafana", "gateway"):
        assert f"\n  {service}:" in shown
    published = re.findall(r"- (\S+:\d+)/tcp|published: (\S+)", shown)
    assert 5 == len(published)
    assert {"127.0.0.1"} == {(a or b).partition(":")[0] for a, b in published}


def test_prometheus_reads_its_configuration(tmp_path: Path) -> None:
    """Prometheus's own checker accepts it, with the files that the provider writes beside it."""
    checked = (require_tool("promtool"), "check", "config", str(tmp_path / "prometheus.yml"))
    shutil.copy(STACK / "prometheus.yml", tmp_path)
    shutil.copy(STACK / "alerts.yml", tmp_path)
    (tmp_path / "credentials").mkdir()
    for name in ("basic-auth-password", "carpool-scaler-token"):
        (tmp_path / "credentials" / name).touch()
    done = subprocess.run(checked, check=False, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr


def test_every_dashboard_metric_is_exported() -> None:
    """Sidecar, provider, scaler or gateway export every metric in a panel."""
    dashboard: dict[str, Any] = json.loads(
        (STACK / "grafana" / "dashboards" / "carpool.json").read_text()
    )
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\b((?:batch|provider|scaler|gateway)_[a-z_]+)", target["expr"])
    }
    sources = [STACK / "provider" / "metrics.py", STACK.parent / "scaler" / "metrics.py"]
    ours = "".join(source.read_text() for source in sources)
    exported = {metric.name for metric in Metrics().collect()}
    exported |= {"batch_queue_requests", "batch_in_flight"}  # there once a batcher is
    named = set(re.findall(r'"((?:provider|scaler)_[a-z_]+)"', ours))
    exported |= named | {f"{name}_total" for name in named} | GATEWAY
    assert set() == shown - exported
    parts = {"batch_size", "provider_replicas", "scaler_instances", "gateway_functions_seconds"}
    assert parts <= shown
