"""Input of the checks: a stack file's functions, their settings, and their environment.

Checks look at a `Case` and report `Problem`s; they read no files and query no servers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import ConfigError
from faas_stack import function_settings
from sidecar.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.settings import FunctionSettings
    from faas_stack.stack.stack_file import StackFile
    from faas_stack.stack.stack_function import StackFunction
    from scaler.planning.placement import Node

__all__ = ["GATEWAY_S", "Autoscaler", "Case", "ClusterState", "FunctionContext", "Surroundings"]
__all__ += ["duration_s"]

GATEWAY_S = 60.0  # the gateway's default for each of its times


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """An object other than the scaler that sets the replicas of a Deployment."""

    kind: str
    namespace: str
    name: str
    target: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of a Kubernetes cluster, for ``carpool doctor --kubernetes``.

    Attributes:
        autoscalers: Autoscalers of Deployments.
        namespaces: Why a namespace is not one for functions, by name; without those that are.
        refusals: Functions whose pods are not admitted, with the message.
        nodes: The nodes with the capacity that is left for these functions; None if unknown.
        missing_rights: Accounts with a permission that they lack.
        unpinned: Nodes without exclusive cores for pods; empty if unknown.
    """

    autoscalers: tuple[Autoscaler, ...] = ()
    namespaces: dict[str, str] = field(default_factory=dict)
    refusals: tuple[tuple[str, str], ...] = ()
    nodes: tuple[Node, ...] | None = None
    missing_rights: tuple[tuple[str, str], ...] = ()
    unpinned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Known facts about the environment in which the functions are deployed; all are optional.

    Attributes:
        community: Why the target is assumed to be OpenFaaS Community Edition; empty if it is not.
        gateway: The gateway's environment variables; None if unknown.
        gateway_name: Name of that environment in findings.
        upstream_timeout_s: How long the gateway waits for a function.
        alert_managers: Where an AlertManager runs, in words.
        gpus: Number of GPUs of the provider; None if unknown.
        machine: Capacity of the provider (``cpus``, ``gpus``, ``memory_mb``); None if unknown.
        provider: The provider's name and kind; empty if unknown.
        scaler: Address of the scaler that the provider tells functions; empty if it tells none.
        deployed: Names of functions that are already deployed; None if unknown.
        exceeding_s: Execution time of a single request, by function, where a running sidecar found
            that it exceeds the longest objective.
        crashes: How often the handler of a running function has ended by itself, by function.
        complaints: Problems that the running scaler of the stack reports, by function.
        silent: Why the scaler at an address of the stack file is not reached.
        troubles: Option, address and reason of each query that failed.
        cluster: State of the Kubernetes cluster; None if none was queried.
    """

    community: str = ""
    gateway: dict[str, str] | None = None
    gateway_name: str = ""
    upstream_timeout_s: float | None = None
    alert_managers: tuple[str, ...] = ()
    gpus: int | None = None
    machine: Mapping[str, float] | None = None
    provider: str = ""
    scaler: str = ""
    deployed: frozenset[str] | None = None
    exceeding_s: Mapping[str, float] = field(default_factory=dict)
    crashes: Mapping[str, float] = field(default_factory=dict)
    complaints: tuple[tuple[str, str], ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    troubles: tuple[tuple[str, str, str], ...] = ()
    cluster: ClusterState | None = None


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """A function; ``settings`` is None if they cannot be read, which another check reports."""

    function: StackFunction
    settings: FunctionSettings | None

    @classmethod
    def of(cls, function: StackFunction) -> FunctionContext:
        """Return the context of a function, with its settings if they can be read."""
        settings = None
        with suppress(ConfigError):
            settings = function_settings.read(
                function.labels, function.annotations, function.environment
            )
        return cls(function, settings)

    @property
    def exec_timeout_s(self) -> float:
        """Time limit of a batch; ``inf`` if it is set to 0, which means no limit."""
        environment = {k: v for k, v in self.function.environment.items() if k == "exec_timeout"}
        with suppress(ConfigError):  # reported elsewhere
            return Options.from_env(environment).exec_timeout_s
        return Options().exec_timeout_s

    @property
    def objectives(self) -> dict[str, float]:
        """Latency objectives by the name of the setting."""
        if self.settings is None:
            return {}
        own = {"com.carpool.slo": self.settings.slo_s} if self.settings.slo_s else {}
        return own | {f"com.carpool.apps[{app.name}]": app.slo_s for app in self.settings.apps}

    @property
    def scaled(self) -> bool:
        """Whether a scaler manages its instances."""
        return self.settings is not None and self.settings.scaled

    def env(self, name: str) -> str:
        """Return the name of an environment variable of the function in findings."""
        return f"functions.{self.function.name}.environment.{name}"

    def label(self, name: str) -> str:
        """Return the name of a label, or of the annotation with that name, in findings."""
        field_name = "labels" if name in self.function.labels else "annotations"
        field_name = field_name if name in getattr(self.function, field_name) else "labels"
        return f"functions.{self.function.name}.{field_name}.{name}"


@dataclass(frozen=True, slots=True)
class Case:
    """A stack file and its environment."""

    stack: StackFile
    contexts: tuple[FunctionContext, ...]
    around: Surroundings


def duration_s(text: str) -> float | None:
    """Return seconds as the watchdog and the gateway parse them. None if the text is invalid.

    A number without a unit means whole seconds.
    """
    try:
        return durations.parse_lenient(text.strip())
    except durations.DurationError:
        return None
