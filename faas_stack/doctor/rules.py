"""The checks of ``carpool doctor``, in the order of their findings.

Findings are shown with the name of their check. The first line of the docstring of a check's
function is its promise, which docs/doctor.md lists.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faas_stack.doctor import canaries, capacity, cluster, executor, names, process, scaling, times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from carpool.errors import Problem
    from faas_stack.doctor.context import Case, FunctionContext

__all__ = ["CASE", "FUNCTION", "READING", "Finding", "examine", "promises"]

READING = "stack-file"  # problems found when the file is read
_READING_PROMISE = (
    "faas-cli and Carpool accept the whole stack file: no unknown key, no malformed setting, and "
    "no two that conflict (a window that is not shorter than the objective, `scale.min` above "
    "`scale.max`)."
)

FUNCTION: Mapping[str, Callable[[FunctionContext], Iterator[Problem]]] = {
    "window": times.late_by_waiting,
    "exec-timeout": times.cut_off,
    "write-timeout": times.watchdog_hangs_up,
    "watchdog-times": times.unread_times,
    "max-inflight": process.refused_batches,
    "watchdog": process.overruled,
    "options": process.wrong_options,
    "variables": process.nearly_ours,
    "warm-up": process.cold_first_batch,
    "executor": executor.other_executor,
    "stages": executor.stages_missing,
    "labels": names.nearly_labels,
    "commercial-labels": names.commercial_labels,
    "scale-factor": names.bad_factor,
    "scale-bounds": names.bounds_crossed,
    "two-bounds": names.two_scales,
    "objective": scaling.no_objective,
    "batch-policy": scaling.batch_policy_unused,
    "front": scaling.front_without,
    "token": scaling.token_missing,
}
CASE: Mapping[str, Callable[[Case], Iterator[Problem]]] = {
    "gateway-timeout": times.gateway_gives_up,
    "gateway-order": times.gateway_order,
    "scaler-address": scaling.nobody_scales,
    "scaler": scaling.scaler_silent,
    "running": scaling.scaler_complains,
    "too-slow": times.too_slow,
    "crashes": process.handler_crashed,
    "reachable": scaling.surroundings_silent,
    "alertmanager": scaling.another_scaler,
    "replicas": scaling.replicas_over,
    "functions": scaling.functions_over,
    "model": process.model_missing,
    "grpc-port": process.grpc_port_shared,
    "canary": canaries.canary_missing,
    "canary-callers": canaries.callers_unknown,
    "gpu": scaling.gpus_missing,
    "capacity": capacity.missing_capacity,
    "cluster-namespace": cluster.namespace_missing,
    "cluster-pod": cluster.pod_refused,
    "cluster-capacity": cluster.missing_capacity,
    "cluster-autoscaler": cluster.autoscaled_twice,
    "cluster-rights": cluster.missing_rights,
    "cluster-pinning": cluster.pinning_without_manager,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a check has found."""

    check: str
    problem: Problem


def examine(case: Case) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    for context in case.contexts:
        for name, check in FUNCTION.items():
            yield from (Finding(name, problem) for problem in check(context))
    for name, whole in CASE.items():
        yield from (Finding(name, problem) for problem in whole(case))


def promises() -> dict[str, str]:
    """Return what holds if a check finds nothing, by the check's name."""
    checks = {**FUNCTION, **CASE}
    docstrings = {
        name: (inspect.getdoc(check) or "").split("\n\n")[0] for name, check in checks.items()
    }
    return {
        READING: _READING_PROMISE,
        **{name: " ".join(t.split()) for name, t in docstrings.items()},
    }
