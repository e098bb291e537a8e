"""Addresses have exactly two forms, which are read and written."""

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
def test_bad_address_error_shows_valid_forms(text: str) -> None:
    """The error for a bad address shows the valid forms."""
    with pytest.raises(ConfigError, match="HOST:PORT"):
        address.parse(text)


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:80", "localhost:80", "unix:/s"])
def test_loopback_and_unix_sockets_are_local(text: str) -> None:
    """Loopback addresses and Unix sockets are local, as no other machine can connect to them."""
    assert address.parse(text).is_local


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"])
def test_addresses_of_other_interfaces_are_not_local(text: str) -> None:
    """Addresses of other interfaces, or of all interfaces, are not local."""
    assert not address.parse(text).is_local
