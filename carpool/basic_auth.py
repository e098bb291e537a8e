"""User and password as OpenFaaS keeps them: two files in a folder of secrets.

A provider without configured credentials creates some and keeps them in a folder of its user, one
for each address. Carpool's commands look there for the credentials of the gateway they call, so on
the same machine they need not be given. A password is only ever sent to the address that it was
created for.
"""

from __future__ import annotations

import base64
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carpool import address as addresses
from carpool.errors import ConfigError, Problem
from carpool.files import replace_file
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PASSWORD_FILE",
    "Credentials",
    "credentials",
    "credentials_for",
    "folder_of",
    "new_credentials",
    "put",
    "read_if_present",
    "write",
]

PASSWORD_FILE = "basic-auth-password"  # noqa: S105 - the file's name
_FILES = ("basic-auth-user", PASSWORD_FILE)
_SAME = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}  # noqa: S104
_PASSWORD_BYTES = 32


class Credentials(NamedTuple):
    """User and password, in the form that `requests` takes as ``auth``."""

    user: str
    password: str

    @property
    def header(self) -> tuple[str, str]:
        """``Authorization`` header with these credentials."""
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return "authorization", f"Basic {pair}"


def new_credentials() -> Credentials:
    """Return the user ``admin``, as usual in OpenFaaS, with a password that cannot be guessed."""
    return Credentials("admin", secrets.token_urlsafe(_PASSWORD_BYTES))


def credentials(folder: Path) -> Credentials:
    """Read user and password from ``basic-auth-user`` and ``basic-auth-password``.

    Raises:
        ConfigError: a file is missing or empty.
    """
    problems = Problems()
    texts = []
    for name in _FILES:
        text = (read_text(folder / name, problems) or "").strip()
        if not text and not problems:
            problems.add(str(folder / name), "", "text that is not empty")
        texts.append(text)
    problems.raise_if_any()
    return Credentials(*texts)


def read_if_present(folder: Path) -> Credentials | None:
    """Read credentials as `credentials` does; return None if the folder has neither file.

    Raises:
        ConfigError: one of the files is missing, or one is empty.
    """
    there = any((folder / name).exists() for name in _FILES)
    return credentials(folder) if there else None


def write(folder: Path, pair: Credentials) -> None:
    """Write user and password to a folder.

    Raises:
        OSError: they cannot be written.
    """
    for name, text in zip(_FILES, pair, strict=True):
        put(folder, name, f"{text}\n".encode())


def put(folder: Path, name: str, secret: bytes) -> None:
    """Write a file that only its owner can read, or also the group if the folder is ``rwxr-x---``.

    A folder that every user can list, as `mkdir` creates it, does not share it with the group.

    Raises:
        OSError: it cannot be written.
    """
    mode = folder.stat().st_mode if folder.is_dir() else 0
    shared = 0 if mode & stat.S_IRWXO else mode & stat.S_IRGRP
    replace_file(folder / name, secret, 0o600 | shared)


def folder_of(address: str, env: Mapping[str, str] = os.environ) -> Path:
    """Return the default folder for the credentials of the gateway or provider at ``HOST:PORT``.

    ``XDG_STATE_HOME`` (``~/.local/state`` if unset) has one folder for each address. All names of
    this machine's loopback, and the wildcard, count as one address. A relative ``XDG_STATE_HOME``
    is ignored, as the standard requires: it would mean a different folder for every command.
    """
    where = addresses.parse(address)
    state = Path(env.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = _home() / ".local/state"
    name = where.path.strip("/").replace("/", "_")
    if not where.path:
        name = f"{_SAME.get(where.host, where.host)}_{where.port}"
    return state / "carpool" / "gateways" / name


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        expected = "a home folder, to keep credentials in"
        hint = "set it or XDG_STATE_HOME, or name a folder with --basic-auth DIR"
        raise ConfigError([Problem("HOME", "", expected, hint)]) from error


def credentials_for(url: str, env: Mapping[str, str] = os.environ) -> Credentials | None:
    """Return the credentials that a provider of this user created for ``url``; None if none.

    Raises:
        ConfigError: they cannot be read.
    """
    try:
        folder = folder_of(url, env)
    except ConfigError:  # https://, a path, no port: never the address of a provider of ours
        return None
    return read_if_present(folder)
