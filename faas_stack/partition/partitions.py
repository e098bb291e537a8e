"""The partitions of a provider's instances: their assignments and how these are enforced.

Theory of operation: an instance gets its assignment before its first process starts and returns it
when its last one has ended; a restart finds the same one. With control groups, quota, cores and
memory are enforced whatever the instance does. Without them, affinity limits it to its cores, and
its number of threads to a share of a core. When cores are reserved for an instance, the others move
off them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.own_cgroup import own_place
from faas_stack.partition import amounts, enter
from faas_stack.partition.allocation import Allocation, max_instances
from faas_stack.partition.cgroup_limits import CgroupLimits, Unusable
from faas_stack.partition.machine import Capacity, measured
from faas_stack.partition.provider_groups import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from carpool.own_cgroup import Place
    from faas_stack.partition.allocation import Assignment
    from faas_stack.partition.gpus import Gpus
    from faas_stack.partition.provider_groups import Tree
    from faas_stack.partition.resources import Resources

__all__ = ["Partition", "Partitions", "confine"]

log = logging.getLogger(__name__)


class Partitions:
    """Partitions of one provider.

    Args:
        ledger: The capacity and the assignments.
        note: What is enforced, in words.
        gpus: The GPUs; None: no instance gets one.
        groups: The provider's control groups and its locks on them; None: there are none.
    """

    def __init__(
        self,
        ledger: Allocation,
        note: str,
        gpus: Gpus | None = None,
        groups: tuple[Tree, list[int]] | None = None,
    ) -> None:
        self.ledger = ledger
        self.note = note
        self.gpus = gpus
        self.tree: Tree | None = groups[0] if groups else None
        self._locks = groups[1] if groups else []
        self._entered: dict[str, Partition] = {}

    @classmethod
    def off(cls) -> Partitions:
        """Return partitions without limits or counted resources."""
        most = max_instances(measured()) if sys.platform == "linux" else None
        ledger = Allocation(Capacity(), most)
        return cls(ledger, "off: only thread counts are limited")

    @classmethod
    def open(
        cls, name: str, capacity: Capacity, gpus: Gpus | None = None, place: Place | None = None
    ) -> Partitions:
        """Open a provider's partitions in folder ``name``; remove those of dead ones. Blocks."""
        there = f"{amounts.capacity(capacity)} for functions"
        try:
            groups = open_tree(place or own_place(), name)
        except Unusable as why:
            weak = "affinity and thread counts only, quotas and memory limits are not enforced"
            return cls(Allocation(capacity), f"{there}, by {weak} ({why})", gpus)
        controllers = ", ".join(sorted(groups[0].controllers))
        return cls(
            Allocation(capacity), f"{there}, by {groups[0].version} ({controllers})", gpus, groups
        )

    @property
    def groups(self) -> list[str]:
        """Folders to be removed when the provider is gone."""
        return [str(root) for root in self.tree.roots] if self.tree else []

    def has(self, controller: str) -> bool:
        """Return whether a control group enforces the limits of this controller."""
        return self.tree is not None and controller in self.tree.controllers

    def of(self, name: str, each: Resources, pids: Callable[[], list[int]]) -> Partition:
        """Return the partition of a new instance; ``pids`` lists its processes."""
        return Partition(self, name, each, pids)

    def enter(self, partition: Partition) -> Assignment:
        """Assign an instance its share, and move the others off its cores.

        Raises:
            NoCapacity: If others hold what it needs.
        """
        assignment = self.ledger.take(partition.name, partition.each)
        if assignment.cores:
            self._spread()
        self._entered[partition.name] = partition
        return assignment

    def leave(self, partition: Partition) -> None:
        """Free what an instance holds, and let the others use its cores."""
        self._entered.pop(partition.name, None)
        self.ledger.leave(partition.name)
        self._spread()

    def cores_of(self, name: str) -> tuple[int, ...]:
        """Return the cores an instance runs on: its own, or those reserved for no instance."""
        assignment = self.ledger.assignment(name)
        own = assignment.cores if assignment else ()
        return own or self.ledger.pool_cores() or self.ledger.capacity.cores

    def close(self) -> None:
        """Release the groups after their instances have ended."""
        if self.tree:
            self.tree.close()
        for lock in self._locks:
            os.close(lock)

    def _spread(self) -> None:
        """Move every instance to the cores that it may use now."""
        for name, partition in self._entered.items():
            partition.keep_to(self.cores_of(name))


class Partition:
    """Partition of one instance, from before its first process until after its last one."""

    def __init__(
        self, owner: Partitions, name: str, each: Resources, pids: Callable[[], list[int]]
    ) -> None:
        self.name = name
        self.each = each
        self._owner = owner
        self._pids = pids
        self._cores: tuple[int, ...] = ()
        self._gpus = ""

    @property
    def limited(self) -> bool:
        """Whether it requested any resources."""
        return bool(self.each.cores or self.each.memory_bytes or self.each.gpus)

    def enter(self, argv: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the command that runs ``argv`` in it, and additional environment variables.

        Raises:
            NoCapacity: If others hold what it needs.
            OSError: If the kernel rejects a limit.
        """
        owner, each = self._owner, self.each
        assignment = owner.enter(self)
        env = owner.gpus.environment(assignment) if owner.gpus else {}
        how = " by MPS" if len(env) > 1 else " in turns"
        self._gpus = ", ".join(assignment.gpus) + how if assignment.gpus else "any GPU there may be"
        self._cores = owner.cores_of(self.name)
        groups: list[Path] = []
        if owner.tree:
            alone = each.whole_cores and owner.has("cpuset")
            limits = CgroupLimits(None if alone else each.cpu, self._cores, each.memory_bytes)
            groups = owner.tree.make(self.name, limits)
        everywhere = owner.has("cpuset") or set(self._cores) >= os.sched_getaffinity(0)
        return enter.command(argv, groups, () if everywhere else self._cores), env

    def keep_to(self, cores: tuple[int, ...]) -> None:
        """Move its processes to other cores."""
        if cores == self._cores:
            return
        self._cores = cores
        if self._owner.has("cpuset") and self._owner.tree:
            with contextlib.suppress(OSError):  # its group is being created, or has been removed
                self._owner.tree.set_cores(self.name, cores)
        else:
            confine(self._pids(), cores)

    @property
    def killed_for_memory(self) -> int:
        """Number of its processes that the kernel has killed for lack of memory."""
        tree = self._owner.tree
        return tree.killed_for_memory(self.name) if tree else 0

    def end(self) -> None:
        """Kill all processes in its groups, whatever their names."""
        if self._owner.tree:
            self._owner.tree.kill(self.name)

    async def leave(self) -> None:
        """Remove its groups, then free what it holds."""
        tree = self._owner.tree
        if tree and not await asyncio.to_thread(tree.remove, self.name):
            log.warning("the control groups of %s cannot be removed; they are in use", self.name)
        self._owner.leave(self)

    def __str__(self) -> str:
        """Return its limits in words for operators."""
        each, owner = self.each, self._owner
        where = amounts.core_list(self._cores)
        words = []
        if each.whole_cores and where:
            words.append(f"core{'s' * (each.whole_cores > 1)} {where} alone")
        elif each.cpu:
            threads = f"{each.threads} thread{'s' * (each.threads != 1)}"
            how = "by quota" if owner.has("cpu") else f"by {threads} alone, no quota"
            words.append(f"{amounts.cores(each.cpu)} {how}" + f", on {where}" * bool(where))
        if each.memory_bytes:
            weak = "" if owner.has("memory") else " requested, but not enforced"
            words.append(f"{amounts.size(each.memory_bytes)}{weak}")
        if each.gpus:
            words.append(f"{each.gpu_percent:g} % of {self._gpus}")
        return "; ".join(words) + (f" ({owner.tree.version})" if owner.tree else " (no cgroups)")


def confine(pids: Iterable[int], cores: Sequence[int]) -> None:
    """Confine every thread of these processes to ``cores``, ignoring processes that have ended.

    Weaker than a control group: a process may widen its affinity again, and a process that starts
    during the change may be missed. Processes that start later inherit the cores.
    """
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread.name), cores)
