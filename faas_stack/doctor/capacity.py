"""Checks whether the machine has the resources that functions request."""

from __future__ import annotations

from dataclasses import replace
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
    for context in case.contexts:
        if not context.scaled:  # the scaler divides the machine itself
            yield from _refused(context, ledger)


def _refused(context: FunctionContext, ledger: Allocation) -> Iterator[Problem]:
    """Yield the provider's objections, assuming that all previous functions are deployed."""
    name, each = f"functions.{context.function.name}", _size(context)
    count = context.settings.scale_min if context.settings else 1
    try:
        ledger.reserve(context.function.name, each, count)
    except ConfigError as error:
        for problem in error.problems:
            yield replace(problem, name=f"{name}: {problem.name}")
    except NoCapacity as error:
        request = f"{count} x {amounts.resources(each)}"
        yield Problem(f"{name}.limits", request, "no more than is left", str(error))


def _size(context: FunctionContext) -> Resources:
    """Return the cores and memory that one instance requests; none if they cannot be read."""
    function = context.function
    deployment = Deployment(
        function.name,
        function.image,
        constraints=tuple(function.constraints),
        limits={key: text for key, text in function.limits.items() if key in ("cpu", "memory")},
        settings=context.settings or FunctionSettings(),
    )
    try:
        each = Resources.of(deployment)
    except ConfigError:  # reported when the file is read
        return Resources()
    return Resources(cpu=each.cores or None, memory_bytes=each.memory_bytes)
