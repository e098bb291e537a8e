"""The functions there should be: desired state, and the replica set that realises each.

The one place that changes what is deployed; the REST API and ``carpool up`` both come through
here. What there should be is promised by the backend's ledger, which refuses what the machine has
not, and written down where a journal is given, before anything is done about it. Knows no HTTP.
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
from faas_stack.partition.allocation import Promise
from faas_stack.provider.deployment import DEFAULT_NAMESPACE
from faas_stack.provider.function import initial_replicas
from faas_stack.provider.local.implied_namespaces import ImpliedNamespaces
from faas_stack.provider.local.journal import Entry
from faas_stack.provider.local.local_function import LocalFunction
from faas_stack.provider.local.machine_metrics import MachineMetrics
from faas_stack.provider.local.replica_set import ReplicaSet
from faas_stack.provider.local.rollout import Rollout
from faas_stack.provider.local.secrets import LocalSecrets
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
    from faas_stack.provider.secrets import SecretStore

__all__ = ["LocalOrchestrator"]

log = logging.getLogger(__name__)


class LocalOrchestrator:
    """All functions of a provider whose instances are this machine's.

    Args:
        backend: what runs them.
        store: their secrets.
        grace_s: how long a replica that is taken away may continue with its requests.
        patience_s: how long a request waits for a replica to become ready.
        journal: where to write down what there should be, if instances outlive the provider.

    Attributes:
        scaler: what decides how many instances functions with a scaling policy have; None: nobody.
        rollout: brings new revisions about, and takes those back that do not become ready.
    """

    default_namespace = DEFAULT_NAMESPACE
    behind = False  # nobody else changes what this keeps

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
        """The function of that name.

        Raises:
            NotFound: there is none.
        """
        if function := self.get(name, namespace):
            return function
        hint = nearest(name, [n for n, ns in self._functions if ns == namespace])
        message = f"no function {name!r} in namespace {namespace!r}"
        raise NotFound(f"{message}; {hint}" if hint else message)

    def get(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> LocalFunction | None:
        """The function of that name, if there is one."""
        return self._functions.get((name, namespace))

    def all(self, namespace: str | None = None) -> list[LocalFunction]:
        """The functions of a namespace, or all; in order of name."""
        by_name = sorted(self._functions.items())
        return [f for (_, ns), f in by_name if namespace is None or ns == namespace]

    def namespaces(self) -> list[str]:
        """The default namespace and every other that holds a function."""
        return sorted({DEFAULT_NAMESPACE} | {namespace for _, namespace in self._functions})

    def about(self) -> dict[str, Any]:
        """The backend, what the machine has for functions and where the scaler is."""
        machine = self.backend.ledger.capacity.to_dict()
        more = {"machine": machine, "scaler": self.scaler.address if self.scaler else ""}
        known = {key: value for key, value in more.items() if value}
        return {"orchestration": self.backend.name, **known}

    async def open(self) -> None:
        """Add the functions of the journal, as they were when the last provider ended.

        Raises:
            ConfigError: the journal cannot be read.
        """
        for entry in list(self._journal.entries()) if self._journal else ():
            try:
                self._promise(entry)
            except CarpoolError as error:  # the machine shrank; what runs already continues
                log.warning("%s", error)
                each = self.backend.size(self._as_run(entry.deployment))
                self.backend.ledger.record(_owner(entry.deployment), Promise(each, entry.replicas))
            self._add(entry)

    async def deploy(self, deployment: Deployment) -> LocalFunction:
        """Add a function.

        Raises:
            Conflict: there is one of that name.
            NoCapacity: others were promised what it needs.
            CarpoolError: it cannot run here.
        """
        self._refuse_second(deployment)
        entry = Entry(deployment, self._initial_replicas(deployment), datetime.now(UTC))
        try:
            await self.backend.check(self._as_run(deployment))
            self._refuse_second(deployment)  # that may have taken long
            self._keep(entry)
        except CarpoolError:
            if self.get(deployment.service, deployment.namespace) is None:
                self._revoke(deployment)
            raise
        return self._add(entry)

    async def update(self, deployment: Deployment) -> None:
        """Replace a function, without a gap in service.

        Raises:
            NotFound: there is none of that name.
            NoCapacity: the new one needs what others were promised; the old one stays.
            CarpoolError: the new one cannot run here; the old one stays.
        """
        await self.replace(deployment)

    async def replace(self, deployment: Deployment) -> Callable[[], None]:
        """As `update`.

        Returns:
            What takes that back, unless something else was deployed since.
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
        function = self.find(name, namespace)  # that may have taken long: it may be another now
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
        """Replace a function's instances by ones that load its model anew, without a gap.

        Raises:
            NotFound: there is no such function.
            CarpoolError: as `Rollout.roll_out`.
        """
        return await self.rollout.reload(name, namespace, ready_s)

    async def scale(self, name: str, namespace: str, replicas: int) -> None:
        """Set how many replicas a function has.

        Raises:
            NotFound: there is no such function.
            BadRequest: not a number of replicas.
            ConfigError: the machine can never have so many.
            NoCapacity: others were promised what so many need; nothing is changed.
        """
        if replicas < 0:
            message = f"replicas = {replicas}: expected a whole number of at least 0"
            raise BadRequest(message)
        function = self.find(name, namespace)
        self._keep(Entry(function.deployment, replicas, function.created))
        function.replicas = replicas
        function.replica_set.scale(replicas)

    async def remove(self, name: str, namespace: str) -> None:
        """Take a function away; its replicas answer what they have.

        Raises:
            NotFound: there is no such function.
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
        """A ready replica, if the function is there and has one; it is not acquired."""
        deployment = function.deployment
        if self.get(deployment.service, deployment.namespace) is not function:
            return None
        return function.replica_set.choose() if function.replicas else None

    async def acquire(self, function: LocalFunction) -> Replica:
        """A replica for one request, started first if the function is scaled to zero.

        The caller must ``release`` it.

        Raises:
            Overloaded: there is none, for lack of capacity, or none became ready in time.
            NotFound: the function was removed meanwhile.
        """
        service, namespace = function.deployment.service, function.deployment.namespace
        if self.get(service, namespace) is not function:
            message = f"function {service!r} was removed"
            raise NotFound(message)
        if not function.replicas:
            replicas = max(1, self._initial_replicas(function.deployment))
            entry = Entry(function.deployment, replicas, function.created)
            with contextlib.suppress(NoSpace):  # no reason to fail a request
                self._keep(entry)
            self._promise(entry)
            function.replicas = replicas
            function.replica_set.scale(replicas)
        return await function.replica_set.acquire(self._patience_s)

    async def lines(self, function: LocalFunction, query: LogQuery) -> AsyncIterator[list[LogLine]]:
        """The kept lines, then each as it is printed, until the function is removed."""
        ring = function.replica_set.log
        position = ring.next
        yield query.choose(ring.since(0))
        while query.follow and not ring.closed:
            await ring.more(position)
            lines = [line for line in ring.since(position) if query.has(line)]
            position = ring.next
            yield lines

    async def close(self) -> None:
        """Drain every function and wait until its replicas are gone, unless they are to last."""
        if self.backend.lasting:
            for function in self._functions.values():
                function.replica_set.leave()
            return
        for name, namespace in list(self._functions):
            await self.remove(name, namespace)
        await self._leaving.join()

    def _take_back(
        self, function: LocalFunction, failed: Deployment, before: Deployment, revision: int
    ) -> None:
        there = self.get(failed.service, failed.namespace)
        if there is not function or function.deployment is not failed:
            return
        with contextlib.suppress(CarpoolError):  # it was promised and written down before
            self._keep(Entry(before, function.replicas, function.created))
        function.become(before)
        function.replica_set.roll_back(self._as_run(before), revision)

    def _refuse_second(self, deployment: Deployment) -> None:
        key = deployment.service, deployment.namespace
        if key in self._functions:
            message = f"function {key[0]!r} exists in namespace {key[1]!r}; update it with PUT"
            raise Conflict(message)

    def _keep(self, entry: Entry) -> None:
        """Promise what it needs, and write it down; neither, if one cannot be."""
        before = self._promise(entry)
        if self._journal:
            try:
                self._journal.keep(entry)
            except CarpoolError:
                self.backend.ledger.record(_owner(entry.deployment), before)
                raise

    def _promise(self, entry: Entry) -> Promise | None:
        each = self.backend.size(self._as_run(entry.deployment))
        owner = _owner(entry.deployment)
        return self.backend.ledger.promise(owner, each, entry.replicas)

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
    """What the ledger calls a function."""
    default = deployment.namespace == DEFAULT_NAMESPACE
    return deployment.service if default else f"{deployment.service}.{deployment.namespace}"
