"""Secrets as files: one folder for the default namespace, and a subfolder for every other.

The folder is the one faas-cli's ``local-run`` reads too (``.secrets`` beside the stack file).
Values are never listed or logged.
"""

from __future__ import annotations

import base64
import re
import shutil
from typing import TYPE_CHECKING, Any

from carpool.errors import BadRequest, Conflict, NotFound
from faas_stack.provider import storage
from faas_stack.provider.deployment import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from carpool.validation.problems import Problems
    from faas_stack.provider.deployment import Deployment

__all__ = ["LocalSecrets", "SecretStore", "value_of"]

_NAME = re.compile(r"[a-zA-Z0-9_-][-a-zA-Z0-9_.]{0,252}")
_GIVEN = ".functions"  # neither a secret nor a namespace can have this name


class SecretStore:
    """Secrets in a folder, which is created with the first secret."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's secrets, sorted."""
        folder = self._of(namespace)
        if not folder.is_dir():
            return []
        return sorted(p.name for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_file())

    def path(self, name: str, namespace: str, function: str = "") -> Path | None:
        """Return the file with the secret's value; None if there is no such secret.

        A value given to ``function`` alone takes precedence over the namespace's.
        """
        if not _NAME.fullmatch(name):
            return None
        own = [self._given(function, namespace) / name] if function else []
        return next((path for path in (*own, self._of(namespace) / name) if path.is_file()), None)

    def check(self, deployment: Deployment, problems: Problems) -> None:
        """Report secrets of ``deployment`` that do not exist."""
        for name in deployment.secrets:
            if problems.full:
                break
            if self.path(name, deployment.namespace) is None:
                problems.add("secrets", name, "an existing secret", "create it first")

    def give(self, function: str, namespace: str, name: str, value: bytes) -> None:
        """Give one function its own value for a secret; such values are not listed.

        Raises:
            NoSpace: The value cannot be written.
        """
        path = self._given(function, namespace) / name
        if not (path.is_file() and path.read_bytes() == value):
            storage.write(path, value)

    def take_back(self, function: str, namespace: str) -> None:
        """Remove all values given to a function; running instances keep what they have read."""
        shutil.rmtree(self._given(function, namespace), ignore_errors=True)

    def create(self, name: str, namespace: str, value: bytes) -> None:
        """Add a secret.

        Raises:
            BadRequest: The name is invalid, or is already used by a namespace.
            Conflict: A secret with that name exists.
        """
        if not _NAME.fullmatch(name):
            message = f"name = {name!r}: expected letters, digits, dots, dashes and underscores"
            raise BadRequest(message)
        if self.path(name, namespace):
            message = f"secret {name!r} exists in namespace {namespace!r}"
            raise Conflict(message)
        self._write(name, namespace, value)

    def update(self, name: str, namespace: str, value: bytes) -> None:
        """Replace a secret's value; running instances keep the file they have open.

        Raises:
            NotFound: There is no such secret.
        """
        self._existing(name, namespace)
        self._write(name, namespace, value)

    def remove(self, name: str, namespace: str) -> None:
        """Delete a secret.

        Raises:
            NotFound: There is no such secret.
        """
        self._existing(name, namespace).unlink()

    def _given(self, function: str, namespace: str) -> Path:
        return self._folder / _GIVEN / namespace / function

    def _of(self, namespace: str) -> Path:
        if namespace == DEFAULT_NAMESPACE:
            return self._folder
        if not _NAME.fullmatch(namespace):
            message = f"namespace = {namespace!r}: expected letters, digits and dashes"
            raise BadRequest(message)
        return self._folder / namespace

    def _existing(self, name: str, namespace: str) -> Path:
        path = self.path(name, namespace)
        if path is None:
            message = f"no secret {name!r} in namespace {namespace!r}"
            raise NotFound(message)
        return path

    def _write(self, name: str, namespace: str, value: bytes) -> None:
        folder = self._of(namespace)
        if folder.is_file():
            message = f"namespace = {namespace!r}: a secret has that name; expected another one"
            raise BadRequest(message)
        if (folder / name).is_dir():
            message = f"name = {name!r}: a namespace with secrets has it; expected another name"
            raise BadRequest(message)
        storage.write(folder / name, value)


class LocalSecrets:
    """The asynchronous interface to a store that the REST API uses; passes on its errors."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store

    async def names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's secrets, sorted."""
        return self._store.names(namespace)

    async def create(self, name: str, namespace: str, value: bytes) -> None:
        """Add a secret."""
        self._store.create(name, namespace, value)

    async def update(self, name: str, namespace: str, value: bytes) -> None:
        """Replace a secret's value."""
        self._store.update(name, namespace, value)

    async def remove(self, name: str, namespace: str) -> None:
        """Delete a secret."""
        self._store.remove(name, namespace)


def value_of(document: Mapping[str, Any]) -> bytes:
    """Return the value in a Secret document: ``rawValue`` (base64) or ``value``.

    Raises:
        BadRequest: There is none, or it is not text.
    """
    raw, value = document.get("rawValue"), document.get("value")
    if isinstance(raw, str) and raw:
        try:
            return base64.b64decode(raw, validate=True)
        except ValueError as error:  # characters beyond ASCII raise no more special one
            message = "rawValue: expected base64"
            raise BadRequest(message) from error
    if isinstance(value, str) and value:
        return value.encode()
    message = "value: expected text that is not empty, or rawValue in base64"
    raise BadRequest(message)
