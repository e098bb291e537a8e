"""What functions there should be, written down: one file each, replaced as a whole.

A provider whose instances outlive it starts from here. The files are readable by the provider
alone, because environments hold what people should have put into secrets.
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
    """A function there should be."""

    deployment: Deployment
    replicas: int
    created: datetime


class Journal:
    """The entries below one folder, which is made with the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, entry: Entry) -> None:
        """Write an entry down, in place of an earlier one of the same function.

        Raises:
            NoSpace: it cannot be written; the earlier one stays.
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
        """All entries.

        Raises:
            ConfigError: a file cannot be read; its function's instances are not touched.
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
