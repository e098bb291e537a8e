"""Deployed functions as Deployments of a cluster: `Orchestrator` over the API server.

The only state kept here is what watches have reported. Every change is a request to the API server,
which responds once the change is stored; Kubernetes carries it out. Providers may therefore start
and stop at any time, and several may run at once.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets as randomness
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from carpool.backoff import Backoff
from carpool.errors import BadRequest, CarpoolError, Conflict, NotFound, Overloaded
from carpool.task_set import TaskSet
from carpool.validation.problems import Problems, nearest
from faas_stack.provider.function import initial_replicas
from faas_stack.provider.kubernetes.api_errors import AlreadyExists, Overtaken
from faas_stack.provider.kubernetes.api_server import collection
from faas_stack.provider.kubernetes.blocked_updates import BlockedUpdates
from faas_stack.provider.kubernetes.cluster_namespaces import ClusterNamespaces
from faas_stack.provider.kubernetes.cluster_secrets import ClusterSecrets
from faas_stack.provider.kubernetes.dependents import Dependents
from faas_stack.provider.kubernetes.image_pulls import ImagePulls
from faas_stack.provider.kubernetes.manifests import (
    as_update,
    manifest,
    read_function,
    set_missing_pods,
)
from faas_stack.provider.kubernetes.names import ID, REVISION, object_name
from faas_stack.provider.kubernetes.namespace import DEPLOYMENTS, PODS
from faas_stack.provider.kubernetes.namespaces import Namespaces
from faas_stack.provider.kubernetes.pod_logs import PodLogs
from faas_stack.provider.kubernetes.pod_state import DELETION_COST
from faas_stack.provider.kubernetes.scale_in import ScaleInCandidate, deletion_costs
from faas_stack.provider.kubernetes.watch_metrics import WatchMetrics
from faas_stack.provider.orchestrator import Reloaded
from faas_stack.provider.scaler_access import model_runners

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
    from faas_stack.provider.kubernetes.options import KubernetesOptions
    from faas_stack.provider.logs import LogLine, LogQuery
    from faas_stack.provider.replica import Replica

__all__ = ["KubernetesOrchestrator"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOST = 150_000  # pods per cluster, the limit that Kubernetes documents
_TRIES = 6  # attempts of a change that conflicts with another one
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.02, 1.0  # between attempts
_MARKS = 16  # pods that are marked at once


class KubernetesOrchestrator:
    """All functions of a provider for a cluster.

    Args:
        api: API server of the cluster.
        options: Settings for running functions.
    """

    def __init__(self, api: ApiServer, options: KubernetesOptions) -> None:
        self._api = api
        self._options = options
        self.default_namespace = options.namespace
        self._namespaces = Namespaces(api, options.namespace)
        self.secrets = ClusterSecrets(api, self._namespaces)
        self.namespace_store = ClusterNamespaces(api, self._namespaces)
        self.collectors = [WatchMetrics(self._namespaces)]
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._dependents = Dependents(api, options)
        self._image_pulls = ImagePulls(api, self._namespaces, options)
        self.blocked_updates = BlockedUpdates(api, self._namespaces, options.capacity_patience_s)
        self._tasks = TaskSet()

    @property
    def behind(self) -> bool:
        """Whether changes in the cluster may currently go unseen."""
        return self._namespaces.behind

    def about(self) -> dict[str, Any]:
        """Return the orchestration, ``kubernetes``, and the scaler's address, if there is one."""
        scaler = self._options.scaler
        return {"orchestration": "kubernetes", **({"scaler": scaler.address} if scaler else {})}

    async def open(self) -> None:
        """Read the state of the cluster and start to watch it.

        Raises:
            CarpoolError: The cluster cannot be reached or refuses the request.
        """
        await self._namespaces.open()
        self._tasks.start(self.blocked_updates.run())
        if self._options.prepull:
            self._tasks.start(self._image_pulls.run())

    def find(self, name: str, namespace: str) -> KubernetesFunction:
        """Return the function with the given name.

        Raises:
            NotFound: There is no such function.
        """
        if function := self.get(name, namespace):
            return function
        there = self._namespaces.get(namespace)
        hint = nearest(name, there.functions) if there else ""
        message = f"no function {name!r} in namespace {namespace!r}"
        raise NotFound(f"{message}; {hint}" if hint else message)

    def get(self, name: str, namespace: str) -> KubernetesFunction | None:
        """Return the function with the given name; None if there is none."""
        there = self._namespaces.get(namespace)
        return there.functions.get(name) if there else None

    def all(self, namespace: str | None = None) -> list[KubernetesFunction]:
        """Return the functions of a namespace, or of all namespaces, sorted by name."""
        chosen = (each for each in self._namespaces if namespace in (None, each.name))
        functions = [function for each in chosen for function in each.functions.values()]
        return sorted(functions, key=lambda f: (f.deployment.service, f.deployment.namespace))

    def namespaces(self) -> list[str]:
        """Return the default namespace and all others that are labelled for functions."""
        return [namespace.name for namespace in self._namespaces]

    async def deploy(self, deployment: Deployment) -> KubernetesFunction:
        """Add a function.

        Raises:
            Conflict: A function with that name exists.
            CarpoolError: The cluster refuses the function; the message says why.
        """
        namespace = self._namespaces.find(deployment.namespace)
        replicas = self._initial_replicas(deployment)
        logins = await self._logins(deployment)
        document = manifest(deployment, replicas, randomness.token_hex(8), self._options, logins)
        path = collection(DEPLOYMENTS, deployment.namespace)
        try:
            stored = await _unless_overtaken(lambda: self._api.create(path, document))
        except AlreadyExists:
            await self._dependents.check_ours(
                DEPLOYMENTS, deployment.namespace, document["metadata"]["name"]
            )
            message = (
                f"function {deployment.service!r} exists in namespace "
                f"{deployment.namespace!r}; update it with PUT"
            )
            raise Conflict(message) from None
        try:
            await self._dependents.apply(deployment, stored)
        except CarpoolError:
            with suppress(CarpoolError):
                await self._api.remove(f"{path}/{stored['metadata']['name']}")
            raise
        return namespace.stored(read_function(stored))

    async def update(self, deployment: Deployment) -> None:
        """Replace a function, pod by pod.

        Raises:
            NotFound: There is no function with that name.
            CarpoolError: The cluster refuses the new function; the old one stays.
        """
        function = self.find(deployment.service, deployment.namespace)
        manifest(deployment, 0, function.stored.id, self._options)  # raises if invalid: 400
        logins = await self._logins(deployment)
        await self._dependents.apply(deployment, await self._live(deployment))
        stored = await _unless_overtaken(lambda: self._replace(deployment, logins))
        self._namespaces.find(deployment.namespace).stored(read_function(stored))

    async def reload(self, name: str, namespace: str, ready_s: float) -> Reloaded:  # noqa: ARG002 - Kubernetes brings it about
        """Begin to replace a function's pods one by one, as ``kubectl rollout restart`` does.

        Raises:
            NotFound: There is no such function.
            CarpoolError: The cluster refuses the change.
        """
        requested = self.find(name, namespace).deployment
        others = (function.deployment for function in self.all(namespace))
        runners = model_runners(requested, others, scaled=self._options.scaler is not None)
        for each in runners:
            await _unless_overtaken(functools.partial(self._restart, each))
        functions = (self.get(each.service, namespace) for each in runners)
        return Reloaded(sum(each.replicas for each in functions if each), finished=False)

    async def scale(self, name: str, namespace: str, replicas: int) -> None:
        """Set the number of replicas of a function.

        Raises:
            NotFound: There is no such function.
            BadRequest: Not a valid number of replicas, or more than any cluster supports.
        """
        if not 0 <= replicas <= _MOST:
            message = (
                f"replicas = {replicas}: expected a whole number of at least 0, at most {_MOST}"
            )
            raise BadRequest(message)
        function = self.find(name, namespace)
        if replicas == 1 and function.stored.gives_way:
            await _unless_overtaken(functools.partial(self._keep_last, function.deployment))
        if 0 < replicas < function.available:
            await self._mark_idle(function, replicas)
        await self._scale(function, {"spec": {"replicas": replicas}})

    async def remove(self, name: str, namespace: str) -> None:
        """Remove a function; its pods finish their in-flight requests.

        Raises:
            NotFound: There is no such function.
        """
        function = self.find(name, namespace)
        with suppress(NotFound):
            await self._api.remove(collection(DEPLOYMENTS, namespace, object_name(name)))
        self._namespaces.find(namespace).removed(function)

    def choose(self, function: KubernetesFunction) -> Replica | None:
        """Return a ready pod without acquiring it; None if the function has none or is removed."""
        return function.choose()

    async def acquire(self, function: KubernetesFunction) -> Replica:
        """Acquire a ready pod for one call, scaling from zero if needed; the caller releases it.

        Raises:
            Overloaded: No pod became ready in time, or none can become ready.
            NotFound: The function was removed in the meantime.
        """
        start = functools.partial(self._start_for_call, function)
        return await function.acquire(self._options.patience_s, start)

    def lines(self, function: KubernetesFunction, query: LogQuery) -> AsyncIterator[list[LogLine]]:
        """Return the log lines of the function's pods, including new ones if the query follows."""
        return PodLogs(self._api, function, query).lines()

    async def close(self) -> None:
        """Stop watching the cluster; functions keep running."""
        self._tasks.cancel()
        await self._namespaces.close()
        await self._api.close()

    def _initial_replicas(self, deployment: Deployment) -> int:
        return initial_replicas(deployment, scaled=self._options.scaler is not None)

    async def _logins(self, deployment: Deployment) -> frozenset[str]:
        """Return the deployment's secrets that are used to pull its image.

        Raises:
            ConfigError: A secret does not exist, so that pods would wait for it indefinitely.
        """
        problems = Problems()
        for name in deployment.secrets:
            if not await self.secrets.exists(name, deployment.namespace):
                problems.add("secrets", name, "an existing secret", "create it first")
        problems.raise_if_any()
        return await self.secrets.logins(deployment.secrets, deployment.namespace)

    async def _live(self, deployment: Deployment) -> dict[str, Any]:
        """Return the current Deployment of a function."""
        return await self._api.get(_path(deployment))

    async def _replace(self, deployment: Deployment, logins: frozenset[str]) -> dict[str, Any]:
        """Store a new version of a function's Deployment.

        Raises:
            Overtaken: Another change was stored in the meantime.
        """
        live = await self._live(deployment)
        replicas = max(live["spec"].get("replicas", 1), self._initial_replicas(deployment))
        identity = live["metadata"]["labels"][ID]
        update = as_update(deployment, live)
        document = manifest(update, replicas, identity, self._options, logins)
        document["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        return await self._api.replace(_path(deployment), document)

    async def _restart(self, deployment: Deployment) -> None:
        """Recreate a function's pods by giving them a new revision.

        Raises:
            Overtaken: Another change was stored in the meantime.
        """
        live = await self._live(deployment)
        live["spec"]["template"]["metadata"]["annotations"][REVISION] = uuid.uuid4().hex
        await self._replace_with_all(deployment, live)

    async def _keep_last(self, deployment: Deployment) -> None:
        """Keep an update that has stopped a pod for capacity from stopping the only one left.

        Raises:
            Overtaken: another change has come between.
        """
        await self._replace_with_all(deployment, await self._live(deployment))

    async def _replace_with_all(self, deployment: Deployment, live: dict[str, Any]) -> None:
        """Store a Deployment of which an update ends no pod before its successor is ready."""
        set_missing_pods(live, 0)
        stored = await self._api.replace(_path(deployment), live)
        self._namespaces.find(deployment.namespace).stored(read_function(stored))

    async def _scale(self, function: KubernetesFunction, change: dict[str, Any]) -> None:
        scaled = await self._api.merge(f"{_path(function.deployment)}/scale", change)
        replicas = scaled["spec"].get("replicas", 0)
        version = int(scaled["metadata"]["resourceVersion"])  # the Deployment's own version
        function.update(replace(function.stored, replicas=replicas, version=version))

    async def _mark_idle(self, function: KubernetesFunction, left: int) -> None:
        """Mark the ready pods with the fewest calls as the ones to remove."""
        costs = {pod.name: pod.deletion_cost for pod in function.pods}
        ready = (each for each in function.running if each.ready)
        candidates = (
            ScaleInCandidate(each.instance.name, each.in_flight, costs[each.instance.name])
            for each in ready
        )
        at_once = asyncio.Semaphore(_MARKS)
        written = deletion_costs(candidates, left).items()
        marks = (self._mark(function, name, cost, at_once) for name, cost in written)
        await asyncio.gather(*marks, return_exceptions=True)  # only hints: may fail

    async def _mark(
        self, function: KubernetesFunction, pod: str, cost: str, at_once: asyncio.Semaphore
    ) -> None:
        path = collection(PODS, function.deployment.namespace, pod)
        change = {"metadata": {"annotations": {DELETION_COST: cost or None}}}
        async with at_once:
            await self._api.merge(path, change)

    async def _start_for_call(self, function: KubernetesFunction) -> None:
        """Start a function if it is scaled to zero; log errors, as callers should not see them.

        Raises:
            Overloaded: The function cannot be started now.
        """
        if not _at_zero(function):
            return
        try:
            await self._start(function)
        except CarpoolError as error:
            name = function.deployment.service
            log.warning("carpool: function %s is not started: %s", name, error)
            message = f"function {name!r} cannot be started now"
            raise Overloaded(message, 1.0) from error

    async def _start(self, function: KubernetesFunction) -> None:
        """Scale a function from zero, once for all calls that wait for it."""
        key = function.stored.uid
        if key not in self._starting:
            work = _unless_overtaken(lambda: self._start_once(function))
            task = self._starting[key] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: self._starting.pop(key, None))
        await asyncio.shield(self._starting[key])

    async def _start_once(self, function: KubernetesFunction) -> None:
        """Scale a function from zero, unless another provider has already done so.

        Raises:
            Overtaken: The function was changed in the meantime and is still at zero.
        """
        if not _at_zero(function):
            return
        deployment, version = function.deployment, function.stored.version
        replicas = max(1, self._initial_replicas(deployment))
        change = {
            "metadata": {"resourceVersion": str(version)},  # fails if it was changed since
            "spec": {"replicas": replicas},
        }
        try:
            await self._scale(function, change)
        except Overtaken:
            live = read_function(await self._live(deployment))
            self._namespaces.find(deployment.namespace).stored(live)
            if _at_zero(function):
                raise


def _at_zero(function: KubernetesFunction) -> bool:
    return not function.replicas and not function.removed


def _path(deployment: Deployment) -> str:
    return collection(DEPLOYMENTS, deployment.namespace, object_name(deployment.service))


async def _unless_overtaken(attempt: Callable[[], Awaitable[T]]) -> T:
    """Run an attempt, retrying with backoff while other changes overtake it."""
    backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
    for _ in range(_TRIES - 1):
        try:
            return await attempt()
        except Overtaken:
            await asyncio.sleep(backoff.after(0.0))
    return await attempt()
