"""The address that a sidecar announces."""

from __future__ import annotations

import pytest

from sidecar.runtime.scaler_client.announcer import own_address


@pytest.mark.parametrize(
    ("listen", "announce", "scaler", "said"),
    [
        ("0.0.0.0:8080", "fn.example:80", "127.0.0.1:9", "fn.example:80"),
        ("unix:/run/s", "", "127.0.0.1:9", "unix:/run/s"),
        ("0.0.0.0:8080", "", "127.0.0.1:8082", "127.0.0.1:8080"),
        ("0.0.0.0:8080", "", "unix:/run/scaler", "127.0.0.1:8080"),
    ],
    ids=["as configured", "a socket", "towards the scaler", "a scaler on this machine"],
)
def test_announced_address_is_configured_or_seen_by_scaler(
    listen: str, announce: str, scaler: str, said: str
) -> None:
    """The announced address is the configured one, or the one that the scaler sees."""
    assert said == own_address(listen, announce, scaler)
