"""The Docker backend: instances as containers of a Docker Engine, on a private network.

Theory of operation: containers outlive the provider. Their labels name the deployment that they are
an instance of. `open` finds those of this stack; `start` takes over one of the same deployment, if
there is one, before it creates another; and `sweep`, called when every function is back, removes
the rest.

A deployment is checked by creating its container and removing it again unstarted, so that whatever
the engine would object to (limits, mounts, a full disk) is reported to the caller that deploys.

The ledger counts cores, memory and GPUs. A container holds its share from before it is created
until it is removed; the share is in its labels, for the next provider. A pinned container has
exclusive cores: all others of the stack run on the rest, and are moved when that changes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets as randomness
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.errors import BadRequest, CarpoolError, ConfigError, Problem
from carpool.validation.problems import Problems
from faas_stack.partition import amounts
from faas_stack.partition.allocation import Allocation, Assignment
from faas_stack.partition.machine import Capacity
from faas_stack.partition.resources import Resources
from faas_stack.provider.local.containers.container_runner import ContainerRunner
from faas_stack.provider.local.containers.docker_engine import DockerEngine, EngineError
from faas_stack.provider.local.containers.host import on_host
from faas_stack.provider.local.containers.mounts import SecretMounts
from faas_stack.provider.local.containers.spec import LABEL, Place, document
from faas_stack.provider.local.containers.state import State
from faas_stack.provider.local.supervised_instance import SupervisedInstance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from faas_stack.provider.backend import Instance
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.local.containers.docker_engine import Container
    from faas_stack.provider.logs import LogRing
    from faas_stack.provider.secrets import SecretStore

__all__ = ["DockerBackend", "DockerOptions"]

log = logging.getLogger(__name__)

_REFUSED = 500  # lower statuses: the request to the engine is invalid


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """Settings for running containers.

    Attributes:
        state: State folder of the provider, used by no other.
        stack: Name that marks this provider's containers among those of the engine.
        network: Private network of the functions; created if it does not exist.
        gpus: GPUs of the engine's machine for functions: numbers or UUIDs, as of MIG instances.
        mps: Folder of an MPS daemon's pipe on the engine's machine; empty if no daemon runs.
        grace_s: Time that a container may take to end.
    """

    state: Path
    stack: str = "carpool"
    network: str = "carpool"
    gpus: tuple[str, ...] = ()
    mps: str = ""
    grace_s: float = 10.0


class DockerBackend:
    """Runs deployments as containers; call `open` first."""

    name = "docker"
    lasting = True

    def __init__(self, secrets: SecretStore, options: DockerOptions) -> None:
        self._secrets = secrets
        self._options = options
        self._instances: dict[str, SupervisedInstance] = {}
        self._orphans: dict[str, Container] = {}
        self._moving: set[asyncio.Task[None]] = set()
        self.ledger = Allocation(Capacity())

    async def open(self, *, claim: bool = False) -> None:
        """Connect to the engine, create the network, find containers of an earlier provider.

        Args:
            claim: Whether to treat all containers of the stack as ours, whichever provider made
                them.

        Raises:
            Overloaded: There is no engine.
            ConfigError: The state folder cannot be used, or the stack belongs to another provider.
        """
        options = self._options
        self._engine = await DockerEngine.connect()
        self._state = State(options.state)
        cores, memory_bytes = await self._engine.size()
        there = Capacity(tuple(range(cores)), cores, memory_bytes, options.gpus)
        self.ledger = Allocation(there)
        mounts = self._state.mounts
        self._mounts = SecretMounts(self._secrets, mounts, await on_host(mounts, self._engine))
        containers = await self._engine.labelled(f"{LABEL}stack", options.stack)
        owners = {container.labels.get(f"{LABEL}owner") for container in containers}
        if not claim and owners - {self._state.owner}:
            expected = "a name that no other state folder's functions have"
            hint = "choose another, or remove them with --clear"
            raise ConfigError([Problem("--stack", options.stack, expected, hint)])
        self._orphans = {container.name: container for container in containers}
        await self._engine.ensure_network(options.network, {f"{LABEL}stack": options.stack})

    def size(self, deployment: Deployment) -> Resources:
        """Return the resources that one instance of ``deployment`` needs."""
        return Resources.of(deployment)

    def busy_gpus(self) -> dict[str, float]:
        """Return nothing, as the GPUs belong to the engine's machine."""
        return {}

    async def check(self, deployment: Deployment) -> None:
        """Check that the image and secrets exist and that the engine can create the container."""
        resources = self._check_limits(deployment)
        try:
            await self._engine.fetch(deployment.image)
        except EngineError as error:
            expected = "an image that is here or can be pulled"
            problem = Problem("image", deployment.image, expected, str(error))
            raise ConfigError([problem]) from error
        name = f"{self._options.stack}-check-{randomness.token_hex(4)}"
        there = self.ledger.capacity  # nothing is started, so no capacity is reserved
        place = self._at(
            Assignment(
                resources, there.cores[: resources.whole_cores], there.gpus[: resources.gpus]
            )
        )
        try:
            document = self._document(name, deployment, resources, place)
            await self._engine.create(name, document)
        except EngineError as error:
            if error.code >= _REFUSED:
                raise
            message = f"the Docker Engine cannot run {deployment.service!r}: {error}"
            raise BadRequest(message) from error
        finally:
            self._mounts.remove(name)
            await self._engine.remove(name)

    def start(self, deployment: Deployment, log: LogRing, changed: Callable[[], None]) -> Instance:
        """Take over a container of the deployment, or start a new one."""
        resources = self.size(deployment)
        adopted = self._adopt(deployment)
        name = f"{self._options.stack}-{deployment.service}-{randomness.token_hex(4)}"
        if adopted:
            name = adopted.labels[f"{LABEL}instance"]
            self.ledger.restore(name, _assignment_of(adopted, resources))
        runner = ContainerRunner(
            name,
            self._engine,
            self._options.network,
            lambda: self._document(name, deployment, resources, self._place(name, resources)),
            log,
            adopted.name if adopted else "",
        )
        instance = SupervisedInstance(name, runner, log, changed)
        self._instances[name] = instance
        return instance

    async def stop(self, instance: Instance) -> None:
        """Stop ``instance``, killing it after the grace period, and remove its container."""
        await self._instances[instance.name].stop(self._options.grace_s)
        del self._instances[instance.name]
        assignment = self.ledger.assignment(instance.name)
        self.ledger.leave(instance.name)
        if assignment and assignment.cores:
            self._spread()
        self._mounts.remove(instance.name)

    async def sweep(self) -> None:
        """Remove containers of an earlier provider that no function has taken over."""
        orphans, self._orphans = self._orphans, {}
        await asyncio.gather(*(self._engine.remove(name) for name in orphans))
        self._mounts.keep_only(set(self._instances))

    async def close(self) -> None:
        """Release the containers, which keep running."""
        for instance in list(self._instances.values()):
            await instance.leave()
        self._engine.close()
        self._state.close()

    async def clear(self) -> None:
        """Remove all containers and the network of a stack that is no longer needed."""
        await self.sweep()
        await self._engine.remove_network(self._options.network)

    def _check_limits(self, deployment: Deployment) -> Resources:
        """Check a deployment without asking the engine, and return its resources."""
        problems = Problems()
        resources = problems.attempt(lambda: Resources.of(deployment)) or Resources()
        self._secrets.check(deployment, problems)
        problems.attempt(lambda: self.ledger.check(resources))
        problems.raise_if_any()
        return resources

    def _adopt(self, deployment: Deployment) -> Container | None:
        for name, container in self._orphans.items():
            if container.labels.get(f"{LABEL}deployment") == deployment.uid:
                return self._orphans.pop(name)
        return None

    def _document(
        self, name: str, deployment: Deployment, resources: Resources, place: Place
    ) -> dict[str, Any]:
        secrets = self._mounts.lay_out(name, deployment)
        return document(name, deployment, resources, place, secrets)

    def _place(self, name: str, resources: Resources) -> Place:
        """Reserve resources for an instance's container, and return where it runs.

        Raises:
            NoCapacity: Other instances hold the resources it needs.
        """
        before = self.ledger.assignment(name)
        assignment = self.ledger.take(name, resources)
        if assignment.cores and before is None:
            self._spread()
        return self._at(assignment)

    def _at(self, assignment: Assignment) -> Place:
        options = self._options
        return Place(
            options.stack,
            self._state.owner,
            options.network,
            tuple(map(str, assignment.cores)),
            self._pool(),
            assignment.gpus,
            options.mps,
        )

    def _pool(self) -> str:
        """Return the cores of containers that are not pinned; empty if they may use any."""
        pool, there = self.ledger.pool_cores(), self.ledger.capacity.cores
        return "" if pool == there else amounts.core_list(pool or there)

    def _spread(self) -> None:
        """Start to move instances that are not pinned off the reserved cores."""
        cores = self._pool() or amounts.core_list(self.ledger.capacity.cores)
        task = asyncio.get_running_loop().create_task(self._move(cores))
        self._moving.add(task)
        task.add_done_callback(self._moving.discard)

    async def _move(self, cores: str) -> None:
        for name, instance in list(self._instances.items()):
            assignment, runner = self.ledger.assignment(name), instance.runner
            shares = assignment and not assignment.cores and not assignment.each.cpuset
            if shares and isinstance(runner, ContainerRunner):
                try:
                    await self._engine.confine(runner.container, cores)
                except CarpoolError as error:  # the container is created again with the new cores
                    log.warning("%s cannot be moved to other cores: %s", name, error)


def _assignment_of(container: Container, resources: Resources) -> Assignment:
    """Return the resources that an earlier provider's container holds, from its labels."""
    cores = filter(None, container.labels.get(f"{LABEL}cores", "").split(","))
    gpus = tuple(filter(None, container.labels.get(f"{LABEL}gpus", "").split(",")))
    return Assignment(resources, tuple(map(int, cores)), gpus)
