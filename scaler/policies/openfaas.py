"""What OpenFaaS does: as many instances of one size as the requests per second ask for, no batches.

Two rules. ``target`` is the one that OpenFaaS documents for requests per second: enough replicas
that each gets ``proportion`` of its target, ``ceil(R / (target * proportion))``; fewer only when
that has been enough for ``stable_s``. ``alert`` is the Community Edition's: once a function has had
more than ``alert_rps`` for ``stable_s``, it gets a step of replicas every ``repeat_s``, up to the
most; when the alert is over, at once the least. The step is ``step_percent`` of the most. The
Community Edition has no more than five replicas.

An instance that is no longer wanted stays for the keep-alive, as `Plan.keep_alive_s` says. The
defaults for its size and keep-alive are those with which INFless was compared (ASPLOS'22, 5.1). A
model that is known on one size of instance alone runs on that; without a GPU on the servers, or any
that the model is known on, instances have none.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from scaler.core.draft import Draft, listed, next_plan, running
from scaler.core.given_size import given_size
from scaler.core.placement import place_up_to
from scaler.core.policy import Planning

if TYPE_CHECKING:
    from carpool.plan import Plan
    from scaler.core.placement import Cluster
    from scaler.core.sizing import Size
    from scaler.core.snapshot import FunctionView, Snapshot

__all__ = ["OpenFaas"]

_CE_REPLICAS = 5
_ROUNDING = 1e-9


@dataclass(slots=True)
class _Memory:
    """What has been seen of one function.

    Attributes:
        wanted: When so many replicas were last wanted, the most first.
        alerted_s: Since when there has been an alert; None: there is none.
        stepped_s: When the last step was.
        replicas: How many the alerts have led to.
    """

    wanted: deque[tuple[float, int]] = field(default_factory=deque)
    alerted_s: float | None = None
    stepped_s: float = -math.inf
    replicas: int = 0


class OpenFaas:
    """Instances of one size by requests per second, each request on its own."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `OpenFaas`.

        Attributes:
            rule: ``target``: replicas by the rate; ``alert``: as in the Community Edition.
            cpu: cores of an instance.
            gpu: percent of a GPU of an instance.
            target_rps: requests per second meant for an instance; null: all that it can take.
            proportion: how much of that it is to get.
            min_replicas: the least instances.
            max_replicas: the most; null: no bound, or 5 with ``alert``.
            stable_s: seconds for which fewer must have been enough, or the alert condition held.
            keep_alive_s: seconds an idle instance stays.
            alert_rps: requests per second of a function above which there is an alert.
            step_percent: how much of the most a step is.
            repeat_s: seconds from step to step.
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
            """Refuse what no autoscaler could follow."""
            for name in ("cpu", "target_rps", "proportion", "repeat_s", "step_percent"):
                value = getattr(self, name)
                if value is not None and not 0 < value < math.inf:
                    message = f"{name} = {value}: expected a number above 0"
                    raise ValueError(message)
            for name in ("gpu", "min_replicas", "stable_s", "keep_alive_s", "alert_rps"):
                value = getattr(self, name)
                if not 0 <= value < math.inf:
                    message = f"{name} = {value}: expected a number of at least 0"
                    raise ValueError(message)
            if self.max_replicas is not None and self.max_replicas < max(self.min_replicas, 1):
                message = f"max_replicas = {self.max_replicas}: expected at least min_replicas"
                raise ValueError(message)

    def __init__(self, params: Params) -> None:
        self._params = params
        self._seen: dict[str, _Memory] = {}

    def plan(self, snapshot: Snapshot) -> Planning:
        """As `ScalePolicy.plan`."""
        room = snapshot.cluster.copy() if snapshot.cluster is not None else None
        plans: dict[str, Plan] = {}
        unplaced: dict[str, float] = {}
        for view in snapshot.functions:
            draft = self._draft(view, snapshot.now_s, room)
            if draft.unplaced_rps:
                unplaced[view.name] = draft.unplaced_rps
            if draft.instances:
                keep_alive_s = self._params.keep_alive_s
                plans[view.name] = next_plan(
                    draft, "openfaas", snapshot.prices, keep_alive_s=keep_alive_s
                )
        return Planning(plans, unplaced)

    def _draft(self, view: FunctionView, now_s: float, room: Cluster | None) -> Draft:
        size = given_size(view, *self._size(view, room), 1)
        draft = Draft(view, (size,) if size else (), needed_rps=view.rate_rps)
        if size is None:
            return draft
        replicas = self._bounded(view, self._replicas(view, size, now_s))
        there = min(running(view, (size,))[size], replicas)
        there += place_up_to(room, size.resources, replicas - there)
        draft.instances = Counter({size: there})
        said = f"{view.rate_rps:.4g} requests/s by the rule {self._params.rule}"
        draft.explain.append(f"{said}: {listed(draft.instances)}.")
        if there < replicas:
            draft.explain.append(f"There is no room for {replicas - there} more.")
        return draft

    def _size(self, view: FunctionView, room: Cluster | None) -> tuple[float, float]:
        """Cores and percent of a GPU: as given, as far as there are such instances."""
        known = {(c.cpu, c.gpu) for c in view.model.configurations(view.max_batch)}
        if len(known) == 1:
            return known.pop()
        there = room is None or any(node.gpus for node in room.nodes)
        with_gpu = there and any(gpu for _, gpu in known)
        return self._params.cpu, self._params.gpu if with_gpu else 0.0

    def _replicas(self, view: FunctionView, size: Size, now_s: float) -> int:
        memory = self._seen.setdefault(view.name, _Memory(replicas=self._params.min_replicas))
        if self._params.rule == "alert":
            return self._alerted(memory, view.rate_rps, now_s)
        target_rps = self._params.target_rps or size.rate_high
        wanted = view.rate_rps / (target_rps * self._params.proportion)
        return self._stable(memory, math.ceil(wanted - _ROUNDING), now_s)

    def _stable(self, memory: _Memory, wanted: int, now_s: float) -> int:
        """The most that was wanted at any time in the window."""
        since_s = now_s
        while memory.wanted and memory.wanted[-1][1] <= wanted:
            since_s, _ = memory.wanted.pop()  # from then on it was never more
        memory.wanted.append((since_s, wanted))
        # What was wanted holds until something else is: the next one's time ends it.
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
        held = now_s - memory.alerted_s >= params.stable_s
        if held and now_s - memory.stepped_s >= params.repeat_s:
            most = params.max_replicas or _CE_REPLICAS
            step = math.ceil(most * params.step_percent / 100)
            memory.replicas, memory.stepped_s = min(memory.replicas + step, most), now_s
        return memory.replicas

    def _bounded(self, view: FunctionView, replicas: int) -> int:
        most = self._params.max_replicas
        replicas = max(replicas, self._params.min_replicas, view.min_instances)
        bounds = [bound for bound in (most, view.max_instances) if bound is not None]
        return min([replicas, *bounds])
