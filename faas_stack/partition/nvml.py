"""Lists GPUs and their utilization through NVIDIA's management library.

A GPU that is split into MIG instances counts as these instances; nothing here changes a GPU. The
library comes with the driver, its Python module is ``nvidia-ml-py`` in the extra ``gpu``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faas_stack.partition.cgroup_limits import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GpuDevice", "busy_percent", "devices"]


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU, or a MIG instance of one.

    Attributes:
        uuid: Its id for CUDA_VISIBLE_DEVICES.
        memory_bytes: Its memory.
        mig: Whether it is a MIG instance.
    """

    uuid: str
    memory_bytes: int
    mig: bool = False


def devices() -> list[GpuDevice]:
    """Return all GPUs and MIG instances.

    Raises:
        Unusable: If the module, the driver or a GPU is missing; the message says which.
    """
    with _library() as nvml:
        gpus = []
        for number in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            parts = _mig_instances(nvml, handle)
            gpus += [_device(nvml, part, mig=True) for part in parts]
            gpus += [] if parts else [_device(nvml, handle)]
    if not gpus:
        message = "NVIDIA's driver sees no GPU"
        raise Unusable(message)
    return gpus


def busy_percent(uuid: str) -> float | None:
    """Return the recent utilization of a GPU. None for a MIG instance, which reports none.

    Raises:
        Unusable: If it cannot be queried.
    """
    with _library() as nvml:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        try:
            return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        except nvml.NVMLError_NotSupported:
            return None


@contextlib.contextmanager
def _library() -> Iterator[Any]:
    """Open the library for the block; its errors are raised as `Unusable`."""
    try:
        import pynvml  # noqa: PLC0415 - an extra, and there may be no driver
    except ImportError as error:
        message = "nvidia-ml-py is not installed: pip install 'carpool[gpu]'"
        raise Unusable(message) from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        message = f"NVIDIA's driver cannot be reached: {error}"
        raise Unusable(message) from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        message = f"NVIDIA's driver does not answer: {error}"
        raise Unusable(message) from error
    finally:
        pynvml.nvmlShutdown()


def _mig_instances(nvml: Any, handle: Any) -> list[Any]:  # noqa: ANN401 - ships no types
    """Return handles of the MIG instances of a GPU. Empty if MIG is off or unknown."""
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError_NotSupported:
        return []
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return []
    instances = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(nvml.NVMLError_NotFound):
            instances.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    return instances


def _device(nvml: Any, handle: Any, *, mig: bool = False) -> GpuDevice:  # noqa: ANN401 - no types
    memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    return GpuDevice(nvml.nvmlDeviceGetUUID(handle), memory_bytes, mig)
