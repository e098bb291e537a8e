"""How the function's process is started."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from carpool.process.ready_notice import VARIABLE
from sidecar.options import Options
from sidecar.runtime.handler_launch import Launch, plan_launch

ENV = {"fprocess": "python -m watchdog_plugin", "sidecar_watchdog": "off", "PATH": "/nowhere"}


def planned(*, plain: bool = False, **more: str) -> Launch:
    """What is started with these variables."""
    env = {**ENV, **more}
    launch = plan_launch(Options.from_env(env), env, plain=plain)
    if launch.scratch:
        Path(launch.scratch).rmdir()
    return launch


def test_it_has_a_folder_for_its_sockets() -> None:
    """That of its batches, and that on which it says that it is ready."""
    launch = planned()
    assert (f"unix:{launch.scratch}/handler.sock", 0) == (launch.address, launch.port)
    assert launch.address == launch.env["handler_listen"]
    assert f"{launch.scratch}/ready.sock" == launch.env[VARIABLE] == launch.notices


def test_a_folder_whose_path_is_too_long_for_a_socket_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And not left behind."""
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    launch = planned()
    assert ("", f"127.0.0.1:{launch.port}") == (launch.scratch, launch.address)
    assert [] == list(deep.iterdir())


@pytest.mark.parametrize("plain", [False, True])
def test_it_starts_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, plain: bool
) -> None:
    """As in a container with a read-only root: a port of loopback, and probes alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    launch = planned(plain=plain, NOTIFY_SOCKET="/the/sidecar's/own")
    assert ("", "", "") == (launch.scratch, launch.notices, launch.env[VARIABLE])
    assert (f"127.0.0.1:{launch.port}", True) == (launch.address, launch.port > 0)
    named = "PORT" if plain else "handler_listen"
    assert launch.address.endswith(launch.env[named])
    assert 1234 == planned(plain=plain, sidecar_handler_port="1234").port


def test_a_server_that_knows_nothing_of_carpool_has_a_port() -> None:
    """One of its own, where the variable names none."""
    ports = {planned(plain=True).port for _ in range(5)}
    assert 0 not in ports
    assert "handler_listen" not in planned(plain=True).env
    assert "1234" == planned(plain=True, sidecar_handler_port="1234").env["PORT"]
