"""What the REST API, the proxy and `carpool up` need of the functions there should be.

An orchestrator keeps what was deployed, brings about what should run and knows what does. `local`
starts instances on this machine itself, by a `Backend`. Everything else of a provider (routes,
credentials, calls, metrics) is above this port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from prometheus_client.registry import Collector

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.function import Function
    from faas_stack.provider.function_namespace import FunctionNamespace
    from faas_stack.provider.logs import LogLine, LogQuery
    from faas_stack.provider.replica import Replica

__all__ = ["NamespaceStore", "Orchestrator", "Reloaded", "Secrets"]

F = TypeVar("F", bound="Function")


class Reloaded(NamedTuple):
    """What became of a reload.

    Attributes:
        replicas: how many instances there should be.
        finished: whether all of them are new ones and ready; else the replacement has begun.
    """

    replicas: int
    finished: bool


class Secrets(Protocol):
    """The functions' secrets by name and namespace; values go in and never come out."""

    async def names(self, namespace: str) -> list[str]:
        """The names of a namespace's secrets, in order."""
        ...

    async def create(self, name: str, namespace: str, value: bytes) -> None:
        """Add a secret.

        Raises:
            BadRequest: the name cannot be used.
            Conflict: there is one of that name.
        """
        ...

    async def update(self, name: str, namespace: str, value: bytes) -> None:
        """Replace a secret's value.

        Raises:
            NotFound: there is no such secret.
        """
        ...

    async def remove(self, name: str, namespace: str) -> None:
        """Delete a secret.

        Raises:
            NotFound: there is no such secret.
        """
        ...


class NamespaceStore(Protocol):
    """The namespaces that functions may be in."""

    async def get(self, name: str) -> FunctionNamespace:
        """One by its name.

        Raises:
            NotFound: functions are in no such namespace.
        """
        ...

    async def create(self, namespace: FunctionNamespace) -> None:
        """Add one.

        Raises:
            Conflict: there is one of that name.
            CarpoolError: the provider may not, or does not do that.
        """
        ...

    async def update(self, namespace: FunctionNamespace) -> None:
        """Set labels and annotations of one.

        Raises:
            NotFound: functions are in no such namespace.
            CarpoolError: the provider may not, or does not do that.
        """
        ...

    async def remove(self, name: str) -> None:
        """Delete one, with its functions.

        Raises:
            NotFound: functions are in no such namespace.
            CarpoolError: the provider may not, or does not do that.
        """
        ...


class Orchestrator(Protocol[F]):
    """All functions of a provider. `open` it first."""

    @property
    def default_namespace(self) -> str:
        """The namespace of functions that name none."""
        ...

    @property
    def secrets(self) -> Secrets:
        """The functions' secrets."""
        ...

    @property
    def namespace_store(self) -> NamespaceStore:
        """Their namespaces."""
        ...

    @property
    def collectors(self) -> Sequence[Collector]:
        """What it adds to the provider's metrics."""
        ...

    @property
    def behind(self) -> bool:
        """Whether what it knows may be old, as changes do not reach it now."""
        ...

    def about(self) -> Mapping[str, Any]:
        """What ``/system/info`` says of it: ``orchestration``, and where known more."""
        ...

    async def open(self) -> None:
        """Make ready to answer, with the functions that there are already.

        Raises:
            CarpoolError: it cannot be used, and why.
        """
        ...

    def find(self, name: str, namespace: str) -> F:
        """The function of that name.

        Raises:
            NotFound: there is none.
        """
        ...

    def get(self, name: str, namespace: str) -> F | None:
        """The function of that name, if there is one."""
        ...

    def all(self, namespace: str | None = None) -> list[F]:
        """The functions of a namespace, or all; in order of name."""
        ...

    def namespaces(self) -> list[str]:
        """The default namespace and every other for functions, in order."""
        ...

    async def deploy(self, deployment: Deployment) -> F:
        """Add a function.

        Raises:
            Conflict: there is one of that name.
            CarpoolError: it cannot run here, or there is no capacity for it.
        """
        ...

    async def update(self, deployment: Deployment) -> None:
        """Replace a function, without a gap in service.

        Raises:
            NotFound: there is none of that name.
            CarpoolError: the new one cannot run here; the old one stays.
        """
        ...

    async def reload(self, name: str, namespace: str, ready_s: float) -> Reloaded:
        """Replace a function's instances by ones that load its model anew, without a gap.

        Args:
            name: of the function.
            namespace: of the function.
            ready_s: how long they may take to become ready, where that is waited for.

        Raises:
            NotFound: there is no such function.
            Conflict: it was updated meanwhile.
            FunctionFault: the new ones do not become ready; the old ones serve on.
        """
        ...

    async def scale(self, name: str, namespace: str, replicas: int) -> None:
        """Set how many replicas a function has.

        Raises:
            NotFound: there is no such function.
            CarpoolError: so many cannot be; nothing is changed.
        """
        ...

    async def remove(self, name: str, namespace: str) -> None:
        """Take a function away; its replicas answer what they have.

        Raises:
            NotFound: there is no such function.
        """
        ...

    def choose(self, function: F) -> Replica | None:
        """A ready replica, if the function is there and has one; it is not acquired."""
        ...

    async def acquire(self, function: F) -> Replica:
        """A ready replica for one request, started first if the function is scaled to zero.

        The caller must ``release`` it.

        Raises:
            Overloaded: there is none, for lack of capacity, or none became ready in time.
            NotFound: the function was removed meanwhile.
        """
        ...

    def lines(self, function: F, query: LogQuery) -> AsyncIterator[Sequence[LogLine]]:
        """What a function has printed, and what it prints from now on if the query follows."""
        ...

    async def close(self) -> None:
        """The provider ends: end what does not outlive it, release the rest."""
        ...
