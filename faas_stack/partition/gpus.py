"""The GPUs of the process backend: which there are, and what makes an instance keep to its share.

Where MPS runs, an instance gets its percentage of the multiprocessors, and the same share of the
memory. Where it does not, and on MIG instances, those on one GPU take turns on the whole of it: the
ledger counts the same percentages, as shares of time, which nothing enforces.
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
    """Those of this machine, as they are when the provider starts.

    Args:
        devices: what there is.
        folder: for the MPS daemon, should we start it.

    Attributes:
        why: what is missing; empty if nothing is.
    """

    def __init__(self, devices: list[nvml.GpuDevice], folder: Path, why: str = "") -> None:
        self._devices = {device.uuid: device for device in devices}
        whole = [device.uuid for device in devices if not device.mig]
        self._mps = mps.Mps(folder, whole) if whole else None
        self.why = why

    @classmethod
    def find(cls, folder: Path) -> Gpus:
        """What NVIDIA's driver lists; nothing, and why, where there is none."""
        try:
            return cls(nvml.devices(), folder)
        except Unusable as why:
            return cls([], folder, str(why))

    @property
    def names(self) -> tuple[str, ...]:
        """Of all, as the ledger has them."""
        return tuple(self._devices)

    def prepare(self) -> str:
        """Start the MPS daemon, and see that it answers; what holds instead if not. Blocks."""
        if self._mps is None:
            return "MIG instances: functions on the same one take turns"
        try:
            self._mps.ensure()
            self._mps.servers()
        except Unusable as why:
            return f"no MPS, so functions on the same GPU take turns ({why})"
        return ""

    def busy(self) -> dict[str, float]:
        """Share of the last moments in which each had work, of those that can be asked."""
        found = {}
        for name in self._devices:
            with contextlib.suppress(Unusable):
                percent = nvml.busy_percent(name)
                found.update({} if percent is None else {name: percent / 100})
        return found

    def environment(self, assignment: Assignment) -> dict[str, str]:
        """What the processes of an instance are told; a daemon that died is started again.

        A client that finds no daemon runs without one, beyond its share and without a word.
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
        """The pipe of the daemon, if that runs, or does again."""
        if self._mps is None:
            return None
        try:
            self._mps.ensure()
        except Unusable:
            return None
        return self._mps.pipe

    def close(self) -> None:
        """End what was started."""
        if self._mps:
            self._mps.stop()
