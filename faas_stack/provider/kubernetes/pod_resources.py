"""Conversion of an instance's limits to the resources and nodes that its pod requests. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from faas_stack.partition.resources import GPU_LIMIT, PINNED, Resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from carpool.validation.problems import Problems
    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.kubernetes.options import KubernetesOptions

__all__ = ["gpu_remark", "gpu_slots", "node_selector", "pod_resources"]

_MILLI = 1000
_READ = ("cpu", "memory", GPU_LIMIT)  # limits that `Resources` covers


def pod_resources(
    deployment: Deployment, each: Resources, options: KubernetesOptions
) -> dict[str, dict[str, str]]:
    """Return the requests and limits of the function's container.

    A pinned instance has whole cores and requests as much as its limits allow, because only then
    does the kubelet's static CPU manager give it exclusive cores.
    """
    limits = _others(deployment.limits)
    requests = _others(deployment.requests)
    if cpu := float(each.whole_cores) or each.cpu:
        limits["cpu"] = _cores(cpu)
    if each.memory_bytes is not None:
        limits["memory"] = str(each.memory_bytes)
    if slots := gpu_slots(each, options):
        limits[options.gpu_resource] = str(slots)
    if each.cpu_share is not None and not each.pinned:
        requests["cpu"] = _cores(each.cpu_share)
    if each.memory_reserved_bytes is not None and not each.pinned:
        requests["memory"] = str(each.memory_reserved_bytes)
    both = {"limits": limits, "requests": requests}
    return {name: quantities for name, quantities in both.items() if quantities}


def gpu_slots(each: Resources, options: KubernetesOptions) -> int:
    """Return the number of GPU shares of an instance, rounded up to those that nodes offer."""
    if not each.gpus:
        return 0
    if each.gpus > 1:
        return each.gpus * options.gpu_slots
    return max(1, math.ceil(each.gpu_percent * options.gpu_slots / 100 - 1e-9))


def gpu_remark(each: Resources, options: KubernetesOptions) -> str:
    """Describe how a GPU share was rounded up to those that nodes offer; empty if it was not."""
    slots = gpu_slots(each, options)
    given = 100 * slots / options.gpu_slots
    if not slots or given <= each.gpus * each.gpu_percent:
        return ""
    of = f"{slots} of {options.gpu_slots} shares" if options.gpu_slots > 1 else "a whole one"
    return f"{each.gpu_percent:g} % of a GPU rounded up to {of} ({options.gpu_resource})"


def node_selector(constraints: Iterable[str], problems: Problems) -> dict[str, str]:
    """Return the node labels of ``KEY=VALUE`` and ``KEY==VALUE`` constraints; report bad ones."""
    selector = {}
    for constraint in constraints:
        if constraint == PINNED:
            continue
        key, _, value = constraint.partition("=")
        value = value.removeprefix("=").strip()
        if not (key.strip() and value) or key.endswith("!") or key == "cpuset":
            expected = f"a label of nodes such as topology.kubernetes.io/zone=a, or {PINNED}"
            problems.add("constraints", constraint, expected)
            continue
        selector[key.strip()] = value
    return selector


def _others(quantities: Mapping[str, str] | None) -> dict[str, str]:
    return {key: text for key, text in (quantities or {}).items() if key not in _READ}


def _cores(cores: float) -> str:
    return f"{max(1, round(cores * _MILLI))}m"
