"""The process backend: every instance is a sidecar process of its own, on a Unix socket.

Theory of operation: an image is a folder that was assembled for it; an instance runs the entry
command there, in its own session, with its socket and temporary folder in the provider's private
run folder, and is kept running (see `supervised`). A keeper process ends everything if the
provider itself disappears (see `leftovers`).

Resource limits, constraints and a read-only root are what containers are for: they are accepted
and have no effect here, except that a number of cores sets the size of numeric thread pools.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.strict import Problems, nearest
from faas_stack.provider import isolation, leftovers
from faas_stack.provider.process_life import Launch, ProcessLife
from faas_stack.provider.supervised import Supervised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faas_stack.assemble import BuildContext
    from faas_stack.provider.backend import Instance
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.logs import LogRing
    from faas_stack.provider.secrets import SecretStore

__all__ = ["ProcessBackend"]

_SIDECAR = (sys.executable, "-m", "sidecar")
_KEPT = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH"),
    *("SSL_CERT_FILE", "TZ", "USER", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES"),
)
_THREAD_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_DEEPEST = "/000000/carpool-00000000/handler.sock"  # the sidecar's socket for its handler
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 on Linux, 103 on macOS
# Where the packages are, if not installed: instances run in another folder and need them too.
_ROOT = str(Path(__file__).resolve().parents[2])
_CHECKOUT = "" if _ROOT in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) else _ROOT


class ProcessBackend:
    """Runs deployments as processes on this machine. `open` it first.

    Args:
        images: what was assembled, by image name; looked up when a deployment names an image.
        secrets: where the secrets of functions are.
        command: the entry command of an instance.
        grace_s: how long an instance may take to end.
        watchdog: whether of-watchdog is to be used where it is installed.
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
    ) -> None:
        self._images = images
        self._secrets = secrets
        self._command = tuple(command)
        self._grace_s = grace_s
        self._watchdog = watchdog
        self._numbers = itertools.count(1)
        self._instances: set[Supervised] = set()
        self._keeper: asyncio.subprocess.Process | None = None
        self._extra_env: dict[str, str] = {}
        self.run_dir = Path()
        self.notes: list[str] = []

    async def open(self) -> None:
        """Make the run folder, start the keeper, find out how of-watchdog can be used."""
        self.run_dir = _private_folder()
        self._keeper = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", leftovers.__file__, str(self.run_dir)),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if not self._watchdog:
            self._extra_env["sidecar_watchdog"] = "off"
        elif shutil.which("fwatchdog", path=_path()):
            await self._isolate()

    async def check(self, deployment: Deployment) -> None:
        """Whether the image is known, has a command, and its secrets exist."""
        problems = Problems()
        context = self._images.get(deployment.image)
        if context is None:
            known = sorted(self._images)
            hint = nearest(deployment.image, known) or "it has not been assembled here"
            expected = f"one of the images {', '.join(known)}" if known else "an assembled image"
            problems.add("image", deployment.image, expected, hint)
        elif not (deployment.env_process or context.fprocess):
            problems.add("envProcess", "", "the handler's command", "the template names none")
        for secret in deployment.secrets:
            if self._secrets.path(secret, deployment.namespace) is None:
                problems.add("secrets", secret, "an existing secret", "create it first")
        problems.raise_if_any()

    def start(self, deployment: Deployment, log: LogRing, changed: Callable[[], None]) -> Instance:
        """Begin to run one instance of a deployment that passed `check`."""
        number = next(self._numbers)
        scratch = self.run_dir / str(number)
        scratch.mkdir(mode=0o700)
        context = self._images[deployment.image]
        env = self._env(deployment, context, scratch)
        launch = Launch(self._command, env, context.folder, scratch)
        name = f"{deployment.service}-{number}"
        instance = Supervised(name, ProcessLife(name, launch, log), log, changed)
        self._instances.add(instance)
        return instance

    async def stop(self, instance: Instance) -> None:
        """End ``instance`` in good order, within the grace period."""
        assert isinstance(instance, Supervised)  # noqa: S101 - it came from start()
        await instance.stop(self._grace_s)
        self._instances.discard(instance)

    async def close(self) -> None:
        """Kill what still runs, and let the keeper remove the run folder."""
        for instance in self._instances:
            await instance.kill()
        if self._keeper and self._keeper.stdin:
            self._keeper.stdin.close()
            await self._keeper.wait()

    async def _isolate(self) -> None:
        """Instances get a network of their own where that is possible, else no watchdog."""
        isolated = isolation.command((sys.executable, "-I", "-S", "-c", ""))
        probe = await asyncio.create_subprocess_exec(
            *isolated, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await probe.communicate()
        if probe.returncode == 0:
            self._command = isolation.command(self._command)
            self.notes.append(
                "of-watchdog: each instance in a network namespace of its own, without outside "
                "network; --no-watchdog gives it back"
            )
            return
        self._extra_env["sidecar_watchdog"] = "off"
        why = (errors.decode("utf-8", "replace").strip().splitlines() or ["no reason given"])[-1]
        self.notes.append(f"of-watchdog is not used: no network namespace to be had ({why})")

    def _env(self, deployment: Deployment, context: BuildContext, scratch: Path) -> dict[str, str]:
        """What an image's and a container's environment would be, together."""
        settings = deployment.settings
        env = {key: os.environ[key] for key in _KEPT if key in os.environ}
        env["PATH"] = _path()
        env["PYTHONUNBUFFERED"] = "1"
        if _CHECKOUT:
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (env.get("PYTHONPATH"), _CHECKOUT)))
        if settings.cpu is not None:
            env.update(dict.fromkeys(_THREAD_POOLS, str(max(1, int(settings.cpu)))))
        env.update(settings.to_env())
        env.update(deployment.env_vars)
        env.update(self._extra_env)
        env.update(
            fprocess=deployment.env_process or context.fprocess,
            sidecar_listen=f"unix:{scratch}/s",
            secret_mount_path=str(self._mount_secrets(deployment, scratch)),
            OPENFAAS_NAME=deployment.service,
            OPENFAAS_NAMESPACE=deployment.namespace,
            TMPDIR=str(scratch),
        )
        return env

    def _mount_secrets(self, deployment: Deployment, scratch: Path) -> Path:
        folder = scratch / "secrets"
        folder.mkdir(mode=0o700)
        for name in deployment.secrets:
            if path := self._secrets.path(name, deployment.namespace):
                (folder / name).symlink_to(path.resolve())
        return folder


def _path() -> str:
    """The search path of instances: this interpreter is the ``python`` of their commands."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _private_folder() -> Path:
    """A folder only we can enter, with a path short enough for the sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="carpool-"))
    if len(str(folder)) + len(_DEEPEST) <= _LONGEST_SOCKET_PATH:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="carpool-", dir="/tmp"))
