"""Follow docs/docker.md from a checkout to the first function and to the end of the stack."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import requests
import yaml
from docker.client import from_env

from tests.docker.compose import answers, replicas
from tests.docker.images import ROOT
from tests.docs.snippets import take_one
from tests.faas_stack.rig import IMAGE
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docker.compose import Compose

pytestmark = [pytest.mark.docker, pytest.mark.slow]
PAGE = "docs/docker.md"
START = take_one(PAGE, "^make images$")
LOGIN = take_one(PAGE, "basic-auth-password")
FUNCTION = take_one(PAGE, "^cp -r")
SETTINGS = take_one(PAGE, "^functions:")
CALL = take_one(PAGE, "^curl")
TOKEN = take_one(PAGE, "carpool-scaler-token$")
MORE = take_one(PAGE, "^services:")
GATEWAY = take_one(PAGE, "--profile gateway")
END = take_one(PAGE, "stop provider$")
BASES = take_one(PAGE, "^make base-images$")
TAGGED = take_one("docs/kubernetes.md", "^make images$")
WITH_GRPC = take_one("docs/grpc.md", "^FROM carpool/function$")
# Compose v1 is a program of its own, and the network of a build may lead nowhere from here.
DOCKER = """\
#!/bin/sh
case $1 in
compose) shift; exec docker-compose "$@" ;;
build) shift; exec {docker} build --network=host "$@" ;;
esac
exec {docker} "$@"
"""


class _Reader:
    """Runs the commands of the page, in a checkout and in a folder of functions.

    Args:
        compose: The stack, whose name and ports differ from those on the page.
        home: An empty folder, in which the checkout is ``carpool``.
    """

    def __init__(self, compose: Compose, home: Path) -> None:
        self.checkout, self.folder = home / "carpool", home / "functions"
        _copy_checkout(self.checkout)
        self.folder.mkdir()
        compose.files = [self.checkout / "faas_stack" / "compose.yaml"]
        program = home / "bin" / "docker"
        program.parent.mkdir()
        program.write_text(DOCKER.format(docker=require_tool("docker")))
        program.chmod(0o755)
        self._socket = compose.env["DOCKER_SOCKET"]
        self.env = os.environ | compose.env | {"HOME": str(home)}
        self.env |= {"COMPOSE_PROJECT_NAME": compose.name}
        self.env.pop("CI", None)  # with it, faas-cli keeps a login in the current folder
        self.env["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"

    def run(self, text: str, folder: Path | None = None) -> str:
        """Run commands, by default in the checkout, which must end with 0; return their output."""
        own = text.replace("/var/run/docker.sock", self._socket)
        own = own.replace("http://127.0.0.1:8080", self.env.get("OPENFAAS_URL", ""))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", own],
            cwd=folder or self.checkout,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=8 * HANG_S,
            check=False,
        )
        assert 0 == done.returncode, f"{own}: {done.stdout}{done.stderr}"
        return done.stdout


def _copy_checkout(folder: Path) -> None:
    """Copy this source tree with uncommitted files, and without ignored ones."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


@pytest.fixture
def reader(compose: Compose, tmp_path: Path) -> _Reader:
    """Return a reader who has only the checkout."""
    return _Reader(compose, tmp_path)


def test_page_commands_work_from_build_to_stop(compose: Compose, reader: _Reader) -> None:
    """Build images, start the stack, log in, serve a model, use the scaler, stop the stack."""
    require_tool("faas-cli")
    del reader.env["DOCKER_GID"]  # the page writes it to a file
    assert "carpool/provider" in reader.run(START)
    reader.env["OPENFAAS_URL"] = compose.provider()[0]
    assert "credentials saved" in reader.run(LOGIN)
    _serve(reader)
    _ask_scaler(compose, reader)
    _set_options(compose, reader)
    reader.run(END)
    assert "" == compose("ps", "-q")
    with_label = {"label": f"carpool.stack={compose.name}"}
    engine = from_env()
    left = engine.containers.list(all=True, filters=with_label)
    engine.close()
    assert [] == left


def _serve(reader: _Reader) -> None:
    """Make the first function; faas-cli writes the file of the page, except for the labels."""
    template = reader.checkout / "templates" / "python3-onnx-batch"
    shutil.copy(template / "function" / "example.onnx", reader.folder / "my-model.onnx")
    prepared, up = re.split(r"^(?=faas-cli up)", FUNCTION, flags=re.MULTILINE)
    reader.run(prepared, reader.folder)
    stack = yaml.safe_load((reader.folder / "stack.yaml").read_text())
    shown = yaml.safe_load(SETTINGS)["functions"]
    labels = {"labels": shown["classify"]["labels"]}
    assert shown["classify"] == stack["functions"]["classify"] | labels
    (reader.folder / "stack.yaml").write_text(yaml.safe_dump(stack | {"functions": shown}))
    reader.run(up, reader.folder)
    answer = json.loads(reader.run(CALL, reader.folder))
    assert [1, 3] == answer["outputs"][0]["shape"]
    assert "classify" in reader.run("faas-cli list")


def _ask_scaler(compose: Compose, reader: _Reader) -> None:
    """Check that the scaler's page requires the token."""
    url = compose.url("scaler", 8090)
    wait_until(lambda: answers(f"{url}/healthz"), what="the scaler")
    asked = f"{url}/v1/functions"
    assert 401 == requests.get(asked, timeout=HANG_S).status_code
    given = {"authorization": f"Bearer {reader.run(TOKEN).strip()}"}
    assert 200 == requests.get(asked, headers=given, timeout=HANG_S).status_code


def _set_options(compose: Compose, reader: _Reader) -> None:
    """Start a scaler with the file's options, by the command in the file's first line."""
    (reader.checkout / "more.yaml").write_text(MORE)
    reader.run(MORE.splitlines()[0].partition("used with: ")[2])
    (options,) = yaml.safe_load(MORE)["services"].values()
    engine = from_env()
    container = engine.containers.get(compose("ps", "-q", "scaler").strip())
    engine.close()
    assert options["command"] == container.attrs["Config"]["Cmd"]
    wait_until(lambda: answers(f"{compose.url('scaler', 8090)}/healthz"), what="the scaler")


def test_other_image_commands_work(reader: _Reader) -> None:
    """Base images can be built locally, images get the chart's version, and one gets gRPC."""
    for commands in (BASES, TAGGED):
        assert "carpool/provider" in reader.run(commands)
    version = yaml.safe_load((ROOT / "charts" / "carpool" / "Chart.yaml").read_text())["appVersion"]
    for part in ("provider", "scaler"):
        reader.run(f"docker image inspect carpool/{part}:{version}")
    (reader.folder / "Dockerfile").write_text(WITH_GRPC)
    reader.run("docker build --tag with-grpc . >&2", reader.folder)
    code = "import google.protobuf, grpc, sidecar; print(grpc.__version__)"
    assert reader.run(f"docker run --rm --entrypoint python with-grpc -c '{code}'")


def test_gateway_profile_has_provider_credentials(compose: Compose, reader: _Reader) -> None:
    """The profile starts the gateway, which has the provider's credentials."""
    require_tool("gateway")
    reader.run(GATEWAY)
    url, session = compose.provider()
    gateway = compose.url("gateway", 8080)
    wait_until(lambda: answers(f"{gateway}/healthz"), what="the gateway")
    assert 401 == requests.get(f"{gateway}/system/functions", timeout=HANG_S).status_code
    deployment = {"service": "fn", "image": IMAGE, "labels": {"com.carpool.scale.min": "0"}}
    answer = session.post(f"{gateway}/system/functions", json=deployment, timeout=HANG_S)
    assert 202 == answer.status_code
    assert "/path" == requests.get(f"{gateway}/function/fn/path", timeout=HANG_S).json()["target"]
    assert {"fn": 1} == replicas(gateway, session) == replicas(url, session)
