"""Reads what concerns functions from a compose file: gateway, AlertManager, the provider's GPUs.

It does not validate the file, as Compose itself does that.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from carpool.errors import ConfigError, Problem
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from carpool.validation.yaml_reader import YamlReader
from faas_stack.stack.substitute import substitute

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["NAMES", "Compose", "Service", "read"]

NAMES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
_GATEWAY = re.compile(r"(^|/)openfaas(ltd)?/gateway(:|@|$)")
_ALERT_MANAGER = re.compile(r"(^|/)alertmanager(:|@|$)")
_GPUS = re.compile(r"--gpus[= ](\d+)")
_SCALER = re.compile(r"--scaler[= ](\S+)")
_PROVIDER = re.compile(r"\bprovider\s+docker\b")
_KINDS = {dict: "a mapping", list: "a list"}


@dataclass(frozen=True, slots=True)
class Service:
    """A service of a compose file.

    Attributes:
        command: Entry point and command, joined by spaces.
        starts: Whether it starts by default: it has no profile, or one that is active.
    """

    name: str
    image: str
    environment: dict[str, str]
    command: str
    starts: bool


@dataclass(frozen=True, slots=True)
class Compose:
    """Services of a compose file by name."""

    path: Path
    services: Mapping[str, Service]

    @property
    def started(self) -> list[Service]:
        """Services that start."""
        return [service for service in self.services.values() if service.starts]

    @property
    def gateway(self) -> Service | None:
        """The OpenFaaS gateway. None if it does not start."""
        return next((s for s in self.started if _GATEWAY.search(s.image)), None)

    @property
    def alert_managers(self) -> tuple[str, ...]:
        """Places in the file that start an AlertManager."""
        names = [s.name for s in self.started if _ALERT_MANAGER.search(s.image)]
        return tuple(f"{self.path}: services.{name}.image" for name in names)

    @property
    def gpus(self) -> int | None:
        """Number of GPUs of the provider. None without a Carpool provider."""
        if self._provider is None:
            return None
        match = _GPUS.search(self._provider.command)
        return int(match[1]) if match else 0

    @property
    def scaler(self) -> str:
        """Address of the scaler in the options of Carpool's provider. Empty if it is not given."""
        match = _SCALER.search(self._provider.command) if self._provider else None
        return match[1] if match else ""

    @property
    def _provider(self) -> Service | None:
        return next((s for s in self.started if _PROVIDER.search(s.command)), None)


def read(path: Path, env: Mapping[str, str] = os.environ) -> Compose:
    """Read the file at ``path``, with variables taken from ``env``.

    Raises:
        ConfigError: If it is not a compose file.
    """
    problems = Problems()
    text = substitute(read_text(path, problems) or "", env, str(path), problems)
    root = YamlReader(str(path), problems).root(text)
    problems.raise_if_any()
    try:
        data = yaml.constructor.SafeConstructor().construct_document(root)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
        reason = " ".join(str(error).split())
        raise ConfigError([Problem(str(path), reason, "valid YAML")]) from error
    services = data.get("services") if isinstance(data, dict) else None
    if not isinstance(services, dict):
        raise ConfigError([Problem(str(path), "", "a compose file, with services")])
    chosen = set(env.get("COMPOSE_PROFILES", "").split(",")) - {""}
    for name, data in services.items():
        _check(f"{path}: services.{name}", data, problems)
    problems.raise_if_any()
    by_name = {str(name): _service(str(name), value, chosen) for name, value in services.items()}
    return Compose(path, by_name)


def _check(where: str, data: Any, problems: Problems) -> None:  # noqa: ANN401  YAML
    """Check the kinds of the values that are read below."""
    for key, kinds in (("environment", (dict, list)), ("profiles", (list,))):
        value = data.get(key) if isinstance(data, dict) else None
        if value and not isinstance(value, kinds):
            problems.add(f"{where}.{key}", value, " or ".join(_KINDS[kind] for kind in kinds))


def _service(name: str, value: Any, chosen: set[str]) -> Service:  # noqa: ANN401  YAML
    data = value if isinstance(value, dict) else {}
    given = data.get("environment") or {}
    if isinstance(given, list):
        pairs = [str(item).partition("=") for item in given]
        environment = {key: text for key, _, text in pairs}
    else:
        environment = {str(key): "" if text is None else str(text) for key, text in given.items()}
    command = " ".join(_words(data.get("entrypoint")) + _words(data.get("command")))
    profiles = set(map(str, data.get("profiles") or ()))
    starts = not profiles or bool(profiles & chosen)
    return Service(name, str(data.get("image", "")), environment, command, starts)


def _words(value: Any) -> list[str]:  # noqa: ANN401  YAML
    return [str(item) for item in value] if isinstance(value, list) else str(value or "").split()
