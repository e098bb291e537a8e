"""A simulated sidecar refuses the same requests as a live one."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from sidecar.core.admission.shedding import Shedding
from sidecar.core.request import DEADLINE_SHARE, State
from sidecar.policies.planned import policy_of
from sidecar.testing import Drive, ScriptedFunction
from tests.simulator.load import At, Constant, Scripted, function, linear, plan, run
from tests.simulator.load import scenario as of

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad


@pytest.mark.parametrize(("slo_s", "done", "refused"), [(0.33, 11, 2), (0.31, 10, 3)])
def test_requests_that_would_be_late_are_refused_on_arrival(
    slo_s: float, done: int, refused: int
) -> None:
    """Requests that would end late are refused on arrival, including the time for the way back."""
    times = (*range(8), *(10 + n / 1000 for n in range(5)))  # eight for it to know the times
    scenario = of(function(At(times), linear(0.1), slo_s=slo_s), horizon_s=20.0)
    result = run(scenario, Constant(Constant.Params()))
    assert (done, refused, 0) == (result["done"], result["refused"], result["expired"])
    assert refused / len(times) == result["slo_miss_ratio"]


@pytest.mark.parametrize(("batch", "wait_s"), [(1, 0.0), (4, 0.05), (8, 0.1)])
def test_simulated_overload_matches_batcher(batch: int, wait_s: float) -> None:
    """The simulation gives the same results as `Batcher` with the same arrivals and instance."""
    base_s, per_item_s, slo_s, horizon_s = 0.06, 0.01, 0.4, 60.0
    full_s = base_s + per_item_s * batch
    gaps_s = np.random.default_rng(batch).exponential(full_s / batch / 1.3, size=4000)
    times = np.cumsum(gaps_s)
    times = times[times < horizon_s]

    shedding = Shedding("on")
    policy = policy_of(plan("f", 1, batch=batch, wait_s=wait_s))
    live = Drive(
        policy,
        ScriptedFunction(lambda size: base_s + per_item_s * size),
        batch_max=batch,
        queue_max=10**6,
        shedding=shedding,
    )
    ends = live.run([(at, slo_s * DEADLINE_SHARE) for at in times.tolist()])
    states = Counter(end.state for end in ends)
    served_s = [end.at - end.request.arrived for end in ends if end.state is State.DONE]

    model = linear(base_s, per_item_s)
    scenario = of(function(At(tuple(times.tolist())), model, slo_s=slo_s), horizon_s=horizon_s)
    result = run(scenario, Constant(Constant.Params(1, batch, wait_s)))
    names = {State.DONE: "done", State.REFUSED: "refused", State.EXPIRED: "expired"}
    assert states[State.REFUSED] > len(times) / 10
    assert {name: states[state] for state, name in names.items()} == {
        name: result[name] for name in names.values()
    }
    assert pytest.approx(1000 * statistics.fmean(served_s)) == result["latency_ms"]["mean"]


def test_plan_with_other_predictions_changes_no_refusals() -> None:
    """A plan with other predictions keeps the learned execution times and so the refusals."""
    times = (*range(8), *(10 + n / 1000 for n in range(5)))

    def refused(predicted_rps: Callable[[int], float]) -> object:
        def script(now: float, load: FunctionLoad) -> Plan:
            version = 1 + int(now)
            made = plan(load.name, version)
            only = replace(made.classes[0], rate_high=predicted_rps(version))
            return replace(made, classes=(only,))

        scenario = of(function(At(times), linear(0.1), slo_s=0.33), horizon_s=20.0)
        return run(scenario, Scripted(script), interval_s=1.0)["refused"]

    assert 2 == refused(lambda _: 10.0) == refused(lambda version: 10.0 + version)
