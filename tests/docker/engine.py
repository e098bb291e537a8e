"""A Docker Engine for tests: the user's own if it answers, otherwise one started for the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docker.client import from_env
from docker.errors import DockerException, ImageNotFound
from testcontainers.core.config import testcontainers_config

from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Engine", "answers", "running"]

# Kept between runs, because base images take minutes to make; remove the folder to start afresh.
ROOT = Path(os.environ.get("CARPOOL_TEST_DOCKER", f"{tempfile.gettempdir()}/carpool-test-docker"))


def _host() -> str:
    return os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")


def _listens(host: str) -> bool:
    """Return whether a socket on this machine accepts connections; other hosts are not tried."""
    scheme, _, path = host.partition("://")
    if scheme != "unix":
        return True
    with socket.socket(socket.AF_UNIX) as tried:
        return tried.connect_ex(path) == 0


def answers() -> bool:
    """Return whether the engine that the environment names answers."""
    if not _listens(_host()):  # the SDK would leave a socket open, each time
        return False
    try:
        client = from_env(timeout=30)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except DockerException:
        return False
    finally:
        client.close()


def _without_reaper_if_missing() -> None:
    """Disable Testcontainers' helper, which cleans up killed runs, if its image is missing."""
    client = from_env()
    with contextlib.closing(client):
        try:
            client.images.get(testcontainers_config.ryuk_image)
        except ImageNotFound:
            testcontainers_config.ryuk_disabled = True


class Engine:
    """An engine that answers.

    Attributes:
        socket: Its address without the scheme.
        restart: Restarts it; None for an engine that the tests have not started.
    """

    def __init__(self, host: str, restart: Callable[[], None] | None = None) -> None:
        self.socket = host.removeprefix("unix://")
        self.restart = restart


@contextlib.contextmanager
def running() -> Iterator[Engine]:
    """Yield an engine, whose address is in DOCKER_HOST until the end."""
    if answers():
        _without_reaper_if_missing()
        yield Engine(_host())
        return
    dockerd = require_tool("dockerd")
    if os.geteuid() != 0:
        pytest.skip("no Docker Engine answers, and only root can start one")
    own = _Own(dockerd)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", own.host)
        try:
            own.start()
            _without_reaper_if_missing()
            yield Engine(own.host, own.restart)
        finally:
            own.end()


class _Own:
    """A dockerd that the tests have started."""

    def __init__(self, dockerd: str) -> None:
        self._run = Path(tempfile.mkdtemp(prefix="carpool-dockerd-"))
        self.host = f"unix://{self._run}/docker.sock"
        self._data = ROOT / "data"
        self._argv = (
            dockerd,
            f"--data-root={self._data}",
            f"--exec-root={self._run}/exec",
            f"--pidfile={self._run}/pid",
            f"--host={self.host}",
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        ROOT.mkdir(parents=True, exist_ok=True)
        with (ROOT / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdout=log, stderr=log)
        wait_until(answers, what=f"dockerd ready (see {ROOT}/dockerd.log)")

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def end(self) -> None:
        self.stop()
        for mounted in (self._run / "exec" / "netns" / "default", self._data):  # it leaves these
            subprocess.run(("umount", mounted), check=False, capture_output=True)
        shutil.rmtree(self._run, ignore_errors=True)
