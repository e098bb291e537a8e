"""Free ports outside the system's ephemeral range."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from carpool import free_port as module
from carpool.errors import ConfigError
from carpool.free_port import free_port, is_free

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("given", "lowest", "highest"),
    [("32768\t60999", 16384, 32767), ("1024\t65535", 1024, 65535), ("1\t65535", 1, 65535)],
)
def test_free_port_can_be_listened_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, lowest: int, highest: int
) -> None:
    """The port is free, and below the ephemeral range if there are ports below it."""
    range_file = tmp_path / "ip_local_port_range"
    range_file.write_text(given)
    monkeypatch.setattr(module, "_RANGE", range_file)
    port = free_port()
    assert lowest <= port <= highest
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)


def test_no_free_port_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends with an error if all candidate ports are taken."""
    range_file = tmp_path / "ip_local_port_range"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        range_file.write_text(f"{port + 1} 65535")
        monkeypatch.setattr(module, "_RANGE", range_file)
        monkeypatch.setattr(module, "_LOWEST", port)
        with pytest.raises(ConfigError, match="expected one that is free"):
            free_port()
