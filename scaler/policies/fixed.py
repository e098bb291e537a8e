"""So many instances of one size, whatever the load: what a user without a scaler has.

What is not named is chosen from what the model knows: the smallest size, with the batch that takes
the most and still leaves the objective room for a batch that waits for the one before it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.executor_choice import better_executor
from scaler.core.draft import Draft, listed, next_plan, running
from scaler.core.given_size import given_size
from scaler.core.placement import place_up_to
from scaler.core.policy import Planning

if TYPE_CHECKING:
    from carpool.plan import Plan
    from scaler.core.placement import Cluster
    from scaler.core.snapshot import FunctionView, Snapshot

__all__ = ["Fixed"]


class Fixed:
    """A number of instances of one size, whatever the load."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Fixed`.

        Attributes:
            replicas: how many instances a function has.
            cpu: cores of each; null: as the model knows it.
            gpu: percent of a GPU of each; null likewise.
            batch: requests in a full batch; null likewise.
            wait_s: longest wait for company; null: what the objective leaves beside an execution.
        """

        replicas: int = 1
        cpu: float | None = None
        gpu: float | None = None
        batch: int | None = None
        wait_s: float | None = None

        def __post_init__(self) -> None:
            """Refuse what is no size."""
            if self.replicas < 0 or (self.batch is not None and self.batch < 1):
                message = f"replicas = {self.replicas}, batch = {self.batch}: expected whole "
                message += "numbers, replicas of at least 0 and batch of at least 1"
                raise ValueError(message)
            for name in ("cpu", "gpu", "wait_s"):
                value = getattr(self, name)
                if value is not None and not 0 <= value < math.inf:
                    message = f"{name} = {value}: expected a number of at least 0"
                    raise ValueError(message)

    def __init__(self, params: Params) -> None:
        self._params = params

    def plan(self, snapshot: Snapshot) -> Planning:
        """As `ScalePolicy.plan`."""
        room = snapshot.cluster.copy() if snapshot.cluster is not None else None
        plans: dict[str, Plan] = {}
        unplaced: dict[str, float] = {}
        for view in snapshot.functions:
            draft = self._draft(view, room)
            if draft.unplaced_rps:
                unplaced[view.name] = draft.unplaced_rps
            if draft.instances:
                wait_s = self._wait_s(draft)
                plans[view.name] = next_plan(draft, "fixed", snapshot.prices, wait_s=wait_s)
        return Planning(plans, unplaced)

    def _draft(self, view: FunctionView, room: Cluster | None) -> Draft:
        params = self._params
        size = given_size(view, params.cpu, params.gpu, params.batch)
        draft = Draft(view, (size,) if size else (), needed_rps=view.rate_rps)
        if size is None:
            return draft
        replicas = max(params.replicas, view.min_instances)
        if view.max_instances is not None:
            replicas = min(replicas, view.max_instances)
        there = min(running(view, (size,))[size], replicas)
        there += place_up_to(room, size.resources, replicas - there)
        draft.instances = Counter({size: there})
        draft.explain.append(f"{listed(draft.instances)}, as asked for.")
        if there < replicas:
            draft.explain.append(f"There is no room for {replicas - there} more.")
        if size.exec_s > view.slo_s:
            late_ms, slo_ms = size.exec_s * 1000, view.slo_s * 1000
            draft.explain.append(f"A batch takes {late_ms:.4g} ms, the objective is {slo_ms:.4g}.")
        better = better_executor(
            lambda batch: view.model.predict(batch, size.cpu, size.gpu), size.batch, view.slo_s
        )
        if better and better.executor == "lazy":
            draft.explain.append(f"The executor lazy would help: {better.why}.")
        return draft

    def _wait_s(self, draft: Draft) -> float:
        if self._params.wait_s is not None:
            return self._params.wait_s
        slo_s = min([app.slo_s for app in draft.view.apps], default=draft.view.slo_s)
        return max(slo_s - draft.sizes[0].exec_s, 0.0)
