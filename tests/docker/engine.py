"""A Docker Engine for tests: the user's own if it answers, else one started here and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docker.client import from_env
from docker.errors import DockerException

from tests.tools import require_tool
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["answers", "running"]

# Kept between runs, because base images take minutes to make; remove the folder to start afresh.
ROOT = Path(os.environ.get("CARPOOL_TEST_DOCKER", f"{tempfile.gettempdir()}/carpool-test-docker"))


def answers() -> bool:
    """Whether the engine that the environment names is there."""
    try:
        client = from_env(timeout=5)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except DockerException:
        return False
    finally:
        client.close()


@contextlib.contextmanager
def running() -> Iterator[str]:
    """An engine that answers; its address is in DOCKER_HOST meanwhile."""
    if answers():
        yield os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        return
    dockerd = require_tool("dockerd")
    if os.geteuid() != 0:
        pytest.skip("no Docker Engine answers, and only root can start one")
    with _started(dockerd) as host, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        wait_until(answers, 60, f"dockerd ready (see {ROOT}/dockerd.log)")
        yield host


@contextlib.contextmanager
def _started(dockerd: str) -> Iterator[str]:
    run = Path(tempfile.mkdtemp(prefix="carpool-dockerd-"))
    ROOT.mkdir(parents=True, exist_ok=True)
    host = f"unix://{run}/docker.sock"
    folders = (f"--data-root={ROOT}/data", f"--exec-root={run}/exec", f"--pidfile={run}/pid")
    with (ROOT / "dockerd.log").open("ab") as log:
        engine = subprocess.Popen((dockerd, *folders, f"--host={host}"), stdout=log, stderr=log)
    try:
        yield host
    finally:
        engine.terminate()
        try:
            engine.wait(30)
        except subprocess.TimeoutExpired:
            engine.kill()
            engine.wait()
        shutil.rmtree(run, ignore_errors=True)
