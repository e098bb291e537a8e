"""The docker backend: instances as containers of a Docker Engine, on a private network.

Theory of operation: containers outlive the provider. Their labels say which deployment they are an
instance of; `open` looks for those of this stack, `start` takes one of its own deployment over
before it makes another, and `sweep`, called when every function is back, removes the rest.

A deployment is checked by making its container and removing it again unstarted: whatever the
engine would object to (limits, mounts, a full disk) is told to whoever deploys.
"""

from __future__ import annotations

import asyncio
import secrets as randomness
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.errors import BadRequest, ConfigError, Problem
from carpool.strict import Problems
from faas_stack.provider.containers.engine import Engine, EngineError
from faas_stack.provider.containers.host import on_host
from faas_stack.provider.containers.life import ContainerLife
from faas_stack.provider.containers.mounts import SecretMounts
from faas_stack.provider.containers.resources import Resources
from faas_stack.provider.containers.slots import Slots
from faas_stack.provider.containers.spec import LABEL, Place, document
from faas_stack.provider.containers.state import State
from faas_stack.provider.supervised import Supervised

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from faas_stack.provider.backend import Instance
    from faas_stack.provider.containers.engine import Container
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.logs import LogRing
    from faas_stack.provider.secrets import SecretStore

__all__ = ["DockerBackend", "DockerOptions"]

_REFUSED = 500  # below: the fault is in what the engine was asked for


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """How containers are run.

    Attributes:
        state: a folder of the provider's own.
        stack: names this provider's containers among those of the engine.
        network: the private network of the functions; made if there is none of that name.
        gpus: how many GPUs the engine's machine has for functions.
        mps: the folder of an MPS daemon's pipe on the engine's machine; empty: no daemon runs.
        grace_s: how long a container may take to end.
    """

    state: Path
    stack: str = "carpool"
    network: str = "carpool"
    gpus: int = 0
    mps: str = ""
    grace_s: float = 10.0


class DockerBackend:
    """Runs deployments as containers. `open` it first."""

    name = "docker"
    lasting = True

    def __init__(self, secrets: SecretStore, options: DockerOptions) -> None:
        self._secrets = secrets
        self._options = options
        self._instances: dict[str, Supervised] = {}
        self._places: dict[str, tuple[Place, Resources]] = {}
        self._orphans: dict[str, Container] = {}
        self._gpus = Slots([str(number) for number in range(options.gpus)])
        self._cores = Slots([])

    async def open(self, *, claim: bool = False) -> None:
        """Reach the engine, make the network, find what an earlier provider left running.

        Args:
            claim: whether containers of the stack are ours whoever made them.

        Raises:
            Overloaded: there is no engine.
            ConfigError: the state folder cannot be used, or the stack is somebody else's.
        """
        options = self._options
        self._engine = await Engine.connect()
        self._state = State(options.state)
        self._cores = Slots([str(number) for number in range(await self._engine.cores())])
        mounts = self._state.mounts
        self._mounts = SecretMounts(self._secrets, mounts, await on_host(mounts, self._engine))
        found = await self._engine.labelled(f"{LABEL}stack", options.stack)
        owners = {container.labels.get(f"{LABEL}owner") for container in found}
        if not claim and owners - {self._state.owner}:
            expected = "a name that no other state folder's functions have"
            hint = "choose another, or remove them with --clear"
            raise ConfigError([Problem("--stack", options.stack, expected, hint)])
        self._orphans = {container.name: container for container in found}
        await self._engine.ensure_network(options.network, {f"{LABEL}stack": options.stack})

    async def check(self, deployment: Deployment) -> None:
        """Whether the image can be had, secrets exist, and the engine would make the container."""
        resources = self._check_form(deployment)
        try:
            await self._engine.fetch(deployment.image)
        except EngineError as error:
            expected = "an image that is here or can be pulled"
            problem = Problem("image", deployment.image, expected, str(error))
            raise ConfigError([problem]) from error
        name = f"{self._options.stack}-check-{randomness.token_hex(4)}"
        place = self._place(resources)
        try:
            asked = self._document(name, deployment, resources, place)
            await self._engine.create(name, asked)
        except EngineError as error:
            if error.code >= _REFUSED:
                raise
            message = f"the Docker Engine cannot run {deployment.service!r}: {error}"
            raise BadRequest(message) from error
        finally:
            self._give_back(place, resources)
            self._mounts.remove(name)
            await self._engine.remove(name)

    def start(self, deployment: Deployment, log: LogRing, changed: Callable[[], None]) -> Instance:
        """Take over a container of the deployment, or begin to run a new one."""
        resources = Resources.of(deployment)
        adopted = self._adopt(deployment)
        if adopted:
            name, place = adopted.labels[f"{LABEL}instance"], self._place_of(adopted, resources)
        else:
            name = f"{self._options.stack}-{deployment.service}-{randomness.token_hex(4)}"
            place = self._place(resources)
        life = ContainerLife(
            name,
            self._engine,
            self._options.network,
            lambda: self._document(name, deployment, resources, place),
            log,
            adopted.name if adopted else "",
        )
        instance = Supervised(name, life, log, changed)
        self._instances[name] = instance
        self._places[name] = place, resources
        return instance

    async def stop(self, instance: Instance) -> None:
        """End ``instance`` in good order, within the grace period, and remove its container."""
        await self._instances[instance.name].stop(self._options.grace_s)
        del self._instances[instance.name]
        self._give_back(*self._places.pop(instance.name))
        self._mounts.remove(instance.name)

    async def sweep(self) -> None:
        """End what an earlier provider left and no function has taken over."""
        orphans, self._orphans = self._orphans, {}
        await asyncio.gather(*(self._engine.remove(name) for name in orphans))
        self._mounts.keep_only(set(self._instances))

    async def close(self) -> None:
        """Let go of the containers, which go on."""
        for instance in list(self._instances.values()):
            await instance.leave()
        self._engine.close()
        self._state.close()

    async def clear(self) -> None:
        """Remove every container of the stack, and its network; for one that is to go for good."""
        await self.sweep()
        await self._engine.remove_network(self._options.network)

    def _check_form(self, deployment: Deployment) -> Resources:
        """What can be said without the engine."""
        problems = Problems()
        resources = problems.attempt(lambda: Resources.of(deployment)) or Resources()
        self._mounts.check(deployment, problems)
        cores, gpus = resources.whole_cores, resources.gpus
        if cores > len(self._cores):
            problems.add("com.carpool.cpu", cores, f"at most {len(self._cores)} cores")
        if gpus > len(self._gpus):
            hint = "tell the provider how many there are with --gpus"
            problems.add("com.carpool.gpu", gpus, f"at most {len(self._gpus)} GPUs", hint)
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

    def _place(self, resources: Resources) -> Place:
        """The cores and GPUs with the least on them."""
        cores = self._cores.take(resources.whole_cores)
        gpus = self._gpus.take(resources.gpus, resources.gpu_percent)
        return self._at(cores, gpus)

    def _place_of(self, container: Container, resources: Resources) -> Place:
        """Where a container of an earlier provider runs."""
        cores = tuple(filter(None, container.labels.get(f"{LABEL}cores", "").split(",")))
        gpus = tuple(filter(None, container.labels.get(f"{LABEL}gpus", "").split(",")))
        self._cores.hold(cores)
        self._gpus.hold(gpus, resources.gpu_percent)
        return self._at(cores, gpus)

    def _at(self, cores: tuple[str, ...], gpus: tuple[str, ...]) -> Place:
        options = self._options
        return Place(options.stack, self._state.owner, options.network, cores, gpus, options.mps)

    def _give_back(self, place: Place, resources: Resources) -> None:
        self._cores.give_back(place.cores)
        self._gpus.give_back(place.gpus, resources.gpu_percent)
