"""Allocates a machine to functions: a ledger that never assigns more than there is.

Theory of operation: there are two records. *Reservations* are what functions were deployed or
scaled to, size times number; one beyond the machine is refused, with the reason. *Assignments* are
what instances hold, from before their first process starts until after the last one has ended. They
may differ temporarily: an instance that is ending still holds what is already reserved for another
one, which has to wait for it. A pinned instance has its cores to itself; all others share the
*pool* of the remaining ones. An instance without a size uses what is left: only the number of such
instances is bounded, by the maximum for the machine regardless of size.

Pure: it maps sizes to assignments or refusals, and does not know other providers on the machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Overloaded, Problem
from carpool.validation.problems import Problems
from faas_stack.partition import amounts
from faas_stack.partition.machine import Capacity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faas_stack.partition.resources import Resources

__all__ = ["Allocation", "Assignment", "NoCapacity", "Reservation", "max_instances"]

_EXACT = 1e-6  # tolerance for sums of fractions
_WHOLE_GPU = 100.0
_PER_CORE = 32  # instances per core, each with a sidecar and a handler: slow, but they start
_LEAST_BYTES = 32 * 2**20  # of memory per instance, for both processes
_UNKNOWN = 256  # instances, if the machine's size is unknown


class NoCapacity(Overloaded):
    """Raised when the requested resources are in use."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Resources reserved to a function: ``count`` times ``each``."""

    each: Resources
    count: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """Resources that an instance holds.

    Attributes:
        each: The resources it requested.
        cores: Cores reserved for it.
        gpus: GPUs visible to it.
    """

    each: Resources
    cores: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()


def max_instances(there: Capacity) -> int:
    """Return the maximum number of instances of all functions together, regardless of size."""
    by_cores = _PER_CORE * math.ceil(there.cpu) if math.isfinite(there.cpu) else _UNKNOWN
    if not math.isfinite(there.memory_bytes):
        return max(1, by_cores)
    return max(1, min(by_cores, int(there.memory_bytes // _LEAST_BYTES)))


class Allocation:
    """The reservations and the assignments of one machine.

    Args:
        capacity: Capacity of the machine.
        most: Maximum number of instances; None: as many as suit the capacity.
    """

    def __init__(self, capacity: Capacity, most: int | None = None) -> None:
        self.capacity = capacity
        self._most = max_instances(capacity) if most is None else most
        self._reservations: dict[str, Reservation] = {}
        self._assignments: dict[str, Assignment] = {}

    # -- reservations ---------------------------------------------------------------------------

    def check(self, each: Resources) -> None:
        """Check that one instance would fit on the empty machine.

        Raises:
            ConfigError: With everything that is too large.
        """
        there, problems = self.capacity, Problems()
        if each.cores > there.cpu + _EXACT:
            expected = f"at most {amounts.cores(there.cpu)}"
            problems.add("com.carpool.cpu, or limits.cpu", f"{each.cores:g}", expected)
        if (each.memory_bytes or 0) > there.memory_bytes:
            given = amounts.size(each.memory_bytes or 0)
            expected = f"at most {amounts.size(there.memory_bytes)}"
            problems.add("com.carpool.memory, or limits.memory", given, expected)
        if each.gpus > len(there.gpus) and not there.unlimited:
            problems.add("com.carpool.gpu", each.gpus, f"at most {len(there.gpus)} GPUs")
        problems.raise_if_any()

    def reserve(self, owner: str, each: Resources, count: int) -> Reservation | None:
        """Replace the reservation to ``owner`` and return the previous one.

        Raises:
            ConfigError: If one instance is too large, or the number is too large for the machine.
            NoCapacity: If the reservations to others do not leave enough.
        """
        before = self._reservations.get(owner)
        if not before or count > before.count:
            self._check_number(owner, count)
        if not (before and _covers(before, each, count)):
            self.check(each)
            if not self._can_reserve(owner, each, count):
                raise NoCapacity(self._refusal(owner, each, count))
        self.record(owner, Reservation(each, count))
        return before

    def _check_number(self, owner: str, count: int) -> None:
        others = sum(p.count for name, p in self._reservations.items() if name != owner)
        suits = (
            f"this machine's limit for all functions together is {amounts.instances(self._most)}"
        )
        if count > self._most:
            problem = Problem(f"instances of {owner!r}", str(count), f"at most {self._most}", suits)
            raise ConfigError([problem])
        if count and count > self._most - others:
            message = (
                f"no capacity for {amounts.instances(count)} of {owner!r}: "
                f"{max(0, self._most - others) or 'none'} would fit; {suits}, and {others} are "
                "reserved by others"
            )
            raise NoCapacity(message)

    def record(self, owner: str, reservation: Reservation | None) -> None:
        """Record the reservation to ``owner`` without checks; None removes it."""
        if reservation is None:
            self._reservations.pop(owner, None)
        else:
            self._reservations[owner] = reservation

    def reserved(self) -> Capacity:
        """Return the sum of cores and memory of all reservations."""
        sizes = [(p.each, p.count) for p in self._reservations.values()]
        return Capacity(
            cpu=math.fsum(each.cores * count for each, count in sizes),
            memory_bytes=sum((each.memory_bytes or 0) * count for each, count in sizes),
        )

    # -- assignments ------------------------------------------------------------------------

    def take(self, name: str, each: Resources) -> Assignment:
        """Return the assignment of instance ``name``, creating it if needed.

        Raises:
            NoCapacity: If others hold what it needs, which may be free later.
        """
        if name in self._assignments:
            return self._assignments[name]
        gpus = self._free_gpus(each)
        if gpus is None or not self._has_cores_and_memory(each):
            others = ", ".join(
                n for n, assignment in self._assignments.items() if _counts(assignment.each)
            )
            message = f"waits for {amounts.resources(each)}, held by {others or 'no other'}"
            raise NoCapacity(message)
        cores = self.pool_cores()[-each.whole_cores :] if each.whole_cores else ()
        self._assignments[name] = Assignment(each, cores, gpus)
        return self._assignments[name]

    def restore(self, name: str, assignment: Assignment) -> None:
        """Record what an instance already holds from an earlier provider."""
        self._assignments[name] = assignment

    def leave(self, name: str) -> None:
        """Free what instance ``name`` holds, if anything."""
        self._assignments.pop(name, None)

    def assignment(self, name: str) -> Assignment | None:
        """Return what instance ``name`` holds. None if it holds nothing."""
        return self._assignments.get(name)

    def fits(self, each: Resources) -> bool:
        """Return whether one more instance of this size fits now."""
        return self._has_cores_and_memory(each) and self._free_gpus(each) is not None

    def pool_cores(self) -> tuple[int, ...]:
        """Return the cores that are not reserved for an instance."""
        taken = {core for assignment in self._assignments.values() for core in assignment.cores}
        return tuple(core for core in self.capacity.cores if core not in taken)

    # -- sums -------------------------------------------------------------------------------

    def _has_cores_and_memory(self, each: Resources) -> bool:
        assignments = [assignment.each for assignment in self._assignments.values()]
        return self._within([Reservation(one, 1) for one in (*assignments, each)], each)

    def _can_reserve(self, owner: str, each: Resources, count: int) -> bool:
        reservations = [p for name, p in self._reservations.items() if name != owner]
        reservations.append(Reservation(each, count))
        return self._within(reservations, each) and (
            not each.gpus or self._gpus_suffice(reservations)
        )

    def _within(self, reservations: Iterable[Reservation], each: Resources) -> bool:
        """Return whether the sums of the resources requested by ``each`` are within capacity."""
        reservations = list(reservations)
        cores = math.fsum(p.each.cores * p.count for p in reservations)
        memory_bytes = sum((p.each.memory_bytes or 0) * p.count for p in reservations)
        return (not each.cores or cores <= self.capacity.cpu + _EXACT) and (
            not each.memory_bytes or memory_bytes <= self.capacity.memory_bytes
        )

    def _gpus_suffice(self, reservations: Iterable[Reservation]) -> bool:
        """Return whether the GPU shares can be placed, largest first."""
        if self.capacity.unlimited:
            return True
        used = dict.fromkeys(self.capacity.gpus, 0.0)
        all_of_them = [p.each for p in reservations for _ in range(p.count) if p.each.gpus]
        for each in sorted(all_of_them, key=lambda one: -one.gpu_percent):
            chosen = _fullest(used, each)
            if chosen is None:
                return False
            for name in chosen:
                used[name] += each.gpu_percent
        return True

    def _free_gpus(self, each: Resources) -> tuple[str, ...] | None:
        if self.capacity.unlimited:
            return ()
        used = dict.fromkeys(self.capacity.gpus, 0.0)
        for assignment in self._assignments.values():
            for name in assignment.gpus:
                used[name] = used.get(name, 0.0) + assignment.each.gpu_percent
        return _fullest(used, each)

    def _refusal(self, owner: str, each: Resources, count: int) -> str:
        fits = next(
            n for n in range(count - 1, -1, -1) if self._can_reserve(owner, each, n) or not n
        )
        others = [
            f"{name} ({p.count} x {amounts.resources(p.each)})"
            for name, p in self._reservations.items()
            if name != owner and p.count and _counts(p.each)
        ]
        reserved = f"part is reserved by {', '.join(others)}" if others else "all is free"
        return (
            f"no capacity for {amounts.instances(count)} of {owner!r} with "
            f"{amounts.resources(each)} each: {fits or 'none'} would fit; "
            f"of {amounts.capacity(self.capacity)}, {reserved}; "
            f"for smaller ones, set {amounts.labels(each)}"
        )


def _covers(before: Reservation, each: Resources, count: int) -> bool:
    """Return whether no more is requested than before; granted even if the machine shrank."""
    old, gpus = before.each, (each.gpus, each.gpu_percent)
    return (
        each.cores * count <= old.cores * before.count + _EXACT
        and (each.memory_bytes or 0) * count <= (old.memory_bytes or 0) * before.count
        and (not each.gpus or (gpus == (old.gpus, old.gpu_percent) and count <= before.count))
    )


def _counts(each: Resources) -> bool:
    return bool(each.cores or each.memory_bytes or each.gpus)


def _fullest(used: dict[str, float], each: Resources) -> tuple[str, ...] | None:
    """Return the fullest GPUs with capacity for it, which keeps empty ones for larger shares."""
    free = [name for name, load in used.items() if load + each.gpu_percent <= _WHOLE_GPU + _EXACT]
    if len(free) < each.gpus:
        return None
    return tuple(sorted(free, key=lambda name: -used[name])[: each.gpus])
