"""Interface to the deployed functions, as needed by the REST API, the proxy and `carpool up`.

An orchestrator keeps the deployments, starts and stops instances accordingly, and knows which ones
run. `local` starts instances on this machine itself, through a `Backend`. Everything else in a
provider (routes, credentials, calls, metrics) is above this port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from carpool.errors import ClientFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from carpool.prometheus_text import Collector
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.function import Function
    from faas_stack.provider.logs import LogLine, LogQuery
    from faas_stack.provider.replica import Replica

__all__ = [
    "FunctionNamespace",
    "NamespaceStore",
    "Orchestrator",
    "Reloaded",
    "Secrets",
    "Unsupported",
]

F = TypeVar("F", bound="Function")


class FunctionNamespace(NamedTuple):
    """A namespace of functions."""

    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class Unsupported(ClientFault):
    """Raised for operations on namespaces that this kind of provider does not support."""

    status: ClassVar[int] = 501


class Reloaded(NamedTuple):
    """Result of a reload.

    Attributes:
        replicas: Desired number of instances.
        finished: Whether all of them are new and ready; False if the replacement has only begun.
    """

    replicas: int
    finished: bool


class Secrets(Protocol):
    """The functions' secrets by name and namespace; values are written and never returned."""

    async def names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's secrets, sorted."""
        ...

    async def create(self, name: str, namespace: str, value: bytes) -> None:
        """Add a secret.

        Raises:
            BadRequest: The name cannot be used.
            Conflict: A secret with that name exists.
        """
        ...

    async def update(self, name: str, namespace: str, value: bytes) -> None:
        """Replace a secret's value.

        Raises:
            NotFound: There is no such secret.
        """
        ...

    async def remove(self, name: str, namespace: str) -> None:
        """Delete a secret.

        Raises:
            NotFound: There is no such secret.
        """
        ...


class NamespaceStore(Protocol):
    """The namespaces for functions."""

    async def get(self, name: str) -> FunctionNamespace:
        """Return the namespace with the given name.

        Raises:
            NotFound: There is no such namespace for functions.
        """
        ...

    async def create(self, namespace: FunctionNamespace) -> None:
        """Add a namespace.

        Raises:
            Conflict: A namespace with that name exists.
            CarpoolError: The provider lacks permission, or does not support this.
        """
        ...

    async def update(self, namespace: FunctionNamespace) -> None:
        """Set the labels and annotations of a namespace.

        Raises:
            NotFound: There is no such namespace for functions.
            CarpoolError: The provider lacks permission, or does not support this.
        """
        ...

    async def remove(self, name: str) -> None:
        """Delete a namespace with its functions.

        Raises:
            NotFound: There is no such namespace for functions.
            CarpoolError: The provider lacks permission, or does not support this.
        """
        ...


class Orchestrator(Protocol[F]):
    """All functions of a provider; call `open` first."""

    @property
    def default_namespace(self) -> str:
        """Namespace of functions that name none."""
        ...

    @property
    def secrets(self) -> Secrets:
        """The functions' secrets."""
        ...

    @property
    def namespace_store(self) -> NamespaceStore:
        """The functions' namespaces."""
        ...

    @property
    def collectors(self) -> Sequence[Collector]:
        """The orchestrator's collectors for the provider's metrics."""
        ...

    @property
    def behind(self) -> bool:
        """Whether the known state may be stale because changes are currently not received."""
        ...

    def about(self) -> Mapping[str, Any]:
        """Return its part of ``/system/info``: ``orchestration``, and further facts if known."""
        ...

    async def open(self) -> None:
        """Prepare to respond to requests, with the functions that already exist.

        Raises:
            CarpoolError: The orchestrator cannot be used; the message says why.
        """
        ...

    def find(self, name: str, namespace: str) -> F:
        """Return the function with the given name.

        Raises:
            NotFound: There is no such function.
        """
        ...

    def get(self, name: str, namespace: str) -> F | None:
        """Return the function with the given name; None if there is none."""
        ...

    def all(self, namespace: str | None = None) -> list[F]:
        """Return the functions of a namespace, or of all namespaces, sorted by name."""
        ...

    def namespaces(self) -> list[str]:
        """Return the default namespace and all others for functions, sorted."""
        ...

    async def deploy(self, deployment: Deployment) -> F:
        """Add a function.

        Raises:
            Conflict: A function with that name exists.
            CarpoolError: The function cannot run here, or there is no capacity for it.
        """
        ...

    async def update(self, deployment: Deployment) -> None:
        """Replace a function without interrupting service.

        Raises:
            NotFound: There is no function with that name.
            CarpoolError: The new function cannot run here; the old one stays.
        """
        ...

    async def reload(self, name: str, namespace: str, ready_s: float) -> Reloaded:
        """Replace a function's instances, so that its model is loaded again, without interruption.

        Args:
            name: Name of the function.
            namespace: Namespace of the function.
            ready_s: Time that they may take to become ready, if the orchestrator waits for that.

        Raises:
            NotFound: There is no such function.
            Conflict: The function was updated in the meantime.
            FunctionFault: The new instances do not become ready; the old ones continue to serve.
        """
        ...

    async def scale(self, name: str, namespace: str, replicas: int) -> None:
        """Set the number of replicas of a function.

        Raises:
            NotFound: There is no such function.
            CarpoolError: That number of replicas is not possible; nothing is changed.
        """
        ...

    async def remove(self, name: str, namespace: str) -> None:
        """Remove a function; its replicas finish their in-flight requests.

        Raises:
            NotFound: There is no such function.
        """
        ...

    def choose(self, function: F) -> Replica | None:
        """Return a ready replica without acquiring it; None if there is none."""
        ...

    async def acquire(self, function: F) -> Replica:
        """Acquire a ready replica for one request, starting one if the function is scaled to zero.

        The caller must ``release`` it.

        Raises:
            Overloaded: There is no capacity for a replica, or none became ready in time.
            NotFound: The function was removed in the meantime.
        """
        ...

    def lines(self, function: F, query: LogQuery) -> AsyncIterator[Sequence[LogLine]]:
        """Return the log lines of a function, including new ones if the query follows."""
        ...

    async def close(self) -> None:
        """End what does not outlive the provider, and release the rest."""
        ...
