"""What is examined: a stack file's functions with their settings, and what is known around them.

Checks look at a `Case` and say what they find as `Problem`s; they read no file and ask nobody.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import ConfigError
from faas_stack import function_settings
from sidecar.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.settings import FunctionSettings
    from faas_stack.doctor.cluster_state import ClusterState
    from faas_stack.stack.stack_file import StackFile
    from faas_stack.stack.stack_function import StackFunction

__all__ = ["Case", "FunctionContext", "Surroundings", "duration_s"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of the place where the functions go; nothing of it needs to be.

    Attributes:
        community: why they are taken to go to OpenFaaS Community Edition; empty if they are not.
        gateway: what the gateway's environment says; None if unknown.
        gateway_name: how findings call that environment.
        upstream_timeout_s: how long the gateway waits for a function.
        alert_managers: where there is one, in words.
        gpus: of the provider; None if unknown.
        machine: what the provider has (``cpus``, ``gpus``, ``memory_mb``); None if it does not say.
        provider: the provider's name and kind; empty if unknown.
        scaler: where the provider tells functions that their scaler is; empty: it does not.
        deployed: names of functions that are there already; None if nobody has asked.
        complaints: what the scaler that runs for the stack is not content with, by function.
        silent: why the scaler at an address of the stack file is not reached.
        troubles: what was to be asked and did not answer, and why.
        cluster: what a Kubernetes cluster says of itself; None if none was asked.
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
    complaints: tuple[tuple[str, str], ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    troubles: tuple[tuple[str, str, str], ...] = ()
    cluster: ClusterState | None = None


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """One function; ``settings`` is None where they cannot be read, which is said elsewhere."""

    function: StackFunction
    settings: FunctionSettings | None

    @classmethod
    def of(cls, function: StackFunction) -> FunctionContext:
        """Read what can be read."""
        settings = None
        with suppress(ConfigError):
            settings = function_settings.read(
                function.labels, function.annotations, function.environment
            )
        return cls(function, settings)

    @property
    def exec_timeout_s(self) -> float:
        """How long one batch may take; ``inf`` where 0 says that there is no limit."""
        told = {k: v for k, v in self.function.environment.items() if k == "exec_timeout"}
        with suppress(ConfigError):  # which is said elsewhere
            return Options.from_env(told).exec_timeout_s
        return Options().exec_timeout_s

    @property
    def objectives(self) -> dict[str, float]:
        """Latency objectives by the name of what sets them."""
        if self.settings is None:
            return {}
        found = {"com.carpool.slo": self.settings.slo_s} if self.settings.slo_s else {}
        return found | {f"com.carpool.apps[{app.name}]": app.slo_s for app in self.settings.apps}

    @property
    def scaled(self) -> bool:
        """Whether its instances are a scaler's."""
        return self.settings is not None and self.settings.scale_policy != "fixed"

    def env(self, name: str) -> str:
        """How findings call a variable of its environment."""
        return f"functions.{self.function.name}.environment.{name}"

    def label(self, name: str) -> str:
        """How findings call one of its labels, or the annotation of that name."""
        kind = "labels" if name in self.function.labels else "annotations"
        kind = kind if name in getattr(self.function, kind) else "labels"
        return f"functions.{self.function.name}.{kind}.{name}"


@dataclass(frozen=True, slots=True)
class Case:
    """A stack file and its surroundings."""

    stack: StackFile
    contexts: tuple[FunctionContext, ...]
    around: Surroundings


def duration_s(text: str) -> float | None:
    """Seconds as the watchdog and the gateway read them: whole seconds too; None if neither."""
    try:
        return durations.parse_lenient(text.strip())
    except durations.DurationError:
        return None
