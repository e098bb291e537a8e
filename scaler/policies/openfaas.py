"""OpenFaaS's autoscaling: instances of one size by requests per second, without batches.

There are two rules. ``target`` is the one that OpenFaaS documents for requests per second: enough
replicas that each gets ``proportion`` of its target, ``ceil(R / (target * proportion))``; fewer
only when that has been enough for ``stable_s``. ``alert`` is the Community Edition's: once a
function has had more than ``alert_rps`` for ``stable_s``, it gets a step of replicas every
``repeat_s``, up to the maximum; when the alert is over, it returns to the minimum immediately. The
step is ``step_percent`` of the maximum. The Community Edition has no more than five replicas.

An instance that is no longer wanted stays for the keep-alive, see `Plan.keep_alive_s`. The defaults
for its size and keep-alive are those with which INFless was compared (ASPLOS'22, 5.1). A model that
is known on only one instance size runs on that; if the servers have no GPU, or the model is not
known on any, instances have none.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from carpool.plain_number import plain
from carpool.scaling import Proposal
from carpool.validation.problems import Problems
from scaler.policies.common.given_size import given_size, unknown_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import ClusterView, FunctionLoad, Size

__all__ = ["OpenFaas"]

_CE_REPLICAS = 5
_ROUNDING = 1e-9


@dataclass(slots=True)
class _Memory:
    """What is remembered of one function.

    Attributes:
        wanted: When numbers of replicas were last wanted, the highest first.
        alerted_s: Start of the current alert; None if there is none.
        stepped_s: Time of the last step.
        replicas: Number of replicas that the alerts have led to.
    """

    wanted: deque[tuple[float, int]] = field(default_factory=deque)
    alerted_s: float | None = None
    stepped_s: float = -math.inf
    replicas: int = 0


class OpenFaas:
    """Instances of one size by requests per second, without batches."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `OpenFaas`.

        Attributes:
            rule: ``target``: replicas by the rate; ``alert``: as in the Community Edition.
            cpu: cores of an instance.
            gpu: percent of a GPU of an instance.
            target_rps: target rate of an instance in requests per second; null: its capacity.
            proportion: share of the target that an instance should get.
            min_replicas: minimum number of instances.
            max_replicas: maximum number of instances; null: no bound, or 5 with ``alert``.
            stable_s: seconds for which fewer must have been enough, or the alert condition held.
            keep_alive_s: seconds an idle instance stays.
            alert_rps: requests per second of a function above which the alert fires.
            step_percent: size of a step, in percent of the maximum.
            repeat_s: seconds between steps.
        """

        rule: Literal["target", "alert"] = "target"
        cpu: float = 2.0
        gpu: float = 10.0
        target_rps: float | None = None
        proportion: float = 0.9
        min_replicas: int = 1
        max_replicas: int | None = None
        stable_s: float = 5.0
        keep_alive_s: float = 300.0
        alert_rps: float = 5.0
        step_percent: float = 20.0
        repeat_s: float = 30.0

        def __post_init__(self) -> None:
            """Refuse parameters that are out of range."""
            problems, least = Problems(), max(self.min_replicas, 1)
            names = ("cpu", "target_rps", "proportion", "repeat_s", "step_percent")
            problems.check(self, names, lambda v: 0 < v < math.inf, "a number above 0")
            names = ("gpu", "min_replicas", "stable_s", "keep_alive_s", "alert_rps")
            problems.check(self, names, lambda v: 0 <= v < math.inf, "a number of at least 0")
            problems.check(self, ("max_replicas",), lambda v: v >= least, "at least min_replicas")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params
        self._seen: dict[str, _Memory] = {}

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """See `ScalePolicy.propose`."""
        with_gpus = not cluster.nodes or any(node.gpus for node in cluster.nodes)
        return {load.name: self._proposal(load, with_gpus=with_gpus) for load in loads}

    def _proposal(self, load: FunctionLoad, *, with_gpus: bool) -> Proposal:
        wanted = self._size(load, with_gpus=with_gpus)
        size = given_size(load, *wanted, 1)
        if size is None:
            return Proposal({}, explain=[unknown_size(load, *wanted)])
        replicas = self._bounded(self._replicas(load, size, load.now_s))
        by_rule = f"{plain(load.rate_rps)} requests/s by the rule {self._params.rule}"
        return Proposal(
            {size: replicas},
            wait_s=0.0,
            explain=[f"{by_rule}: {replicas} x {size.name}."],
            keep_alive_s=self._params.keep_alive_s,
        )

    def _size(self, load: FunctionLoad, *, with_gpus: bool) -> tuple[float, float]:
        """Return cores and percent of a GPU: as given, unless the model has one size or no GPU."""
        known = {(c.cpu, c.gpu) for c in load.model.configurations(load.max_batch)}
        if len(known) == 1:
            return known.pop()
        with_gpu = with_gpus and any(gpu for _, gpu in known)
        return self._params.cpu, self._params.gpu if with_gpu else 0.0

    def _replicas(self, load: FunctionLoad, size: Size, now_s: float) -> int:
        memory = self._seen.setdefault(load.name, _Memory(replicas=self._params.min_replicas))
        if self._params.rule == "alert":
            return self._alerted(memory, load.rate_rps, now_s)
        target_rps = self._params.target_rps or size.rate_rps
        wanted = load.rate_rps / (target_rps * self._params.proportion)
        return self._stable(memory, math.ceil(wanted - _ROUNDING), now_s)

    def _stable(self, memory: _Memory, wanted: int, now_s: float) -> int:
        """Return the highest number wanted at any time in the window."""
        since_s = now_s
        while memory.wanted and memory.wanted[-1][1] <= wanted:
            since_s, _ = memory.wanted.pop()  # since then it was never higher
        memory.wanted.append((since_s, wanted))
        # A number is wanted until the time of the next one.
        while len(memory.wanted) > 1 and memory.wanted[1][0] <= now_s - self._params.stable_s:
            memory.wanted.popleft()
        return memory.wanted[0][1]

    def _alerted(self, memory: _Memory, rate_rps: float, now_s: float) -> int:
        params = self._params
        if rate_rps <= params.alert_rps:
            memory.alerted_s, memory.replicas = None, params.min_replicas
            memory.stepped_s = -math.inf
            return memory.replicas
        if memory.alerted_s is None:
            memory.alerted_s = now_s
        lasted = now_s - memory.alerted_s >= params.stable_s
        if lasted and now_s - memory.stepped_s >= params.repeat_s:
            most = params.max_replicas or _CE_REPLICAS
            step = math.ceil(most * params.step_percent / 100)
            memory.replicas, memory.stepped_s = min(memory.replicas + step, most), now_s
        return memory.replicas

    def _bounded(self, replicas: int) -> int:
        most = self._params.max_replicas
        replicas = max(replicas, self._params.min_replicas)
        return replicas if most is None else min(replicas, most)
