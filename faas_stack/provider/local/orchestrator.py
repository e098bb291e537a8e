"""Deployed functions: the desired state, and the replica set that realises each.

This is the only place that changes what is deployed; the REST API and ``carpool up`` both use it.
Before a change is made, its resources are reserved in the backend's ledger, which refuses what the
machine does not have, and it is written to the journal, if there is one. Independent of HTTP.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from carpool.errors import BadRequest, CarpoolError, Conflict, NotFound
from carpool.task_set import TaskSet
from carpool.validation.problems import nearest
from faas_stack.partition.allocation import Reservation
from faas_stack.provider.deployment import DEFAULT_NAMESPACE
from faas_stack.provider.function import initial_replicas
from faas_stack.provider.local.implied_namespaces import ImpliedNamespaces
from faas_stack.provider.local.journal import Entry
from faas_stack.provider.local.local_function import LocalFunction
from faas_stack.provider.local.machine_metrics import MachineMetrics
from faas_stack.provider.local.replica_set import ReplicaSet
from faas_stack.provider.local.rollout import Rollout
from faas_stack.provider.secrets import LocalSecrets, SecretStore
from faas_stack.provider.storage import NoSpace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from faas_stack.provider.backend import Backend
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.local.journal import Journal
    from faas_stack.provider.logs import LogLine, LogQuery
    from faas_stack.provider.orchestrator import Reloaded
    from faas_stack.provider.replica import Replica
    from faas_stack.provider.scaler_access import ScalerAccess

__all__ = ["LocalOrchestrator"]

log = logging.getLogger(__name__)


class LocalOrchestrator:
    """All functions of a provider whose instances run on this machine.

    Args:
        backend: Backend that runs them.
        store: Their secrets.
        grace_s: Time that a removed replica may take to finish its requests.
        patience_s: Time that a request waits for a replica to become ready.
        journal: Journal of the deployed functions, if instances outlive the provider.

    Attributes:
        scaler: The scaler that sets the number of instances of functions with a scaling policy;
            None if there is no scaler.
        rollout: Rolls out new revisions, and rolls back those that do not become ready.
    """

    default_namespace = DEFAULT_NAMESPACE
    behind = False  # no other process changes its state

    def __init__(
        self,
        backend: Backend,
        store: SecretStore,
        *,
        grace_s: float = 10.0,
        patience_s: float = 60.0,
        journal: Journal | None = None,
    ) -> None:
        self.backend = backend
        self.secrets = LocalSecrets(store)
        self.namespace_store = ImpliedNamespaces(self.namespaces)
        self.collectors = [MachineMetrics(backend)]
        self.scaler: ScalerAccess | None = None
        self.rollout = Rollout(self)
        self._journal = journal
        self._grace_s = grace_s
        self._patience_s = patience_s
        self._functions: dict[tuple[str, str], LocalFunction] = {}
        self._leaving = TaskSet()

    def find(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> LocalFunction:
        """Return the function with the given name.

        Raises:
            NotFound: There is no such function.
        """
        if function := self.get(name, namespace):
            return function
        hint = nearest(name, [n for n, ns in self._functions if ns == namespace])
        message = f"no function {name!r} in namespace {namespace!r}"
        raise NotFound(f"{message}; {hint}" if hint else message)

    def get(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> LocalFunction | None:
        """Return the function with the given name; None if there is none."""
        return self._functions.get((name, namespace))

    def all(self, namespace: str | None = None) -> list[LocalFunction]:
        """Return the functions of a namespace, or of all namespaces, sorted by name."""
        by_name = sorted(self._functions.items())
        return [f for (_, ns), f in by_name if namespace is None or ns == namespace]

    def namespaces(self) -> list[str]:
        """Return the default namespace and all others that have a function."""
        return sorted({DEFAULT_NAMESPACE} | {namespace for _, namespace in self._functions})

    def about(self) -> dict[str, Any]:
        """Return the backend, the machine's capacity for functions and the scaler's address."""
        machine = self.backend.ledger.capacity.to_dict()
        more = {"machine": machine, "scaler": self.scaler.address if self.scaler else ""}
        known = {key: value for key, value in more.items() if value}
        return {"orchestration": self.backend.name, **known}

    async def open(self) -> None:
        """Add the functions of the journal, as they were when the last provider ended.

        Raises:
            ConfigError: The journal cannot be read.
        """
        for entry in list(self._journal.entries()) if self._journal else ():
            try:
                self._reserve(entry)
            except CarpoolError as error:  # the machine shrank; existing instances continue
                log.warning("%s", error)
                each = self.backend.size(self._as_run(entry.deployment))
                self.backend.ledger.record(
                    _owner(entry.deployment), Reservation(each, entry.replicas)
                )
            self._add(entry)

    async def deploy(self, deployment: Deployment) -> LocalFunction:
        """Add a function.

        Raises:
            Conflict: A function with that name exists.
            NoCapacity: The resources it needs are reserved for other functions.
            CarpoolError: The function cannot run here.
        """
        self._refuse_second(deployment)
        entry = Entry(deployment, self._initial_replicas(deployment), datetime.now(UTC))
        try:
            await self.backend.check(self._as_run(deployment))
            self._refuse_second(deployment)  # the state may have changed during the wait
            self._keep(entry)
        except CarpoolError:
            if self.get(deployment.service, deployment.namespace) is None:
                self._revoke(deployment)
            raise
        return self._add(entry)

    async def update(self, deployment: Deployment) -> None:
        """Replace a function without interrupting service.

        Raises:
            NotFound: There is no function with that name.
            NoCapacity: The resources it needs are reserved for others; the old function stays.
            CarpoolError: The new function cannot run here; the old one stays.
        """
        await self.replace(deployment)

    async def replace(self, deployment: Deployment) -> Callable[[], None]:
        """Replace a function as `update` does, and return a function that rolls it back.

        Returns:
            A function that rolls back the change, unless another deployment has followed.
        """
        self.find(deployment.service, deployment.namespace)
        await self.backend.check(self._as_run(deployment))
        function = self.find(deployment.service, deployment.namespace)
        deployment = deployment.as_update_of(function.deployment)
        return self._become(function, deployment, self._initial_replicas(deployment))

    async def renew(self, name: str, namespace: str) -> Callable[[], None]:
        """Replace a function by the same once more, as many replicas as it has.

        Returns:
            As `replace`.
        """
        await self.backend.check(self._as_run(self.find(name, namespace).deployment))
        function = self.find(name, namespace)  # the function may have been replaced during the wait
        return self._become(function, replace(function.deployment, uid=uuid.uuid4().hex), 0)

    def _become(
        self, function: LocalFunction, deployment: Deployment, least: int
    ) -> Callable[[], None]:
        before, revision = function.deployment, function.replica_set.revision
        as_run = self._as_run(deployment)
        replicas = max(function.replicas, least)
        self._keep(Entry(deployment, replicas, function.created))
        if as_run is deployment:
            self._revoke(deployment)
        function.update(deployment, as_run, replicas)
        return functools.partial(self._take_back, function, deployment, before, revision)

    async def reload(self, name: str, namespace: str, ready_s: float) -> Reloaded:
        """Replace a function's instances, so that its model is loaded again, without interruption.

        Raises:
            NotFound: There is no such function.
            CarpoolError: As for `Rollout.roll_out`.
        """
        return await self.rollout.reload(name, namespace, ready_s)

    async def scale(self, name: str, namespace: str, replicas: int) -> None:
        """Set the number of replicas of a function.

        Raises:
            NotFound: There is no such function.
            BadRequest: Not a valid number of replicas.
            ConfigError: The machine is too small for that number.
            NoCapacity: The resources needed are reserved for other functions; nothing is changed.
        """
        if replicas < 0:
            message = f"replicas = {replicas}: expected a whole number of at least 0"
            raise BadRequest(message)
        function = self.find(name, namespace)
        self._keep(Entry(function.deployment, replicas, function.created))
        function.replicas = replicas
        function.replica_set.scale(replicas)

    async def remove(self, name: str, namespace: str) -> None:
        """Remove a function; its replicas finish their in-flight requests.

        Raises:
            NotFound: There is no such function.
        """
        function = self.find(name, namespace)
        if self._journal:
            self._journal.forget(name, namespace)
        del self._functions[name, namespace]
        self.backend.ledger.record(_owner(function.deployment), None)
        self._revoke(function.deployment)
        function.replicas = 0
        self._leaving.start(function.replica_set.remove())

    def choose(self, function: LocalFunction) -> Replica | None:
        """Return a ready replica without acquiring it; None if there is none."""
        deployment = function.deployment
        if self.get(deployment.service, deployment.namespace) is not function:
            return None
        return function.replica_set.choose() if function.replicas else None

    async def acquire(self, function: LocalFunction) -> Replica:
        """Acquire a replica for one request, starting one whenever the function is at zero.

        The caller must ``release`` it.

        Raises:
            Overloaded: There is no capacity for a replica, or none became ready in time.
            NotFound: The function was removed in the meantime.
        """
        start = functools.partial(self._start, function)
        return await function.replica_set.acquire(self._patience_s, start)

    async def lines(self, function: LocalFunction, query: LogQuery) -> AsyncIterator[list[LogLine]]:
        """Yield the kept log lines; if the query follows, also new ones.

        Following ends when the function is removed.
        """
        ring = function.replica_set.log
        position = ring.next
        yield query.choose(ring.since(0))
        while query.follow and not ring.closed:
            await ring.more(position)
            lines = [line for line in ring.since(position) if query.has(line)]
            position = ring.next
            yield lines

    async def close(self) -> None:
        """Drain all functions and wait for their replicas to end; lasting ones are released."""
        if self.backend.lasting:
            for function in self._functions.values():
                function.replica_set.leave()
            return
        for name, namespace in list(self._functions):
            await self.remove(name, namespace)
        await self._leaving.join()

    async def _start(self, function: LocalFunction) -> None:
        """Start a function if it is scaled to zero.

        Raises:
            NoCapacity: There is no capacity for a replica.
            NotFound: The function was removed.
        """
        service, namespace = function.deployment.service, function.deployment.namespace
        if self.get(service, namespace) is not function:
            message = f"function {service!r} was removed"
            raise NotFound(message)
        if function.replicas:
            return
        replicas = max(1, self._initial_replicas(function.deployment))
        entry = Entry(function.deployment, replicas, function.created)
        with contextlib.suppress(NoSpace):  # must not fail a request
            self._keep(entry)
        self._reserve(entry)
        function.replicas = replicas
        function.replica_set.scale(replicas)

    def _take_back(
        self, function: LocalFunction, failed: Deployment, before: Deployment, revision: int
    ) -> None:
        there = self.get(failed.service, failed.namespace)
        if there is not function or function.deployment is not failed:
            return
        with contextlib.suppress(CarpoolError):  # it had been reserved and stored before
            self._keep(Entry(before, function.replicas, function.created))
        function.become(before)
        function.replica_set.roll_back(self._as_run(before), revision)

    def _refuse_second(self, deployment: Deployment) -> None:
        key = deployment.service, deployment.namespace
        if key in self._functions:
            message = f"function {key[0]!r} exists in namespace {key[1]!r}; update it with PUT"
            raise Conflict(message)

    def _keep(self, entry: Entry) -> None:
        """Reserve an entry's resources and write it to the journal; do neither if one fails."""
        before = self._reserve(entry)
        if self._journal:
            try:
                self._journal.keep(entry)
            except CarpoolError:
                self.backend.ledger.record(_owner(entry.deployment), before)
                raise

    def _reserve(self, entry: Entry) -> Reservation | None:
        each = self.backend.size(self._as_run(entry.deployment))
        owner = _owner(entry.deployment)
        return self.backend.ledger.reserve(owner, each, entry.replicas)

    def _add(self, entry: Entry) -> LocalFunction:
        deployment = entry.deployment
        replica_set = ReplicaSet(self.backend, self._as_run(deployment), self._grace_s)
        function = LocalFunction(entry, replica_set)
        self._functions[deployment.service, deployment.namespace] = function
        replica_set.scale(entry.replicas)
        return function

    def _as_run(self, deployment: Deployment) -> Deployment:
        return self.scaler.grant(deployment) if self.scaler else deployment

    def _revoke(self, deployment: Deployment) -> None:
        if self.scaler:
            self.scaler.revoke(deployment)

    def _initial_replicas(self, deployment: Deployment) -> int:
        return initial_replicas(deployment, scaled=self.scaler is not None)


def _owner(deployment: Deployment) -> str:
    """Return the name of a function in the ledger."""
    default = deployment.namespace == DEFAULT_NAMESPACE
    return deployment.service if default else f"{deployment.service}.{deployment.namespace}"
