"""Who may change and see a provider's functions: the options of every command that starts one.

By default a provider asks for credentials that it has created and stored where Carpool's commands
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
    """The options."""
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
    """Who may call a provider.

    Attributes:
        credentials: What callers must present; None: nothing.
        hosts: Further names of the provider.
        named: The folder that the user has named for the credentials, if any.
        ephemeral: The port is chosen by the system: it will be another one the next time.
        auth: Asks callers for the credentials; None: they need none.
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
        """By the options, for a provider that is to listen at ``listen``.

        Raises:
            ConfigError: they cannot be used, or the credentials cannot be read.
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
        """Where the credentials for ``address`` are kept; None where there are none."""
        if self.credentials is None:
            return None
        return (self.named or basic_auth.folder_of(address)).absolute()

    @contextlib.contextmanager
    def stored(self, address: str) -> Iterator[None]:
        """Keep the credentials of a provider that listens at ``address``.

        Where the system has chosen a port that another provider of the user's has credentials
        for, which is not running now, these are used, and stay.

        Raises:
            ConfigError: they cannot be written.
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
        """Put another secret beside the credentials, if the user has named a folder for these.

        Raises:
            ConfigError: it cannot be written.
        """
        if self.named:
            with _writing(self.named):
                basic_auth.put(self.named, name, secret)

    def _adopt(self, known: Credentials) -> None:
        self.credentials = known
        if self.auth:
            self.auth.expect(*known)

    def login_hint(self, address: str) -> str:
        """Where the credentials are, and how faas-cli gets to know them."""
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
    """Tell the user of a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        expected = f"a folder that can be written ({error.strerror or error})"
        hint = "name another one, or --no-auth on a machine that only you can reach"
        raise ConfigError([Problem("--basic-auth", str(folder), expected, hint)]) from error
