"""Resources of one instance as numbers: limits, requests, constraints and labels.

A function's own labels (``com.carpool.cpu``) override ``limits``, because scaling plans are written
there. The front of a scaled function requests nothing: it has no model, and its labels are those of
its instances, which run elsewhere. Pure, and independent of what enforces the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from carpool import setting_types
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.settings import FunctionSettings

__all__ = ["GPU_LIMIT", "PINNED", "Resources", "is_front_environment", "thread_variables"]

GPU_LIMIT = "nvidia.com/gpu"
PINNED = "cpu=pinned"
_CPUSET = "cpuset="
_CORES = "a number of cores such as 0.5 or 500m"
_GPUS = "a whole number of GPUs"
_BYTES_PER_MB = 10**6
_WHOLE_GPU = 100.0

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ResourceRequest(Protocol):
    """The part of a deployment that says what each instance needs."""

    @property
    def limits(self) -> Mapping[str, str] | None:
        """Maximum quantities: ``cpu``, ``memory`` and GPUs."""

    @property
    def requests(self) -> Mapping[str, str] | None:
        """Reserved quantities: ``cpu`` and ``memory``."""

    @property
    def constraints(self) -> Sequence[str]:
        """Such as ``cpu=pinned``."""

    @property
    def settings(self) -> FunctionSettings:
        """Settings of the function."""

    @property
    def env_vars(self) -> Mapping[str, str]:
        """Environment of an instance."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources that one instance may use, and those reserved for it.

    Attributes:
        cpu: Maximum number of cores, fractional; None: no limit.
        cpu_share: Weight against other instances, as the cores that it gets when all are busy.
        cpuset: Cores to run on, as in ``0-3,6``; empty: any.
        pinned: Whether it gets whole cores, which the provider chooses.
        memory_bytes: Maximum memory; None: no limit.
        memory_reserved_bytes: Memory that it keeps when memory is short.
        gpus: Number of GPUs it sees.
        gpu_percent: Percentage of their multiprocessors.
    """

    cpu: float | None = None
    cpu_share: float | None = None
    cpuset: str = ""
    pinned: bool = False
    memory_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    gpus: int = 0
    gpu_percent: float = 0.0

    @property
    def whole_cores(self) -> int:
        """Number of cores to which an instance is pinned; 0 if it is not."""
        return max(1, round(self.cpu or 1.0)) if self.pinned else 0

    @property
    def cores(self) -> float:
        """Number of cores that must be available for it."""
        return self.whole_cores or self.cpu or 0.0

    @property
    def threads(self) -> int | None:
        """Number of threads that can run without waiting for one another. None: no limit.

        With more threads than whole cores, a thread would be stopped in the middle of a batch
        whenever the quota is used up, and the others with it.
        """
        return max(1, int(self.cores)) if self.cores else None

    @classmethod
    def of(cls, deployment: ResourceRequest, *, pin_whole: bool = False) -> Resources:
        """Return what ``deployment`` requests for each instance.

        Args:
            deployment: Deployment of the instances.
            pin_whole: Whether a whole number of cores implies pinning.

        Raises:
            ConfigError: With all limits and requests that are not quantities.
        """
        if is_front_environment(deployment.env_vars):
            return cls()
        problems = Problems()
        limits, requests = deployment.limits or {}, deployment.requests or {}
        settings, constraints = deployment.settings, deployment.constraints
        memory_mb = settings.memory_mb or _memory_mb(limits, "limits", problems)
        reserved_mb = _memory_mb(requests, "requests", problems)
        cpu_limit = _cores(limits, "limits", problems)
        gpus = _count(limits, problems) or (1 if settings.gpu else 0)
        cpu = settings.cpu or cpu_limit
        resources = cls(
            cpu=cpu,
            cpu_share=_cores(requests, "requests", problems),
            cpuset=next((c[len(_CPUSET) :] for c in constraints if c.startswith(_CPUSET)), ""),
            pinned=PINNED in constraints or (pin_whole and (cpu or 0.5).is_integer()),
            memory_bytes=_bytes(memory_mb),
            memory_reserved_bytes=_bytes(reserved_mb),
            gpus=gpus,
            gpu_percent=settings.gpu or (_WHOLE_GPU if gpus else 0.0),
        )
        problems.raise_if_any()
        return resources


def is_front_environment(env: Mapping[str, str]) -> bool:
    """Return whether it makes a sidecar a front, by the rules of `sidecar.options`."""
    elsewhere = env.get("sidecar_upstreams") or env.get("sidecar_class")
    return bool(env.get("sidecar_scaler") and not elsewhere)


def _cores(quantities: Mapping[str, str], where: str, problems: Problems) -> float | None:
    text = quantities.get("cpu", "")
    if not text:
        return None
    try:
        return setting_types.cores(text)
    except ValueError:
        problems.add(f"{where}.cpu", text, _CORES)
        return None


def _memory_mb(quantities: Mapping[str, str], where: str, problems: Problems) -> float | None:
    text = quantities.get("memory", "")
    if not text:
        return None
    memory_type = setting_types.memory()
    try:
        size_mb: float = memory_type.read(text)
    except ValueError:
        size_mb = 0.0
    if not memory_type.accepts(size_mb):
        hint = f"did you mean '{text[:-1]}Mi'?" if text.endswith("m") else ""
        problems.add(f"{where}.memory", text, memory_type.expected, hint)
        return None
    return size_mb


def _count(limits: Mapping[str, str], problems: Problems) -> int:
    text = limits.get(GPU_LIMIT, "0")
    if not (text.isascii() and text.isdecimal()):
        problems.add(f"limits.{GPU_LIMIT}", text, _GPUS)
        return 0
    return int(text)


def _bytes(size_mb: float | None) -> int | None:
    return None if size_mb is None else int(size_mb * _BYTES_PER_MB)


def thread_variables(each: Resources) -> dict[str, str]:
    """Return default environment variables of an instance, which a function's own override.

    The handler sizes ONNX Runtime's threads by ``carpool_cpu``: it is set for ``limits.cpu``, too,
    as for the label.
    """
    if each.threads is None:
        return {}
    return {**dict.fromkeys(_POOLS, str(each.threads)), "carpool_cpu": f"{each.cores:g}"}
