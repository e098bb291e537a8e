"""Access to a provider's functions: the options of every command that starts a provider.

By default, a provider requires credentials that it has created and stored where Carpool's commands
find them (`carpool.basic_auth`), and accepts only its own host names.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import basic_auth
from carpool.address import parse
from carpool.errors import ConfigError, Problem
from carpool.http.hosts import check_names
from carpool.validation.problems import Problems
from faas_stack.provider.basic_auth_check import BasicAuth

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from carpool.basic_auth import Credentials

__all__ = ["Access", "add_flags"]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options to ``parser``."""
    add = parser.add_argument
    files = "folder with basic-auth-user and basic-auth-password, created if missing"
    default = "one per address in ~/.local/state/carpool/gateways"
    add("--basic-auth", type=Path, metavar="DIR", help=f"{files} (default: {default})")
    trusted = "require no credentials: anyone who can reach the port can run any program as you"
    add("--no-auth", action="store_true", help=trusted)
    names = "accept requests that name this host; may be repeated"
    add("--allow-host", action="append", default=[], metavar="NAME", help=names)


@dataclass(slots=True)
class Access:
    """Access to a provider.

    Attributes:
        credentials: Credentials that callers must present; None: none are required.
        hosts: Further names of the provider.
        named: The user's folder for the credentials, if given.
        ephemeral: Whether the system chooses the port, which differs the next time.
        auth: Check of the credentials; None: none are required.
    """

    credentials: Credentials | None
    hosts: tuple[str, ...] = ()
    named: Path | None = None
    ephemeral: bool = False
    auth: BasicAuth | None = field(init=False)

    def __post_init__(self) -> None:
        self.auth = BasicAuth(*self.credentials) if self.credentials else None

    @classmethod
    def of(cls, args: argparse.Namespace, listen: str) -> Access:
        """Return the access by the options of a provider that will listen at ``listen``.

        Raises:
            ConfigError: If the options are invalid, or the credentials cannot be read.
        """
        problems = Problems()
        check_names("--allow-host", args.allow_host, problems)
        if args.no_auth and args.basic_auth:
            problems.add("--no-auth", args.basic_auth, "either it or --basic-auth DIR, not both")
        problems.raise_if_any()
        pair = None
        if not args.no_auth:
            folder = args.basic_auth or basic_auth.folder_of(listen)
            pair = basic_auth.read_if_present(folder) or basic_auth.new_credentials()
        ephemeral = not args.basic_auth and parse(listen).port == 0
        return cls(pair, tuple(args.allow_host), args.basic_auth, ephemeral)

    def folder(self, address: str) -> Path | None:
        """Return the folder of the credentials for ``address``. None without credentials."""
        if self.credentials is None:
            return None
        return (self.named or basic_auth.folder_of(address)).absolute()

    @contextlib.contextmanager
    def stored(self, address: str) -> Iterator[None]:
        """Store the credentials of a provider that listens at ``address`` during the block.

        If the system has chosen a port for which another provider of the user, not running now, has
        stored credentials, these are used and kept.

        Raises:
            ConfigError: If they cannot be written.
        """
        folder = self.folder(address)
        if folder is None or self.credentials is None:
            yield
            return
        known = basic_auth.read_if_present(folder)
        if known and self.ephemeral:
            self._adopt(known)
        elif known != self.credentials:
            with _writing(folder):
                basic_auth.write(folder, self.credentials)
        try:
            yield
        finally:
            if self.ephemeral and not known:
                shutil.rmtree(folder, ignore_errors=True)

    def share(self, name: str, secret: bytes) -> None:
        """Store another secret beside the credentials, if the user has named a folder for them.

        Raises:
            ConfigError: If it cannot be written.
        """
        if self.named:
            with _writing(self.named):
                basic_auth.put(self.named, name, secret)

    def _adopt(self, known: Credentials) -> None:
        self.credentials = known
        if self.auth:
            self.auth.expect(*known)

    def login_hint(self, address: str) -> str:
        """Return where the credentials are, and the command to log in with faas-cli."""
        folder = self.folder(address)
        if folder is None or self.credentials is None:
            return (
                "no credentials are required (--no-auth): anyone who reaches it can run any program"
            )
        login = ["faas-cli", "login", "--gateway", f"http://{address}", "--password-stdin"]
        user = self.credentials.user
        login += ["--username", user] * (user != "admin")
        file = shlex.quote(str(folder / basic_auth.PASSWORD_FILE))
        return f"credentials in {folder}; to log in: {shlex.join(login)} < {file}"


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise `ConfigError` if a folder cannot be written."""
    try:
        yield
    except OSError as error:
        expected = f"a folder that can be written ({error.strerror or error})"
        hint = "name another one, or --no-auth on a machine that only you can reach"
        raise ConfigError([Problem("--basic-auth", str(folder), expected, hint)]) from error
