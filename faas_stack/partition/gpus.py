"""The GPUs of the process backend, and what limits an instance to its share.

With MPS, an instance gets its percentage of the multiprocessors, and the same share of the memory.
Without it, and on MIG instances, the instances on one GPU take turns on the whole of it: the ledger
counts the same percentages as shares of time, which nothing enforces.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from faas_stack.partition import mps, nvml
from faas_stack.partition.cgroup_limits import Unusable

if TYPE_CHECKING:
    from pathlib import Path

    from faas_stack.partition.allocation import Assignment

__all__ = ["Gpus"]


class Gpus:
    """The GPUs of this machine at the start of the provider.

    Args:
        devices: The GPUs.
        folder: Folder of the MPS daemon if it is started here.

    Attributes:
        why: What is missing; empty if nothing is.
    """

    def __init__(self, devices: list[nvml.GpuDevice], folder: Path, why: str = "") -> None:
        self._devices = {device.uuid: device for device in devices}
        whole = [device.uuid for device in devices if not device.mig]
        self._mps = mps.Mps(folder, whole) if whole else None
        self.why = why

    @classmethod
    def find(cls, folder: Path) -> Gpus:
        """Return the GPUs that NVIDIA's driver lists; if there are none, with the reason."""
        try:
            return cls(nvml.devices(), folder)
        except Unusable as why:
            return cls([], folder, str(why))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all GPUs in the ledger."""
        return tuple(self._devices)

    def prepare(self) -> str:
        """Start the MPS daemon and check that it answers; return the consequence if not. Blocks."""
        if self._mps is None:
            return "MIG instances: functions on the same one take turns"
        try:
            self._mps.ensure()
            self._mps.servers()
        except Unusable as why:
            return f"no MPS, so functions on the same GPU take turns ({why})"
        return ""

    def busy(self) -> dict[str, float]:
        """Return the recent utilization of each GPU that reports one."""
        shares = {}
        for name in self._devices:
            with contextlib.suppress(Unusable):
                percent = nvml.busy_percent(name)
                shares.update({} if percent is None else {name: percent / 100})
        return shares

    def environment(self, assignment: Assignment) -> dict[str, str]:
        """Return the environment of an instance's processes, restarting the daemon if it died.

        A client that finds no daemon runs without it, beyond its share and without a warning.
        """
        if not assignment.gpus:
            return {}
        env = {"CUDA_VISIBLE_DEVICES": ",".join(assignment.gpus)}
        devices = [self._devices[name] for name in assignment.gpus]
        pipe = None if any(device.mig for device in devices) else self._live_pipe()
        if pipe:
            sizes = [device.memory_bytes for device in devices]
            env |= mps.client_environment(pipe, assignment.each.gpu_percent, sizes)
        return env

    def _live_pipe(self) -> Path | None:
        """Return the pipe of the daemon, starting it if needed. None if it cannot run."""
        if self._mps is None:
            return None
        try:
            self._mps.ensure()
        except Unusable:
            return None
        return self._mps.pipe

    def close(self) -> None:
        """Stop the MPS daemon that was started."""
        if self._mps:
            self._mps.stop()
