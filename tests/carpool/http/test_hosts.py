"""Which Host and Origin headers a server accepts as its own."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, cast

import pytest

from carpool.errors import ConfigError
from carpool.http.hosts import Hosts, check_names
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from carpool.http.exchange import Exchange


class Asked:
    """The part of an exchange that `Hosts` reads."""

    def __init__(self, peer: str, **headers: str) -> None:
        self.peer = peer
        self._headers = {name.encode(): text.encode("latin-1") for name, text in headers.items()}

    def header(self, name: bytes) -> bytes | None:
        """Return one header."""
        return self._headers.get(name)


def refusal(hosts: Hosts, peer: str = "127.0.0.1:1", **headers: str) -> str:
    """Return the reason for refusing a request with these headers; empty if it is accepted."""
    return hosts.refusal(cast("Exchange", Asked(peer, **headers)))


HERE = Hosts(["127.0.0.1:8080"])
LAN = Hosts(["10.0.0.7:8080"], ["carpool.lan"])
ALL = Hosts(["0.0.0.0:8080"])


@pytest.mark.parametrize(
    ("hosts", "host"),
    [
        (HERE, "127.0.0.1:8080"),
        (HERE, "127.0.0.1"),
        (HERE, "127.1.2.3:8080"),
        (HERE, "LocalHost:9999"),
        (HERE, "localhost.:8080"),
        (HERE, "a.localhost"),
        (HERE, "[::1]:8080"),
        (LAN, "10.0.0.7:8080"),
        (LAN, "localhost"),
        (LAN, "Carpool.lan:80"),
        (ALL, "192.0.2.1:8080"),
        (ALL, "[2001:db8::1]:8080"),
        (Hosts(["[::]:8080"]), "192.0.2.1"),
        (Hosts(["node7:8080"]), "node7:8080"),
    ],
)
def test_own_names(hosts: Hosts, host: str) -> None:
    """Loopback, listening and allowed names are accepted, and any IP on a wildcard address."""
    assert "" == refusal(hosts, host=host)
    assert "" == refusal(hosts, host=host, origin=f"http://{host}")


@pytest.mark.parametrize(
    ("hosts", "host"),
    [
        (HERE, "evil.example"),
        (HERE, "evil.example:8080"),
        (HERE, "127.0.0.1.evil.example"),
        (HERE, "localhost.evil.example"),
        (HERE, "evillocalhost"),
        (HERE, "localhost@evil.example"),
        (HERE, "evil.example@localhost"),
        (HERE, "192.0.2.1:8080"),
        (HERE, "0.0.0.0:8080"),
        (HERE, ""),
        (HERE, "["),
        (HERE, "2130706433"),
        (LAN, "10.0.0.8"),
        (LAN, "lan"),
        (ALL, "evil.example"),
        (ALL, "carpool.lan"),
        (Hosts(["unix:/run/a"]), "192.0.2.1"),
        (Hosts(["unix:/run/a", "127.0.0.1:8090"]), "192.0.2.1"),
    ],
)
def test_foreign_names(hosts: Hosts, host: str) -> None:
    """A name that others may point at the address is refused, naming the setting that allows it."""
    said = refusal(hosts, host=host)
    assert host.lower() in said
    assert "--allow-host" in said


@pytest.mark.parametrize(
    ("hosts", "origin", "is_own"),
    [
        (HERE, "http://127.0.0.1:8080", True),
        (HERE, "http://localhost:8080", False),  # a page of another name is another site
        (HERE, "http://127.0.0.1:3000", False),
        (HERE, "http://evil.example", False),
        (HERE, "null", False),
        (HERE, "", False),
        (HERE, "file://", False),
        (HERE, "chrome-extension://127.0.0.1:8080", False),
        (LAN, "https://carpool.lan", True),  # behind a proxy that speaks TLS
        (LAN, "https://evil.carpool.lan", False),
    ],
)
def test_origins(hosts: Hosts, origin: str, *, is_own: bool) -> None:
    """A browser's request must come from a page of this server or of one of its names."""
    said = refusal(hosts, host="127.0.0.1:8080", origin=origin)
    assert is_own == (not said)
    assert is_own or "--allow-host" in said


def test_cached_and_quoted_names_are_bounded() -> None:
    """Cached and quoted names stay small, however long the names are."""
    hosts = Hosts(["127.0.0.1:8080"])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):
            name = f"{number}." + "\xe9" * 60_000
            assert 0 < len(refusal(hosts, host=name)) < 1000
            page = f"http://{name}"
            assert 0 < len(refusal(hosts, host="127.0.0.1:8080", origin=page)) < 1000
        assert tracemalloc.get_traced_memory()[0] - before < 500_000
    finally:
        tracemalloc.stop()


def test_requests_without_host_or_over_unix_socket_are_accepted() -> None:
    """Requests without Host (HTTP/1.0) and all requests over a Unix socket are accepted."""
    assert "" == refusal(HERE)
    assert "" == refusal(HERE, peer="", host="evil.example", origin="http://evil.example")


@pytest.mark.parametrize("name", ["", "http://a", "a:80", "a/b", "*", "*.lan", "a,b", "a@b", "a b"])
def test_invalid_allowed_name_is_refused(name: str) -> None:
    """An allowed name must be a plain host name."""
    problems = Problems()
    check_names("--allow-host", ["fine.lan", "10.0.0.7", name], problems)
    with pytest.raises(ConfigError, match="--allow-host") as raised:
        problems.raise_if_any()
    assert [name] == [problem.value for problem in raised.value.problems]
