"""Socket addresses as strings: ``127.0.0.1:8080``, ``[::1]:8080`` or ``unix:/run/x.sock``."""

from __future__ import annotations

from typing import NamedTuple

from carpool.errors import ConfigError, Problem

__all__ = ["Address", "parse"]

_LARGEST_PORT = 65535
_PORT_DIGITS = 5


class Address(NamedTuple):
    """A TCP host and port, or the path of a Unix socket (then ``host`` is empty)."""

    host: str
    port: int
    path: str

    @property
    def is_local(self) -> bool:
        """Whether the address can be reached from this machine only."""
        return bool(self.path) or self.host in ("127.0.0.1", "::1", "localhost")

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str, name: str = "address") -> Address:
    """Return the address in ``text``; a leading ``http://`` is allowed.

    Args:
        text: Address as given.
        name: What to call it in errors.

    Raises:
        ConfigError: neither ``HOST:PORT`` nor ``unix:PATH``.
    """
    if text.startswith("unix:") and len(text) > len("unix:"):
        return Address("", 0, text.removeprefix("unix:"))
    host, colon, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and _is_port(port) and _is_host(host)):
        problem = Problem(name, text, "HOST:PORT, as in 127.0.0.1:8080, or unix:/path")
        raise ConfigError([problem])
    return Address(host, int(port), "")


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= _PORT_DIGITS and int(text) <= _LARGEST_PORT


def _is_host(text: str) -> bool:
    """Return whether ``text`` can be passed to the system's resolver, which encodes it as IDNA."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return not any(character in "/\\" or character.isspace() for character in text)
