"""Rates in simulated time, counted over a window or followed as by a live scaler."""

from __future__ import annotations

import numpy as np
import pytest

from carpool.latency.linear import Linear
from tests.simulator.load import At, Scripted, function, plan, run, scenario


def test_rate_jump_triggers_planning_rounds() -> None:
    """A jump of the rate starts a planning round at once, then one every tenth of a second."""
    calm, jump = np.arange(0.01, 10.2, 0.05), np.arange(10.2, 20.0, 0.005)
    process = At((*calm.tolist(), *jump.tolist()))
    policy = Scripted(lambda _, load: load.plan or plan(load.name, 1, 4))
    found = run(
        scenario(function(process, Linear(0.001, 0.0)), horizon_s=20.0),
        policy,
        interval_s=0.5,
        window_s=10.0,
    )
    times = [snapshot.now_s for snapshot in policy.seen]
    assert len(process.times) == found["done"]
    calm_s = np.diff([at_s for at_s in times if 5.0 < at_s < 10.2])
    assert [0.5] * len(calm_s) == pytest.approx(calm_s.tolist())
    noticed_s, *followed = [at_s for at_s in times if 10.2 < at_s][1:10]
    assert noticed_s < 10.5
    assert [noticed_s + 0.1 * number for number in range(1, 9)] == pytest.approx(followed)
    assert 0.5 == pytest.approx(times[-2] - times[-3])
