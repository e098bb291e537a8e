"""Environment and address with which the function's process is started."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from carpool.process.ready_notice import VARIABLE
from sidecar.options import Options
from sidecar.runtime.handler_launch import HandlerLaunch, plan_launch

ENV = {"fprocess": "python -m watchdog_plugin", "sidecar_watchdog": "off", "PATH": "/nowhere"}


def planned(*, plain: bool = False, **more: str) -> HandlerLaunch:
    """Return the launch with these variables."""
    env = {**ENV, **more}
    launch = plan_launch(Options.from_env(env), env, plain=plain)
    if launch.scratch:
        Path(launch.scratch).rmdir()
    return launch


def test_handler_sockets_share_temporary_folder() -> None:
    """The handler's socket and the readiness socket share a temporary folder."""
    launch = planned()
    assert (f"unix:{launch.scratch}/handler.sock", 0) == (launch.address, launch.port)
    assert launch.address == launch.env["handler_listen"]
    assert f"{launch.scratch}/ready.sock" == launch.env[VARIABLE] == launch.notices


def test_a_folder_whose_path_is_too_long_for_a_socket_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder whose path is too long for a socket is neither used nor left behind."""
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    launch = planned()
    assert ("", f"127.0.0.1:{launch.port}") == (launch.scratch, launch.address)
    assert [] == list(deep.iterdir())


@pytest.mark.parametrize("plain", [False, True])
def test_handler_uses_loopback_port_without_writable_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, plain: bool
) -> None:
    """Without a writable folder, the handler gets a loopback port and is probed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    launch = planned(plain=plain, NOTIFY_SOCKET="/the/sidecar's/own")
    assert ("", "", "") == (launch.scratch, launch.notices, launch.env[VARIABLE])
    assert (f"127.0.0.1:{launch.port}", True) == (launch.address, launch.port > 0)
    named = "PORT" if plain else "handler_listen"
    assert launch.address.endswith(launch.env[named])
    assert 1234 == planned(plain=plain, sidecar_handler_port="1234").port


def test_plain_server_gets_free_or_configured_port() -> None:
    """A plain server gets its own free port, or the one that the variable names."""
    ports = {planned(plain=True).port for _ in range(5)}
    assert 0 not in ports
    assert "handler_listen" not in planned(plain=True).env
    assert "1234" == planned(plain=True, sidecar_handler_port="1234").env["PORT"]
