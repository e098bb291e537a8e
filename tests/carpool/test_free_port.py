"""Free ports, whatever the system gives away by itself."""

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
def test_it_can_be_listened_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, lowest: int, highest: int
) -> None:
    """Below those that the system gives away, if there are any below."""
    range_file = tmp_path / "ip_local_port_range"
    range_file.write_text(given)
    monkeypatch.setattr(module, "_RANGE", range_file)
    port = free_port()
    assert lowest <= port <= highest
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)


def test_without_a_free_one_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not look for ever: all that it may choose from are taken."""
    range_file = tmp_path / "ip_local_port_range"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        range_file.write_text(f"{port + 1} 65535")
        monkeypatch.setattr(module, "_RANGE", range_file)
        monkeypatch.setattr(module, "_LOWEST", port)
        with pytest.raises(ConfigError, match="expected one that is free"):
            free_port()
