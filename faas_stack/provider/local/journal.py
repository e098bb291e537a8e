"""Journal of the deployed functions: one file each, always replaced as a whole.

A provider whose instances outlive it starts from the journal. Only the provider can read the files,
because environments may contain what should have been in secrets.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError, ConfigError, Problem
from faas_stack.provider import storage
from faas_stack.provider.deployment import Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Entry", "Journal"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A deployed function."""

    deployment: Deployment
    replicas: int
    created: datetime


class Journal:
    """Entries in a folder, which is created with the first one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, entry: Entry) -> None:
        """Write an entry, replacing an earlier one of the same function.

        Raises:
            NoSpace: The entry cannot be written; the earlier one stays.
        """
        deployment = entry.deployment
        path = self._path(deployment.service, deployment.namespace)
        document = {
            "deployment": {"service": deployment.service, **deployment.to_json()},
            "uid": deployment.uid,
            "replicas": entry.replicas,
            "created": entry.created.isoformat(),
        }
        storage.write(path, json.dumps(document).encode())

    def forget(self, name: str, namespace: str) -> None:
        """Remove the entry of a function."""
        self._path(name, namespace).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all entries."""
        for path in self._folder.glob("*.json"):
            path.unlink()

    def entries(self) -> Iterator[Entry]:
        """Yield all entries.

        Raises:
            ConfigError: A file cannot be read; the instances of its function are left alone.
        """
        for path in sorted(self._folder.glob("*.json")):
            yield _read(path)

    def _path(self, name: str, namespace: str) -> Path:
        return self._folder / f"{name}.{namespace}.json"


def _read(path: Path) -> Entry:
    try:
        document = json.loads(path.read_bytes())
        body = json.dumps(document["deployment"]).encode()
        deployment = replace(Deployment.from_json(body), uid=document["uid"])
        created = datetime.fromisoformat(document["created"])
        return Entry(deployment, int(document["replicas"]), created)
    except (OSError, ValueError, KeyError, TypeError, CarpoolError) as error:
        expected = "an entry this version of Carpool can read"
        hint = f"{error}; remove the file and deploy the function again"
        raise ConfigError([Problem(str(path), "", expected, hint)]) from error
