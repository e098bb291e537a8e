"""The process backend: every instance is a sidecar process of its own, on a Unix socket.

Theory of operation: an image is a folder that was assembled for it. An instance runs the entry
command there, with its socket and temporary folder in the provider's private run folder, and is
kept running (see `supervised_instance`). A keeper process ends everything if the provider itself
disappears (see `leftovers`).

Limits on cores and memory are enforced where the machine allows it (see `faas_stack.partition`).
Constraints other than pinned cores, and a read-only root, require containers: they are accepted and
have no effect here.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.process import leftovers
from carpool.validation.problems import Problems, nearest
from faas_stack.partition.gpus import Gpus
from faas_stack.partition.machine import Capacity, measured
from faas_stack.partition.partitions import Partitions
from faas_stack.partition.resources import Resources
from faas_stack.provider.local import instance_environment, network_namespace
from faas_stack.provider.local.process_runner import ProcessLaunch, ProcessRunner
from faas_stack.provider.local.supervised_instance import SupervisedInstance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faas_stack.partition.allocation import Allocation
    from faas_stack.provider.backend import Instance
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.local.build_context import BuildContext
    from faas_stack.provider.logs import LogRing
    from faas_stack.provider.secrets import SecretStore

__all__ = ["ProcessBackend"]

log = logging.getLogger(__name__)

_SIDECAR = (sys.executable, "-m", "sidecar")
_LONGEST_NAME = "/000000/carpool-00000000/handler.sock"  # the sidecar's socket for its handler
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 on Linux, 103 on macOS


class ProcessBackend:
    """Runs deployments as processes on this machine; call `open` first.

    Args:
        images: Assembled images by name; looked up when a deployment names an image.
        secrets: The functions' secrets.
        command: Entry command of an instance.
        grace_s: Time that an instance may take to end.
        watchdog: Whether to use of-watchdog where it is installed.
        capacity: Resources for functions; None for all that this process may use. If it is
            unlimited, no instance is held to its limits, and nothing is counted.
    """

    name = "process"
    lasting = False

    def __init__(
        self,
        images: Mapping[str, BuildContext],
        secrets: SecretStore,
        *,
        command: Sequence[str] = _SIDECAR,
        grace_s: float = 10.0,
        watchdog: bool = True,
        capacity: Capacity | None = None,
    ) -> None:
        self._images = images
        self._secrets = secrets
        self._command = tuple(command)
        self._grace_s = grace_s
        self._watchdog = watchdog
        self._capacity = capacity
        self._partitions = Partitions.off()
        self._numbers = itertools.count(1)
        self._instances: dict[SupervisedInstance, Path] = {}
        self._keeper: asyncio.subprocess.Process | None = None
        self._extra_env: dict[str, str] = {}
        self.run_dir = Path()
        self.notes: list[str] = []

    async def open(self) -> None:
        """Create the run folder, start the keeper and determine how of-watchdog can be used."""
        self.run_dir = _private_folder()
        if self._capacity != Capacity() and sys.platform == "linux":
            self._partitions = await asyncio.to_thread(self._make_partitions)
        self.notes.append(f"partitions: {self._partitions.note}")
        keeper = (leftovers.__file__, str(self.run_dir), *self._partitions.groups)
        self._keeper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", *keeper),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if not self._watchdog:
            self._extra_env["sidecar_watchdog"] = "off"
        elif shutil.which("fwatchdog", path=instance_environment.search_path()):
            await self._isolate()

    @property
    def ledger(self) -> Allocation:
        """Resources of the machine, by the instances that hold them."""
        return self._partitions.ledger

    def size(self, deployment: Deployment) -> Resources:
        """Return the resources that one instance of ``deployment`` needs."""
        return Resources.of(deployment, pin_whole=True)

    def folders(self) -> set[Path]:
        """Return the folders in which the instances were started and will be restarted."""
        return set(self._instances.values())

    def busy_gpus(self) -> Mapping[str, float]:
        """Return the share of recent time in which each GPU was busy."""
        gpus = self._partitions.gpus
        return gpus.busy() if gpus else {}

    async def check(self, deployment: Deployment) -> None:
        """Check the image, its command, the secrets and the size of a deployment."""
        problems = Problems()
        size = problems.attempt(lambda: self.size(deployment)) or Resources()
        gpus = self._partitions.gpus
        if size.gpus and gpus and not gpus.names:
            problems.add(
                "com.carpool.gpu", f"{size.gpu_percent:g}", "a GPU on this machine", gpus.why
            )
        else:
            problems.attempt(lambda: self.ledger.check(size))
        context = self._images.get(deployment.image)
        if context is None:
            known = sorted(self._images)
            hint = nearest(deployment.image, known) or "it has not been assembled here"
            expected = f"one of the images {', '.join(known)}" if known else "an assembled image"
            problems.add("image", deployment.image, expected, hint)
        elif not (deployment.env_process or context.fprocess):
            problems.add("envProcess", "", "the handler's command", "the template names none")
        self._secrets.check(deployment, problems)
        problems.raise_if_any()
        if size.gpus and gpus and (weak := await asyncio.to_thread(gpus.prepare)):
            log.warning("%s: %s", deployment.service, weak)

    def start(self, deployment: Deployment, log: LogRing, changed: Callable[[], None]) -> Instance:
        """Start an instance of a deployment that passed `check`."""
        number = next(self._numbers)
        scratch = self.run_dir / str(number)
        context = self._images[deployment.image]
        env = instance_environment.of(deployment, context, scratch, self._extra_env)
        prepare = functools.partial(self._prepare, deployment, scratch)
        launch = ProcessLaunch(self._command, env, context.folder, scratch, prepare)
        name = f"{deployment.service}-{number}"
        size, mark = self.size(deployment), f"TMPDIR={scratch}"
        partition = self._partitions.of(name, size, lambda: leftovers.marked(mark))
        runner = ProcessRunner(name, launch, partition, log)
        instance = SupervisedInstance(name, runner, log, changed)
        runner.on_ready = instance.probe_soon
        self._instances[instance] = context.folder
        return instance

    async def stop(self, instance: Instance) -> None:
        """Stop ``instance``, killing it after the grace period."""
        assert isinstance(instance, SupervisedInstance)  # noqa: S101 - it came from start()
        await instance.stop(self._grace_s)
        self._instances.pop(instance, None)

    async def close(self) -> None:
        """Kill all instances that still run, and let the keeper remove the run folder."""
        for instance in self._instances:
            await instance.kill()
        if self._partitions.gpus:
            await asyncio.to_thread(self._partitions.gpus.close)
        if self._keeper and self._keeper.stdin:
            self._keeper.stdin.close()
            await self._keeper.wait()
        self._partitions.close()

    def _make_partitions(self) -> Partitions:
        gpus = Gpus.find(self.run_dir / "mps")
        capacity = self._capacity or measured(gpus.names)
        return Partitions.open(self.run_dir.name, capacity, gpus)

    async def _isolate(self) -> None:
        """Give instances their own network if possible; otherwise disable of-watchdog."""
        isolated = network_namespace.command((sys.executable, "-I", "-S", "-c", ""))
        probe = await asyncio.create_subprocess_exec(
            *isolated, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await probe.communicate()
        if probe.returncode == 0:
            self._command = network_namespace.command(self._command)
            self.notes.append(
                "of-watchdog: each instance in a network namespace of its own, without "
                "access to other networks; --no-watchdog restores it"
            )
            return
        self._extra_env["sidecar_watchdog"] = "off"
        why = (errors.decode("utf-8", "replace").strip().splitlines() or ["no reason given"])[-1]
        self.notes.append(f"of-watchdog is not used: no network namespace is available ({why})")

    def _prepare(self, deployment: Deployment, scratch: Path) -> None:
        """Create an instance's folder with its secrets, unless it exists."""
        folder = scratch / instance_environment.SECRETS
        for each in (scratch, folder):
            each.mkdir(mode=0o700, exist_ok=True)
        for name in deployment.secrets:
            path = self._secrets.path(name, deployment.namespace, deployment.service)
            link = folder / name
            if path and not link.is_symlink():
                link.symlink_to(path.resolve())


def _private_folder() -> Path:
    """Create a folder that only we can enter, with a path short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="carpool-"))
    if len(str(folder)) + len(_LONGEST_NAME) <= _LONGEST_SOCKET_PATH:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="carpool-", dir="/tmp"))
