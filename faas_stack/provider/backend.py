"""The interface of backends, which run instances of deployments for the provider.

A backend keeps its instances alive (restarts them, with back-off) and reports which are ready for
requests. How many there should be, which requests they get and when they stop is decided above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from faas_stack.partition.allocation import Allocation
    from faas_stack.partition.resources import Resources
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.logs import LogRing
    from faas_stack.provider.secrets import SecretStore

__all__ = ["Backend", "Instance", "PluginBackend"]


class Instance(Protocol):
    """A running instance of a deployment.

    An instance with a true attribute ``takes_calls`` is sent calls in bundles
    (`carpool.http.call_frames`).
    """

    @property
    def name(self) -> str:
        """Name in logs, which is unique while the provider runs."""
        ...

    @property
    def address(self) -> str:
        """Address for requests: ``HOST:PORT`` or ``unix:PATH``; may change while not ready."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it can be sent requests now."""
        ...

    @property
    def failing(self) -> bool:
        """Whether it has died repeatedly without ever having been ready."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not ready. Empty if it is ready or the reason is unknown."""
        ...

    @property
    def confined(self) -> str:
        """How its limits are enforced. Empty without limits, or if the backend reports it."""
        ...

    @property
    def silent(self) -> bool:
        """Whether it was ready and no longer answers at all, because it is stopped or hangs."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether it declares that its function may receive a request more than once."""
        ...

    def suspect(self) -> None:
        """Mark it as not ready until the next check, as a request could not reach it."""
        ...


class Backend(Protocol):
    """Interface that starts and stops instances."""

    @property
    def name(self) -> str:
        """Name of the orchestration in the provider's API."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether instances outlive the provider, and `start` takes them over again."""
        ...

    @property
    def ledger(self) -> Allocation:
        """Ledger of resources: reservations are made above the backend, assignments by it."""
        ...

    def size(self, deployment: Deployment) -> Resources:
        """Return what one instance of a deployment that passed `check` needs."""
        ...

    def busy_gpus(self) -> Mapping[str, float]:
        """Return the recent utilization of each GPU that reports one."""
        ...

    async def check(self, deployment: Deployment) -> None:
        """Check that ``deployment`` can be run here, fetching what this requires.

        Raises:
            CarpoolError: If it cannot, with the reason. Nothing of the attempt is left.
        """
        ...

    def start(self, deployment: Deployment, log: LogRing, changed: Callable[[], None]) -> Instance:
        """Start one instance of a deployment that passed `check`, now or earlier.

        Returns immediately: the instance becomes ready later, or is restarted until it does.
        ``changed`` is called when ``ready`` or ``failing`` changes.
        """
        ...

    async def stop(self, instance: Instance) -> None:
        """Let the instance finish its requests within the backend's grace period, then end it."""
        ...

    async def close(self) -> None:
        """End all instances at once, or release those that outlive the provider."""
        ...


class PluginBackend(Backend, Protocol):
    """A backend that `carpool provider NAME` runs, created with its ``Params`` and then opened."""

    async def open(self, secrets: SecretStore, state: Path) -> None:
        """Prepare to start instances; called first.

        Args:
            secrets: The functions' secrets, by namespace and name.
            state: An existing folder of the provider for what must outlive it.

        Raises:
            CarpoolError: If the backend cannot be used, with the reason.
        """
        ...

    async def sweep(self) -> None:
        """End instances of an earlier provider that no function has taken over since `open`."""
        ...
