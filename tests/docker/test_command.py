"""``carpool provider docker``: its start, end and clearing, and what prevents its start."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

import pytest
import requests
from docker.client import from_env

from carpool.basic_auth import credentials_for
from tests.docker.command import Command
from tests.faas_stack.rig import IMAGE
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path


def test_no_engine(tmp_path: Path) -> None:
    """Without an engine, the message says so, and how to fix it."""
    done = Command(tmp_path).run(DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert 1 == done.returncode
    assert "no Docker Engine answers" in done.stderr
    assert "start it, or set DOCKER_HOST" in done.stderr


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.usefixtures("docker_images")
def test_port_in_use_is_named(tmp_path: Path) -> None:
    """The message names a port in use; nothing is started or changed."""
    command = Command(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command.run("--port", str(taken.getsockname()[1]))
    assert 2 == done.returncode
    assert "expected a free address; " in done.stderr
    assert "choose another with --port" in done.stderr
    command.clear()


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.usefixtures("docker_images")
def test_functions_stay_until_they_are_cleared(tmp_path: Path) -> None:
    """SIGTERM ends the provider but not its functions; --clear removes them and the network."""
    command = Command(tmp_path)
    engine = from_env()
    try:
        with command.serving() as (process, url):
            document = {"service": "fn", "image": IMAGE}
            answer = requests.post(
                f"{url}/system/functions", json=document, auth=credentials_for(url), timeout=HANG_S
            )
            assert 202 == answer.status_code
            assert 200 == requests.get(f"{url}/function/fn", timeout=HANG_S).status_code
            assert "one runs on it already" in command.run("--clear").stderr
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(HANG_S)
        mine = {"filters": {"label": f"carpool.stack={command.stack}"}}
        assert 1 == len(engine.containers.list(ignore_removed=True, **mine))
        command.clear()
        assert [] == engine.containers.list(all=True, ignore_removed=True, **mine)
        assert [] == engine.networks.list(names=[command.stack])
        with command.serving() as (_, url):
            listed = requests.get(
                f"{url}/system/functions", auth=credentials_for(url), timeout=HANG_S
            )
            assert [] == listed.json()
        command.clear()
    finally:
        engine.close()
