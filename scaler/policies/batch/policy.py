"""BATCH (SC'20): one instance size, one batch size and one window, for bursty arrivals.

All three are searched again every round: the cheapest with the objective's percentile in time
(Eq. 2), or with a budget the fastest within it (Eq. 3), over all instance sizes of the model,
batches up to the function's largest, and windows on a grid. The choice in force stays as long as it
suffices and no other is worth the change.

Deviations from the paper. Batch sizes, the phase in which a batch begins and latencies follow the
exact law (`batch_law`) instead of Eq. 9, and the cost is that of a mean batch. The number of
instances is computed by `queueing`, where the paper has one at once for every batch. A function's
applications are planned for as one, with the tightest objective.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.arrivals.counted import CountedArrivals
from carpool.arrivals.markov import MarkovArrivals
from carpool.arrivals.processes import Poisson
from carpool.arrivals.superposition import superposed
from carpool.recent import Recent, Same
from carpool.scaling import Proposal
from scaler.policies.batch import sizes
from scaler.policies.batch.task import BatchParams, BatchTask
from scaler.policies.common.alike import alike

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.scaling import ClusterView, FunctionLoad
    from scaler.policies.batch.sizes import InstanceSize

__all__ = ["Batch"]

_RATIO = 1.01  # ratio of neighbouring rates that are planned for
_KEPT = 2  # loads remembered for each function; each may take 64 kB
_MODELS = 1024  # models whose execution times are remembered


class Batch:
    """Finds the cheapest size, batch and window for a percentile, or the fastest for a budget."""

    Params = BatchParams

    def __init__(self, params: BatchParams) -> None:
        self._params = params
        self._counted: dict[str, CountedArrivals] = {}
        self._plain_rps: dict[str, float] = {}
        self._tasks: Recent[BatchTask] = Recent(1)
        self._instance_sizes: Recent[tuple[InstanceSize, ...]] = Recent(_MODELS)

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """As `ScalePolicy.propose`."""
        self._tasks.keep(_KEPT * len(loads))
        return {load.name: self._proposal(load, cluster) for load in loads}

    def _proposal(self, load: FunctionLoad, cluster: ClusterView) -> Proposal:
        task = self._task(load, self._arrivals(load, load.now_s))
        draft, fleet = task.drafted(_with_one_objective(load), cluster)
        if fleet is None:
            return Proposal({})
        count = draft.instances[fleet.size]
        return Proposal(
            draft.instances,
            wait_s={"*": fleet.choice.window_s},
            explain=draft.explain,
            predicted=fleet.predicted(count, task.objective_s, load.billing),
        )

    def _task(self, load: FunctionLoad, process: Markovian) -> BatchTask:
        """Return the task of planning for a function at its load, computed once for each."""
        key = (Same(load.model), load.max_batch, load.percentile)
        instance_sizes = self._instance_sizes.of(
            key, lambda: sizes.instance_sizes(load.model, load.max_batch, load.percentile)
        )
        return self._tasks.of(
            (*key, process, load.tightest_s, Same(load.billing)),
            lambda: BatchTask(self._params, load, process, instance_sizes),
        )

    def _arrivals(self, load: FunctionLoad, now_s: float) -> Markovian:
        """Return the known process of all requests; Poisson if only the rate is known."""
        if self._params.learn and all(app.arrivals is None for app in load.apps):
            counted = self._counted.setdefault(load.name, CountedArrivals(self._params.learn))
            counted.note(now_s, load.rate_rps)
            if counted.bursty and load.rate_rps > 0:
                return counted.bursty
        phases = [app.arrivals.phase_rates if app.arrivals else None for app in load.apps]
        known = list(zip(load.apps, phases, strict=True))
        bursty = [MarkovArrivals(*rates) for app, rates in known if rates and app.rate_rps > 0]
        plain_rps = sum(app.rate_rps for app, rates in known if not rates)
        return superposed([Poisson(self._steady_rate(load.name, plain_rps)), *bursty])

    def _steady_rate(self, function: str, rate_rps: float) -> float:
        """Return a rounded rate, keeping that of the last round if it is close enough.

        Similar rates share it, so that results for one serve all of them.
        """
        before_rps = self._plain_rps.get(function, 0.0)
        if not alike(rate_rps, before_rps):
            before_rps = _RATIO ** round(math.log(rate_rps, _RATIO)) if rate_rps > 0 else 0.0
            self._plain_rps[function] = before_rps
        return before_rps


def _with_one_objective(load: FunctionLoad) -> FunctionLoad:
    """Return the load with one objective for all applications, so that they share a window."""
    objective_s = load.tightest_s
    return replace(load, apps=tuple(replace(app, slo_s=objective_s) for app in load.apps))
