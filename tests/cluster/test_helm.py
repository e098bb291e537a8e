"""The chart installed by helm, up to the first response, with no other accounts than its own."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
import yaml

from scripts.manifests import CHART, MANIFESTS
from tests.charts.objects import objects
from tests.cluster import classify
from tests.cluster.api import Refused
from tests.cluster.deployment import ready_pods
from tests.cluster.function_image import build_part
from tests.docs.snippets import take_one
from tests.ports import free_port
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(20 * HANG_S)]
PARTS = ("provider", "scaler")
INSTALL = take_one("docs/kubernetes.md", "namespaces.yaml$", within="helm install")
FIRST = take_one("docs/kubernetes.md", "^faas-cli deploy")
QUERY = take_one("docs/kubernetes.md", "port-forward svc/carpool-scaler")
UPGRADE = take_one("docs/kubernetes.md", "helm upgrade .* --wait$")
NODE_PORT = 31112  # the chart's own
SCALED = {
    "com.carpool.slo": "60s",  # met however slow it is here
    "com.carpool.batch.max": "1",  # no call waits for another one
    "com.carpool.cpu": "0.2",
    "com.carpool.scale.policy": "infless",
}


class Release:
    """A release of the chart in new namespaces.

    Args:
        cluster: cluster whose node has all images.
        folder: folder for the files of faas-cli.

    Attributes:
        home: namespace of Carpool itself.
        functions: namespace of functions.
        url: URL of the gateway at the node's port.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._helm, self._cli = require_tool("helm"), require_tool("faas-cli")
        require_tool("kubectl")
        suffix = secrets.token_hex(4)
        self.home, self.functions = f"home-{suffix}", f"functions-{suffix}"
        text = (MANIFESTS.parent / "namespaces.yaml").read_text()
        renamed = text.replace("openfaas-fn", self.functions).replace(
            "openfaas\n", f"{self.home}\n"
        )
        for each in objects(renamed):
            cluster.make("/api/v1/namespaces", each)
        (folder / "namespaces.yaml").write_text(renamed)
        node = cluster.api.get("/api/v1/nodes")["items"][0]
        (address,) = (
            each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"
        )
        self.url = f"http://{address}:{NODE_PORT}"
        self._env = {
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENFAAS_CONFIG": str(folder / "faas"),
            "OPENFAAS_URL": self.url,
            "KUBECONFIG": str(cluster.kubeconfig),
            "NO_PROXY": "*",
        }

    def helm(self, verb: str, *words: str) -> str:
        """Run a helm command on the release, and wait until it is done."""
        wait = ("--wait", "--timeout", "10m")
        return self._run(self._helm, verb, "carpool", *words, "--namespace", self.home, *wait)

    def install(self, values: str) -> None:
        """Install the release and log in with the page's commands, under its own names."""
        port = str(free_port())
        own = INSTALL.replace("charts/manifests/namespaces.yaml", "$HOME/namespaces.yaml")
        own = own.replace("openfaas", self.home).replace("8080:8080", f"{port}:8080")
        own = own.replace(" --wait\n", f" --wait --timeout 10m --set {values}\n")
        own = own.replace("login", f"login --gateway http://127.0.0.1:{port}")
        self._with_port(port, f"cd {CHART.parents[1]}\n{own}")

    def first_answer(self) -> str:
        """Deploy the function and return its first answer, with the page's commands."""
        own = FIRST.replace("http://127.0.0.1:8080", self.url)
        return self._run("bash", "-euc", f"cd $HOME/function\n{own}")

    def upgrade(self) -> None:
        """Upgrade the release with the page's commands, in the checkout; its values stay."""
        own = UPGRADE.replace("openfaas", self.home)
        self._run("bash", "-euc", f"cd {CHART.parents[1]}\n{own}")

    def faas_cli(self, *words: str, given: str = "") -> str:
        """Run faas-cli, and return its output."""
        return self._run(self._cli, *words, "--gateway", self.url, given=given)

    def wait_for_gateway(self) -> None:
        """Wait until the node's port leads to the gateway, which it does soon after it is ready."""

        def reachable() -> bool:
            try:
                return requests.get(f"{self.url}/healthz", timeout=HANG_S).ok
            except requests.RequestException:
                return False

        wait_until(reachable, what=f"the gateway at {self.url}")

    def wait_for_answer(self, name: str) -> None:
        """Wait until a function returns the model's result."""
        url = f"{self.url}/function/{name}/v2/models/{name}/infer"
        document, last = classify.request(classify.ROW), [""]

        def answered() -> bool:
            try:
                got = requests.post(url, json=document, timeout=HANG_S)
            except requests.RequestException as error:
                last[0] = repr(error)
                return False
            last[0] = f"{got.status_code} {got.text}"
            return got.ok

        try:
            wait_until(answered, 3 * HANG_S, what=f"an answer of {name}")
        except AssertionError as error:
            error.add_note(f"the last was {last[0]}{self._said()}")
            raise
        found = json.loads(last[0].partition(" ")[2])["outputs"][0]["data"]
        assert classify.expected(classify.ROW) == pytest.approx(found, rel=1e-5)

    def ask_scaler(self, function: str) -> str:
        """Return the output of the page's commands, run with a free port once it is forwarded."""
        port = str(free_port())
        own = QUERY.replace("openfaas", self.home).replace("8090:", f"{port}:")
        own = own.replace("--token-file", f"--url http://127.0.0.1:{port} --token-file")
        return self._with_port(port, f"cd $HOME\n{own.replace('classify', function)}")

    def _with_port(self, port: str, text: str) -> str:
        """Run commands that go on once the port is forwarded, which ends with them."""
        forwarded = f"&\nuntil (: >/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do kill -0 %1; done\n"
        own = text.replace("&\n", forwarded)
        return self._run("bash", "-euo", "pipefail", "-c", f"trap 'kill %1' EXIT\n{own}")

    def password(self) -> str:
        """Return the password that helm has generated."""
        path = f"/api/v1/namespaces/{self.home}/secrets/basic-auth"
        data = self._cluster.api.get(path)["data"]["basic-auth-password"]
        return base64.b64decode(data).decode()

    def _run(self, *argv: str, given: str = "") -> str:
        done = subprocess.run(
            argv, input=given, env=self._env, capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, f"{' '.join(argv)}: {done.stdout}{done.stderr}{self._said()}"
        return done.stdout

    def _said(self) -> str:
        """Return the conditions and last log lines of all pods."""
        api, said = self._cluster.api, list[str]()
        for space in (self.home, self.functions):
            path = f"/api/v1/namespaces/{space}/pods"
            for pod in api.get(path)["items"]:
                name = pod["metadata"]["name"]
                said.append(f"\n{name}: {pod['status'].get('conditions')}")
                with suppress(Refused):  # it has not begun
                    said.append(api.text(f"{path}/{name}/log?tailLines=20"))
        return "\n".join(said)


@pytest.fixture
def release(
    cluster: Cluster,
    classify_image: None,  # noqa: ARG001 - the node must have it
    tmp_path: Path,
) -> Iterator[Release]:
    """A release ready for installation, with working Services and all images on the node."""
    made = Release(cluster, tmp_path)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for part in PARTS:
        cluster.load_image(build_part(tmp_path, part, f"carpool/{part}:{version}"))
    with cluster.services():
        yield made
        made.helm("uninstall")


def test_documented_installation_reaches_first_response(
    cluster: Cluster, release: Release, figure: Callable[[str], None], tmp_path: Path
) -> None:
    """The steps of docs/kubernetes.md work, as does a function that the scaler scales."""
    began = time.monotonic()
    places = f"functionNamespace={release.functions},exposeServices=true"
    release.install(places)
    installed_s = time.monotonic() - began
    accounts = [pod["spec"]["serviceAccountName"] for pod in ready_pods(cluster, release.home)]
    assert ["carpool-scaler", "carpool-scaler", "gateway", "gateway"] == sorted(accounts)

    release.wait_for_gateway()
    release.faas_cli("login", "--password-stdin", given=release.password())
    began = time.monotonic()
    classify.write_stack(tmp_path / "function")
    assert '"outputs"' in release.first_answer()
    first_s = time.monotonic() - began

    labels = [word for label in SCALED.items() for word in ("--label", "=".join(label))]
    release.faas_cli("deploy", "--image", classify.IMAGE, "--name", "scaled", *labels)
    release.wait_for_answer("scaled")
    assert "scaled--" in release.faas_cli("list")
    assert "scaled" in release.ask_scaler("scaled")

    release.helm("upgrade", str(CHART), "--set", f"{places},gpu.shares=2")
    release.upgrade()
    release.wait_for_answer("classify")
    release.faas_cli("remove", "scaled")
    wait_until(lambda: "scaled" not in release.faas_cli("list"), what="the end of its instances")
    release.faas_cli("remove", "classify")
    figure(
        f"helm install --wait of two providers and two scalers: {installed_s:.1f} s; from deploy "
        f"to the first answer {first_s:.1f} s"
    )
