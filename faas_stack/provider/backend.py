"""What a backend is to the provider: something that runs instances of deployments.

A backend keeps its instances alive (restarts them, with back-off) and says which can be sent
requests. How many there should be, which requests they get and when they go is decided above it.
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
    """One running instance of a deployment.

    One with an attribute ``takes_calls`` that is true is sent calls in bundles
    (`carpool.http.call_frames`).
    """

    @property
    def name(self) -> str:
        """Unique while the provider runs; names the instance in logs."""
        ...

    @property
    def address(self) -> str:
        """Where it takes requests: ``HOST:PORT`` or ``unix:PATH``; may change unless ready."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it can be sent requests now."""
        ...

    @property
    def failing(self) -> bool:
        """Whether it has died again and again without ever having been ready."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not ready, as far as it said; else empty."""
        ...

    @property
    def confined(self) -> str:
        """What holds it to its limits, in words; empty if it has none, or the backend says it."""
        ...

    @property
    def silent(self) -> bool:
        """Whether it has been ready and does not answer at all any more: stopped, or hung."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether it says that its function may see a request more than once."""
        ...

    def suspect(self) -> None:
        """A request could not reach it: not ready until it has been looked at again."""
        ...


class Backend(Protocol):
    """Starts and stops instances."""

    @property
    def name(self) -> str:
        """What the provider calls its orchestration."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether instances outlive the provider, and `start` takes them over again."""
        ...

    @property
    def ledger(self) -> Allocation:
        """Which instance has what: promises are made above the backend, assignments by it."""
        ...

    def size(self, deployment: Deployment) -> Resources:
        """What one instance of a deployment that passed `check` needs."""
        ...

    def busy_gpus(self) -> Mapping[str, float]:
        """Share of the last moments in which each GPU had work, of those it can ask."""
        ...

    async def check(self, deployment: Deployment) -> None:
        """Whether ``deployment`` can be run here; fetches what it needs for that.

        Raises:
            CarpoolError: why it cannot. Nothing of the attempt is left.
        """
        ...

    def start(self, deployment: Deployment, log: LogRing, changed: Callable[[], None]) -> Instance:
        """Begin to run one instance of a deployment that passed `check`, now or earlier.

        Returns at once: the instance becomes ready later, or is restarted until it does.
        ``changed`` is called when ``ready`` or ``failing`` changes.
        """
        ...

    async def stop(self, instance: Instance) -> None:
        """Let the instance finish what it has, within the backend's grace period, and end it."""
        ...

    async def close(self) -> None:
        """The provider ends: end everything at once, or release it if it is to last."""
        ...


class PluginBackend(Backend, Protocol):
    """A backend that `carpool provider NAME` runs: it is made with its ``Params``, and opened."""

    async def open(self, secrets: SecretStore, state: Path) -> None:
        """Make ready to start instances; the first call.

        Args:
            secrets: of the functions, by namespace and name.
            state: a folder of the provider's, for what must outlive it; it exists.

        Raises:
            CarpoolError: why it cannot be used.
        """
        ...

    async def sweep(self) -> None:
        """End what an earlier provider left, and no function has taken over since `open`."""
        ...
