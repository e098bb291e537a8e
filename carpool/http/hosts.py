"""Host names of a server, checked so that no foreign web page can use a browser to reach it.

A page can make its visitor's browser send requests to this machine (the request then names the
page's ``Origin``), or point its own host name to this server's address, so that the browser takes
the responses for those of the page's own server (the request then has a foreign ``Host``). Programs
do neither.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from carpool import address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.http.exchange import Exchange
    from carpool.validation.problems import Problems

__all__ = ["Hosts", "check_names"]

_CACHED = 256
_LONGEST = 512  # bytes of a Host and an Origin together: names have 253; none fills the cache
_ALLOW_HOST = "start it with --allow-host {}"
_EVERYWHERE = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - listened at, not by us here


class Hosts:
    """Host names that a server answers to.

    These are loopback names, the address it listens on, and names given by the user. A server that
    listens on all addresses accepts every IP address: a page can only fake a host name of its own.

    Args:
        listen: Addresses it listens on, each ``HOST:PORT`` or ``unix:PATH``.
        named: Further names.
        remedy: What allows another name, which is put in place of ``{}``.
    """

    def __init__(
        self, listen: Iterable[str], named: Iterable[str] = (), remedy: str = _ALLOW_HOST
    ) -> None:
        places = [address.parse(each) for each in listen]
        hosts = {place.host.lower() for place in places if not place.path}
        self._remedy = remedy
        self._named = frozenset(name.lower() for name in named)
        self._known = (self._named | hosts | {"localhost"}) - _EVERYWHERE
        self._everywhere = bool(hosts & _EVERYWHERE)
        self._judge = functools.lru_cache(_CACHED)(self._judged)

    def refusal(self, exchange: Exchange) -> str:
        """Return why a request is refused and how to allow it; empty if it is not refused.

        Browsers cannot reach a Unix socket, so nothing is checked there.
        """
        if not exchange.peer:
            return ""
        host, origin = exchange.header(b"host"), exchange.header(b"origin")
        length = len(host or b"") + len(origin or b"")
        if length > _LONGEST:
            return f"Host and Origin of {length} bytes: expected at most {_LONGEST}"
        return self._judge(host, origin)

    def _judged(self, host: bytes | None, origin: bytes | None) -> str:
        here = (host or b"").decode("latin-1").lower()
        name = _name(here)
        if host is not None and not self._is_ours(name):
            return (
                f"Host {here!r} is not one of this server's names: expected "
                f"{', '.join(sorted(self._known))} or its address; if it is, "
                f"{self._remedy.format(name)}"
            )
        if origin is None:
            return ""
        from_page = origin.decode("latin-1").lower()
        scheme, _, there = from_page.partition("://")
        same = bool(there) and there == here and scheme in ("http", "https")
        if same or _name(there) in self._named:
            return ""
        return (
            f"Origin {from_page!r} is not this server's: expected none, or that of "
            f"{here or 'this server'}; if its pages may use this server, "
            f"{self._remedy.format(_name(there) or 'NAME')}"
        )

    def _is_ours(self, name: str) -> bool:
        if name in self._known or name.endswith(".localhost"):
            return True
        try:
            ip = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._everywhere or ip.is_loopback


def check_names(option: str, names: Iterable[str], problems: Problems) -> None:
    """Report names that are not host names; scheme, port and path are not allowed."""
    for name in names:
        if not name or _name(name) != name.lower() or set(name) & set("/ @?#,*"):
            expected = "a host's name or address without scheme and port, such as carpool.lan"
            problems.add(option, name, expected)


def _name(host: str) -> str:
    """Return the name or address in ``HOST[:PORT]``; empty if it is invalid."""
    if "@" in host:
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""
