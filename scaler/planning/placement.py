"""Places instances by best fit, on servers with cores, memory and several GPUs.

Best fit is the rule of INFless (ASPLOS'22, Algorithm 1 and Eq. 10): an instance of a given size
goes to the server with the least remaining capacity among those it fits on. Remaining capacity is
counted in INFless's unit, percent of a GPU, with a core worth ``CORE_WEIGHT`` of them. An instance
has its share on one GPU, which is the fullest one of the chosen server on which it fits. If GPUs
are divided into equal slots, a share takes as many whole ones as it needs.

Amounts are kept as whole millionths, so that releasing undoes placing exactly. Each requested size
has a heap of servers by their remaining capacity. Changes of servers are appended to one log, and a
heap reads the new entries when it is used, so a placement costs O(log n) on n servers for each size
in use and nothing for the others. Outdated entries are dropped when they reach the top.
"""

from __future__ import annotations

import copy
import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from carpool.scaling import resource_units
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency import Resources

__all__ = ["Boundless", "Cluster", "Node", "Placement"]

_MILLION = 1_000_000
_ROUNDING = 1e-4  # in millionths
_WHOLE_GPU = 100 * _MILLION
_NO_GPU = -1
_LOG_PER_NODE = 4


@dataclass(frozen=True, slots=True)
class Node:
    """A server.

    Attributes:
        name: Name of the server.
        cpu: Cores.
        gpus: Number of GPUs.
        memory_mb: Memory in MB.
        gpu_slots: Number of equal parts that each GPU is divided into; 0 for shares of any size.

    Raises:
        ConfigError: The server has no cores or memory, or a negative amount.
    """

    name: str
    cpu: float
    gpus: int = 0
    memory_mb: float = math.inf
    gpu_slots: int = 0

    def __post_init__(self) -> None:
        """Refuse servers without capacity."""
        problems = Problems()
        if not 0 < self.cpu < math.inf:
            problems.add(f"{self.name}.cpu", self.cpu, "a number of cores above 0")
        if self.gpus < 0:
            problems.add(f"{self.name}.gpus", self.gpus, "a number of GPUs of at least 0")
        if self.gpu_slots < 0:
            problems.add(f"{self.name}.gpu_slots", self.gpu_slots, "a number of at least 0")
        if not self.memory_mb > 0:
            problems.add(f"{self.name}.memory_mb", self.memory_mb, "an amount above 0")
        problems.raise_if_any()


class Placement(NamedTuple):
    """A placed instance: the numbers of instance, server and GPU; the GPU is -1 without one."""

    number: int
    node: int
    gpu: int


class _Amounts(NamedTuple):
    """A size, or the free capacity of a server, in millionths; memory may be infinite."""

    cpu: int
    gpu: int
    memory: float


class _Ranking:
    """Servers that one size fits on, by remaining capacity, and the part of the log included."""

    __slots__ = ("amounts", "heap", "known")

    def __init__(self, amounts: _Amounts, heap: list[tuple[float, int]], known: int) -> None:
        heapq.heapify(heap)
        self.amounts = amounts
        self.heap = heap
        self.known = known


class Cluster:
    """Servers and the instances placed on them, which never exceed their capacity."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        self._gpus = [[_whole_gpu(node)] * node.gpus for node in nodes]
        self._free = [_capacity(node) for node in nodes]
        self._left = [self._measured(node) for node in range(len(self.nodes))]
        self._whole = tuple(self._left)
        self._instances = [0] * len(self.nodes)
        self._free_cpu = sum(free.cpu for free in self._free)
        self._free_gpu = sum(map(sum, self._gpus))
        self._placed: dict[Placement, _Amounts] = {}
        self._next = 0
        self._rankings: dict[Resources, _Ranking] = {}
        self._log: list[int] = []

    def __len__(self) -> int:
        """Return the number of placed instances."""
        return len(self._placed)

    def __bool__(self) -> bool:
        """Return True even without placed instances, unlike a missing cluster."""
        return True

    def left(self, node: int) -> float:
        """Return the remaining capacity of server number ``node``, in `resource_units`."""
        return self._left[node]

    def free(self) -> tuple[float, float]:
        """Return the free cores and percent of GPUs of all servers together."""
        return self._free_cpu / _MILLION, self._free_gpu / _MILLION

    def used(self, node: int) -> dict[str, float]:
        """Return the used share of each resource of server number ``node``."""
        whole, free, shares = _capacity(self.nodes[node]), self._free[node], self._gpus[node]
        shares_used = {"cores": 1 - free.cpu / whole.cpu}
        if shares:
            shares_used["GPUs"] = 1 - sum(shares) / (whole.gpu * len(shares))
        if math.isfinite(whole.memory):
            shares_used["memory"] = 1 - free.memory / whole.memory
        return shares_used

    def best_fit(self, size: Resources) -> int | None:
        """Return the first server with the least remaining capacity among those this size fits on.

        None if it fits on none.
        """
        ranking = self._rankings.get(size) or self._ranked(size)
        heap, (cpu, gpu, memory) = ranking.heap, ranking.amounts
        capacities, lefts = self._free, self._left
        for node in self._log[ranking.known :]:
            cores, share, free = capacities[node]
            if cpu <= cores and gpu <= share and memory <= free:
                heapq.heappush(heap, (lefts[node], node))
        ranking.known = len(self._log)
        while heap:
            left, node = heap[0]
            cores, share, free = capacities[node]
            if left == lefts[node] and cpu <= cores and gpu <= share and memory <= free:
                return node
            heapq.heappop(heap)
        return None

    def place(self, size: Resources, node: int, gpu: int | None = None) -> Placement:
        """Place an instance on a server, on the tightest GPU with enough free unless one is given.

        Raises:
            ValueError: There is no capacity for it.
        """
        amounts = _amounts(size)
        if gpu is None:
            gpu = self._tightest(node, amounts.gpu)
        if not self._fits(amounts, node, gpu):
            message = f"{size} does not fit on {self.nodes[node].name}"
            raise ValueError(message)
        return self._put(amounts, node, gpu)

    def release(self, placement: Placement) -> None:
        """Remove a placed instance.

        Raises:
            ValueError: It is not placed here.
        """
        amounts = self._placed.pop(placement, None)
        if amounts is None:
            message = f"{placement} is not placed here, or has been released"
            raise ValueError(message)
        self._take(amounts, placement, -1)

    def place_up_to(self, size: Resources, count: int) -> int:
        """Place ``count`` instances, or as many as fit, and return their number."""
        return len(self._placed_up_to(size, count))

    def fits(self, size: Resources, count: int) -> int:
        """Return how many of ``count`` instances fit, without placing any."""
        tried = self._placed_up_to(size, count)
        for placement in reversed(tried):
            self.release(placement)
        return len(tried)

    def _placed_up_to(self, size: Resources, count: int) -> list[Placement]:
        amounts = _amounts(size)
        placed: list[Placement] = []
        while len(placed) < count and (node := self.best_fit(size)) is not None:
            placed.append(self._put(amounts, node, self._tightest(node, amounts.gpu)))
        return placed

    def _put(self, amounts: _Amounts, node: int, gpu: int) -> Placement:
        """Place an instance where it is known to fit."""
        placement = Placement(self._next, node, gpu)
        self._next += 1
        self._placed[placement] = amounts
        self._take(amounts, placement, 1)
        return placement

    def fragmentation(self) -> float:
        """Return the unallocated share of servers in use, in `resource_units`; 0 without any."""
        used = [node for node, count in enumerate(self._instances) if count]
        whole = math.fsum(self._whole[node] for node in used)
        return math.fsum(self._left[node] for node in used) / whole if used else 0.0

    def copy(self) -> Cluster:
        """Return a copy to plan on, in which the same placements can be released."""
        twin = copy.copy(self)
        twin._detach()  # noqa: SLF001  its own class
        return twin

    def _detach(self) -> None:
        self._gpus = [shares.copy() for shares in self._gpus]
        self._free, self._left = self._free.copy(), self._left.copy()
        self._instances, self._placed = self._instances.copy(), self._placed.copy()
        self._rankings, self._log = {}, []

    def _ranked(self, size: Resources) -> _Ranking:
        cpu, gpu, memory = amounts = _amounts(size)
        heap = [
            (self._left[node], node)
            for node, (cores, share, free) in enumerate(self._free)
            if cpu <= cores and gpu <= share and memory <= free
        ]
        ranking = self._rankings[size] = _Ranking(amounts, heap, len(self._log))
        return ranking

    def _fits(self, amounts: _Amounts, node: int, gpu: int) -> bool:
        free, shares = self._free[node], self._gpus[node]
        if amounts.cpu > free.cpu or amounts.memory > free.memory:
            return False
        if amounts.gpu == 0:
            return gpu == _NO_GPU
        return 0 <= gpu < len(shares) and amounts.gpu <= shares[gpu]

    def _tightest(self, node: int, gpu: int) -> int:
        """Return the fullest GPU of ``node`` on which ``gpu`` fits."""
        if not gpu:
            return _NO_GPU
        fitting = [(share, at) for at, share in enumerate(self._gpus[node]) if share >= gpu]
        return min(fitting)[1] if fitting else _NO_GPU

    def _take(self, amounts: _Amounts, placement: Placement, count: int) -> None:
        _, node, gpu = placement
        shares = self._gpus[node]
        if amounts.gpu:
            taken = count * _in_slots(amounts.gpu, self.nodes[node])
            shares[gpu] -= taken
            self._free_gpu -= taken
        self._free_cpu -= count * amounts.cpu
        cpu, _, memory = self._free[node]
        cpu, memory = cpu - count * amounts.cpu, memory - count * amounts.memory
        self._free[node] = _Amounts(cpu, max(shares, default=0), memory)
        self._instances[node] += count
        self._left[node] = self._measured(node)
        self._log.append(node)
        if len(self._log) > _LOG_PER_NODE * len(self.nodes):  # ranking again is as cheap as reading
            self._rankings.clear()
            self._log.clear()

    def _measured(self, node: int) -> float:
        return resource_units(self._free[node].cpu / _MILLION, sum(self._gpus[node]) / _MILLION)


def _amounts(size: Resources) -> _Amounts:
    if not all(0 <= amount < math.inf for amount in (size.cpu, size.gpu, size.memory_mb)):
        message = f"{size}: expected amounts of at least 0"
        raise ValueError(message)
    cpu, gpu = int(_millionths(size.cpu)), int(_millionths(size.gpu))
    return _Amounts(cpu, gpu, _millionths(size.memory_mb))


def _capacity(node: Node) -> _Amounts:
    gpu = _whole_gpu(node) if node.gpus else 0
    return _Amounts(int(_millionths(node.cpu)), gpu, _millionths(node.memory_mb))


def _whole_gpu(node: Node) -> int:
    """Return the size of a server's GPU: all of its slots, if it has any."""
    return _slot(node) * node.gpu_slots if node.gpu_slots else _WHOLE_GPU


def _in_slots(gpu: int, node: Node) -> int:
    """Return how much of a GPU a share takes on a server."""
    if not node.gpu_slots:
        return gpu
    slot = _slot(node)
    return -(-gpu // slot) * slot


def _slot(node: Node) -> int:
    """Return the size of a slot, rounded up so that all slots hold a whole GPU."""
    return -(-_WHOLE_GPU // node.gpu_slots)


def _millionths(amount: float) -> float:
    """Convert an amount, rounding down so that 24 shares of 100/24 percent fit on a GPU."""
    return math.floor(amount * _MILLION + _ROUNDING) if math.isfinite(amount) else amount


class Boundless:
    """Stands for unknown servers, with unlimited capacity."""

    nodes: tuple[Node, ...] = ()

    def copy(self) -> Boundless:
        """Return itself, as it has no state."""
        return self

    def place_up_to(self, size: Resources, count: int) -> int:
        """Return ``count``, as everything fits."""
        del size
        return max(count, 0)

    fits = place_up_to

    def free(self) -> tuple[float, float]:
        """Return infinite cores and percent of GPUs."""
        return math.inf, math.inf

    def best_fit(self, size: Resources) -> int:
        """Return 0, as everything fits anywhere."""
        del size
        return 0

    def place(self, size: Resources, node: int) -> None:
        """Do nothing, as placements are not recorded."""

    def left(self, node: int) -> float:
        """Return infinity."""
        del node
        return math.inf

    def used(self, node: int) -> dict[str, float]:
        """Return an empty mapping, as use is unknown."""
        del node
        return {}
