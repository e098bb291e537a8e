"""Carpool's images alone, and models on the ONNX templates.

Where of-watchdog's image cannot be pulled and no ``fwatchdog`` is on the PATH, a substitute takes
its place (``scripts/base_images.py`` warns of it); everything else is what users run.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from docker.client import from_env
from testcontainers.core.container import DockerContainer

from tests.docker.functions import build_function
from tests.docker.images import ROOT, TARGETS, build_image
from tests.docker.stage import DockerStage
from tests.faas_stack.rig import Rig, story
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.slow]
STAGE = DockerStage()
TEMPLATES = ROOT / "templates"
LABELS = {"com.carpool.slo": "2m", "com.carpool.batch.max": "16"}
NET, GPU = "carpool-test-net:latest", "carpool-test-gpu:latest"
INPUTS = [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [5.1, 3.5, 1.4, 0.2]}]
BASE = "python:3.11-slim-bookworm"
# What each may add to Python's own image; NumPy is 70 of the scaler's, and bytecode of the standard
# library is 16 of each where Python's image has none.
LARGEST_MB = {"sidecar": 56, "scaler": 146, "provider": 66, "function": 81}
COMPILED = """
import asyncio, os, sidecar
print(*(os.path.exists(module.__cached__) for module in (asyncio, sidecar)))
"""


def model_function(folder: Path, lang: str) -> None:
    """Copy a template's skeleton with its example as the model."""
    shutil.copytree(TEMPLATES / lang / "function", folder / "function")
    shutil.copy(folder / "function" / "example.onnx", folder / "function" / "model.onnx")
    # Another one each time: a builder that has seen the same folder runs no tests again.
    (folder / "function" / "mark").write_text(secrets.token_hex(8))


def alone(image: str, **options: Any) -> Any:
    """Return a container of an image without a provider: read-only, without privileges."""
    held: dict[str, Any] = {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
    }
    return DockerContainer(image, **options, **held).with_tmpfs_mount("/tmp")


@pytest.mark.usefixtures("docker_images")
@pytest.mark.parametrize("target", ["sidecar", "scaler", "function"])
def test_image_runs_without_root_on_read_only_file_system(target: str, echo: str) -> None:
    """As an ordinary user on a read-only root, it becomes healthy and ends without an error."""
    image = echo if target == "function" else f"carpool/{target}"
    options: dict[str, dict[str, Any]] = {
        "sidecar": {"env": {"sidecar_upstreams": "127.0.0.1:9"}},
        "scaler": {"command": "--gateway http://127.0.0.1:9 --listen 127.0.0.1:8090 --no-auth"},
        "function": {},
    }
    with alone(image, **options[target]) as started:
        container = started.get_wrapped_container()
        # What the engine runs for its health check, and it would begin with after 10 s.
        _, *check = container.attrs["Config"]["Healthcheck"]["Test"]
        wait_until(lambda: container.exec_run(check).exit_code == 0, what=f"{target} healthy")
        assert 1 == container.exec_run(["touch", "/home/app/file"]).exit_code
        assert b"uid=1000(app)" in container.exec_run(["id"]).output
        container.stop(timeout=60)
        container.reload()
        assert 0 == container.attrs["State"]["ExitCode"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.usefixtures("docker_images")
def test_images_are_small(target: str) -> None:
    """An image adds only its packages to Python's, without caches and compilers."""
    engine = from_env()
    size, base = (engine.images.get(name).attrs["Size"] for name in (f"carpool/{target}", BASE))
    engine.close()
    assert LARGEST_MB[target] > (size - base) / 1e6


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.usefixtures("docker_images")
def test_images_start_without_compiling(target: str) -> None:
    """The bytecode of the standard library and Carpool is in the image, read-only."""
    with alone(f"carpool/{target}", entrypoint="python", command=["-c", COMPILED]) as looking:
        assert 0 == looking.wait()
        assert "True True" == looking.get_logs()[0].decode().strip()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.usefixtures("docker_images")
def test_images_have_labels_and_no_secrets(target: str) -> None:
    """Images have labels, a user and a health check; no cache, source tree or build argument."""
    engine = from_env()
    shown = engine.images.get(f"carpool/{target}").attrs
    history = " ".join(
        step["CreatedBy"] for step in engine.images.get(f"carpool/{target}").history()
    )
    engine.close()
    config = shown["Config"]
    assert (f"carpool/{target}", "MIT", "app") == (
        *(config["Labels"][f"org.opencontainers.image.{key}"] for key in ("title", "licenses")),
        config["User"],
    )
    assert "CMD" == config["Healthcheck"]["Test"][0]
    assert "/wheels" not in history
    with alone(f"carpool/{target}", entrypoint="ls", command="-A / /home/app") as listing:
        assert 0 == listing.wait()
        listed = listing.get_logs()[0].decode().split()
    assert set() == {"src", "wheels", "constraints.txt", ".cache", "tests"} & set(listed)


def test_onnx_template_serves_model_without_code(docker_images: None, tmp_path: Path) -> None:  # noqa: ARG001
    """The build tests a model in the ONNX template, and the image serves it."""
    model_function(tmp_path, "python3-onnx-batch")
    printed = build_function(tmp_path, "python3-onnx-batch", NET)
    assert re.search(r"Ran \d+ tests?", printed)

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("net", image=NET, labels=LABELS, readOnlyRootFilesystem=True)
        path = "/function/net/v2/models/net/infer"
        answer = await rig.call("POST", path, {"inputs": INPUTS})
        assert (200, [1, 3]) == (answer.status, json.loads(answer.body)["outputs"][0]["shape"])

    (tmp_path / "play").mkdir()
    play(tmp_path / "play")


def test_gpu_template_serves_model_on_cpu(docker_images: None, tmp_path: Path) -> None:  # noqa: ARG001
    """The GPU template builds, and serves on the CPU where there is no GPU or CUDA."""
    options = {"dockerfile_path": "docker/Dockerfile", "target": "function-gpu"}
    build_image("carpool/function-gpu:latest", ROOT, **options)
    model_function(tmp_path, "python3-onnx-batch-gpu")
    assert re.search(r"Ran \d+ tests?", build_function(tmp_path, "python3-onnx-batch-gpu", GPU))

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("net", image=GPU, labels=LABELS)
        answer = await rig.call("POST", "/function/net/v2/models/net/infer", {"inputs": INPUTS})
        assert (200, [1, 3]) == (answer.status, json.loads(answer.body)["outputs"][0]["shape"])

    (tmp_path / "play").mkdir()
    play(tmp_path / "play")
