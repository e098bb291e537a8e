"""Checks whether the machine has the resources that functions request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.settings import FunctionSettings
from faas_stack.partition import amounts
from faas_stack.partition.allocation import Allocation, NoCapacity
from faas_stack.partition.machine import Capacity
from faas_stack.partition.resources import Resources
from faas_stack.provider.deployment import Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.doctor.context import Case, FunctionContext

__all__ = ["missing_capacity"]

_BYTES_PER_MB = 1e6


def missing_capacity(case: Case) -> Iterator[Problem]:
    """The minimum instances of all functions, with their limits, fit the provider's machine."""
    machine = case.around.machine
    if not machine:
        return
    memory_bytes = machine.get("memory_mb", float("inf")) * _BYTES_PER_MB
    ledger = Allocation(Capacity(cpu=machine["cpus"], memory_bytes=memory_bytes))
    for function_context in case.contexts:
        if not function_context.scaled:  # the scaler divides the machine itself
            yield from _refused(function_context, ledger)


def _refused(function_context: FunctionContext, ledger: Allocation) -> Iterator[Problem]:
    """Yield the provider's objections, assuming that all previous functions are deployed."""
    name, each = f"functions.{function_context.function.name}", _size(function_context)
    count = function_context.settings.scale_min if function_context.settings else 1
    try:
        ledger.reserve(function_context.function.name, each, count)
    except ConfigError as error:
        for problem in error.problems:
            yield Problem(f"{name}: {problem.name}", problem.value, problem.expected, problem.hint)
    except NoCapacity as error:
        request = f"{count} x {amounts.resources(each)}"
        yield Problem(f"{name}.limits", request, "no more than is left", str(error))


def _size(function_context: FunctionContext) -> Resources:
    """Return the cores and memory that one instance requests; none if they cannot be read."""
    function = function_context.function
    deployment = Deployment(
        function.name,
        function.image,
        constraints=tuple(function.constraints),
        limits={key: text for key, text in function.limits.items() if key in ("cpu", "memory")},
        settings=function_context.settings or FunctionSettings(),
    )
    try:
        each = Resources.of(deployment)
    except ConfigError:  # reported when the file is read
        return Resources()
    return Resources(cpu=each.cores or None, memory_bytes=each.memory_bytes)
