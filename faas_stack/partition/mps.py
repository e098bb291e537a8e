"""The control daemon of CUDA's Multi-Process Service: finds or starts, queries and stops it.

With it, processes that share a GPU run at the same time, each on its share of the multiprocessors.
Without it, they take turns on the whole of it. The daemon starts a server for the user of the first
process, and processes of other users wait until that server's clients are gone; a daemon that an
ordinary user has started serves only that user. Instances run as the provider's user, so the daemon
must belong to root or to that user. As NVIDIA documents it ("Multi-Process Service", deployment
guide).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from faas_stack.partition.cgroup_limits import Unusable

__all__ = ["CONTROL", "Mps", "client_environment", "server_pids"]

CONTROL = "nvidia-cuda-mps-control"
_DEFAULT_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks by default
_ANSWER_S = 10.0
_MIB = 2**20
_WHOLE = 100.0


class Mps:
    """A daemon: the machine's if one runs, otherwise one that is started here.

    Args:
        folder: Folder for the pipe and the log of the own daemon.
        gpus: GPUs visible to the own daemon, by UUID.
        pipe: Pipe of the machine's daemon; by default where CUDA looks for it.
    """

    def __init__(self, folder: Path, gpus: list[str], pipe: Path | None = None) -> None:
        self._folder = folder
        self._gpus = gpus
        default = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or _DEFAULT_PIPE
        self._theirs = pipe or Path(default)
        self._own = folder / "pipe"

    @property
    def pipe(self) -> Path:
        """The folder in which clients find the daemon."""
        return self._theirs if _pid(self._theirs) else self._own

    @property
    def runs(self) -> bool:
        """Whether the process of the daemon exists."""
        return _pid(self.pipe) is not None

    def ensure(self) -> None:
        """Start a daemon if none runs. Blocks for a moment.

        Raises:
            Unusable: If the program does not exist or does not start, or the daemon belongs to
                another user.
        """
        if not self.runs:
            self._start()
        pid = _pid(self.pipe)
        owner = Path(f"/proc/{pid}").stat().st_uid if pid else os.geteuid()
        if owner not in (0, os.geteuid()):
            message = (
                f"the MPS daemon at {self.pipe} is user {owner}'s and serves only that user;  "
                f"end it, or run the provider as that user"
            )
            raise Unusable(message)

    def servers(self) -> list[int]:
        """Return the process ids of its servers: one after the first client has connected.

        Raises:
            Unusable: If it does not answer, or not with a list.
        """
        return server_pids(self._ask("get_server_list"))

    def stop(self) -> None:
        """Stop the own daemon, if any; the machine's continues."""
        if _pid(self._own) is None:
            return
        try:
            self._ask("quit")
        except Unusable:
            if pid := _pid(self._own):
                os.kill(pid, 9)

    def _start(self) -> None:
        program = shutil.which(CONTROL)
        if program is None:
            message = f"{CONTROL} is not on the PATH; it is part of NVIDIA's driver"
            raise Unusable(message)
        for folder in (self._own, self._folder / "log"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._run([program, "-d"], "")
        if not self.runs:
            message = f"{CONTROL} -d did not start a daemon; see {self._folder / 'log'}"
            raise Unusable(message)

    def _ask(self, command: str) -> str:
        return self._run([CONTROL], f"{command}\n")

    def _run(self, argv: list[str], typed: str) -> str:
        env = {
            **os.environ,
            "TMPDIR": str(
                self._folder
            ),  # marks our daemon, so that it always ends with the provider
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log"),
            "CUDA_VISIBLE_DEVICES": ",".join(self._gpus),
        }
        try:
            done = subprocess.run(  # noqa: S603 - NVIDIA's program, by its name
                argv,
                input=typed,
                env=env,
                capture_output=True,
                text=True,
                timeout=_ANSWER_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            message = f"{argv[0]}: {error}"
            raise Unusable(message) from error
        if done.returncode:
            words = (done.stderr or done.stdout).strip() or "no reason given"
            message = f"{argv[0]} ended with {done.returncode}: {words}"
            raise Unusable(message)
        return done.stdout


def server_pids(answer: str) -> list[int]:
    """Parse the daemon's response to ``get_server_list``, one process id per line.

    Raises:
        Unusable: If it is something else, such as ``Cannot find MPS control daemon process``.
    """
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    if not all(line.isdecimal() for line in lines):
        message = f"the MPS daemon says {' '.join(lines)!r}"
        raise Unusable(message)
    return [int(line) for line in lines]


def client_environment(pipe: Path, percent: float, memory_bytes: list[int]) -> dict[str, str]:
    """Return the environment that limits a client to its share of the GPUs it sees.

    Args:
        pipe: Pipe of the daemon.
        percent: Percentage of the multiprocessors of each GPU.
        memory_bytes: Memory of each GPU, in the order of CUDA_VISIBLE_DEVICES; the client gets the
            same share of it.
    """
    sizes = [int(size * percent / _WHOLE / _MIB) for size in memory_bytes]
    limits = ",".join(f"{number}={size_mib}M" for number, size_mib in enumerate(sizes))
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{percent:g}",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limits,
    }


def _pid(pipe: Path) -> int | None:
    """Return the process id of the daemon with this pipe. None if it does not run."""
    try:
        pid = int((pipe / f"{CONTROL}.pid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if Path(f"/proc/{pid}").exists() else None
