"""Secrets of instances, in folders that the engine mounts into their containers.

A function's user is not the provider's, so the files are readable by every user who can reach them.
Only the container can, because the folder around them is private to the provider. The engine sees
the machine's files: if the provider runs in a container, its folder has another path there.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from carpool.validation.problems import Problems
from faas_stack.provider import storage

if TYPE_CHECKING:
    from pathlib import Path

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.secrets import SecretStore

__all__ = ["SecretMounts"]

_FILE = 0o444
_FOLDER = 0o755


class SecretMounts:
    """One folder of secrets per instance.

    Args:
        store: The secrets.
        folder: Folder for the copies.
        on_host: Path of that folder on the engine's machine.
    """

    def __init__(self, store: SecretStore, folder: Path, on_host: Path) -> None:
        self._store = store
        self._folder = folder
        self._on_host = on_host

    def lay_out(self, instance: str, deployment: Deployment) -> str:
        """Copy the secrets for an instance; return the path to mount, empty if it has none.

        Raises:
            ConfigError: A secret does not exist.
            NoSpace: A secret cannot be written.
        """
        if not deployment.secrets:
            return ""
        problems = Problems()
        self._store.check(deployment, problems)
        problems.raise_if_any()
        folder = self._folder / instance
        for secret in deployment.secrets:
            if source := self._store.path(secret, deployment.namespace, deployment.service):
                storage.write(folder / secret, source.read_bytes(), _FILE)
        folder.chmod(_FOLDER)
        self._folder.chmod(0o700)
        return str(self._on_host / instance)

    def remove(self, instance: str) -> None:
        """Remove the secrets of an instance."""
        shutil.rmtree(self._folder / instance, ignore_errors=True)

    def keep_only(self, instances: set[str]) -> None:
        """Remove the secrets of all other instances."""
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name not in instances:
                self.remove(folder.name)
