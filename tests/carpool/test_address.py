"""Addresses are read and written in two forms, and no others."""

from __future__ import annotations

import pytest

from carpool import address
from carpool.errors import ConfigError


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:80", "unix:/a/b", "localhost:8080"])
def test_addresses_are_read_and_written(text: str) -> None:
    """An address prints as it was given."""
    assert text == str(address.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        *("", "80", "host", "host:", "host:x", "host:99999", "unix:"),
        *("../../x:80", "a/b:80", "https://host:443", "two names:80", "a..b:80", "\udcff:80"),
        *(f"{'x' * 64}:80", f"host:{'9' * 5000}"),
    ],
)
def test_bad_addresses_are_named(text: str) -> None:
    """The value and the two forms that are understood."""
    with pytest.raises(ConfigError, match="HOST:PORT"):
        address.parse(text)


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:80", "localhost:80", "unix:/s"])
def test_loopback_and_unix_sockets_are_of_this_machine(text: str) -> None:
    """No other user can connect there."""
    assert address.parse(text).is_local


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"])
def test_others_may_come_in_anywhere_else(text: str) -> None:
    """An address of all interfaces is not this machine's alone."""
    assert not address.parse(text).is_local
