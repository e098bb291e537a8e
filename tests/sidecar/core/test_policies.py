"""The built-in policies in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from sidecar.core.request import State
from sidecar.policies.adaptive import Adaptive
from sidecar.policies.deadline import Deadline
from sidecar.policies.fixed import FixedWindow
from sidecar.policies.none import NoBatching
from sidecar.testing import Arrival, Drive, End, ScriptedFunction

if TYPE_CHECKING:
    from sidecar.core.policy import BatchPolicy

# A model whose weights dominate: 2.4 ms a batch and 0.27 ms an item.
WIDE = ScriptedFunction(lambda size: 0.0024 + 0.00027 * size)


def steady(rate_rps: float, seconds: float, budget_s: float) -> list[Arrival]:
    """Return evenly spaced arrivals."""
    return [Arrival(i / rate_rps, budget_s) for i in range(int(rate_rps * seconds))]


def share_done(ends: list[End]) -> float:
    """Return the share of the requests that were answered."""
    return sum(end.state is State.DONE for end in ends) / len(ends)


def test_none_sends_every_request_alone() -> None:
    """Every batch holds one request, even with a queue."""
    drive = Drive(NoBatching(NoBatching.Params()), WIDE)
    drive.run(steady(1000, 0.1, 10.0))
    assert {1} == {ran.size for ran in drive.batches}


def test_fixed_policy_sends_batch_when_window_ends() -> None:
    """With sparse arrivals, each batch leaves exactly when its window ends."""
    drive = Drive(FixedWindow(FixedWindow.Params(size=8, wait_s=0.005)), WIDE)
    drive.run([Arrival(0.0), Arrival(1.0), Arrival(1.003)])
    assert [(0.005, 1), (1.005, 2)] == [(round(r.at, 9), r.size) for r in drive.batches]


def test_deadline_does_not_wait_for_more_requests() -> None:
    """A lone request leaves at once."""
    drive = Drive(Deadline(Deadline.Params()), WIDE)
    drive.run([Arrival(0.0, 0.1), Arrival(1.0, 0.1)])
    assert [0.0, 1.0] == [ran.at for ran in drive.batches]


def test_deadline_grows_batches_with_load() -> None:
    """Five times what single requests could sustain is served within the objective."""
    drive = Drive(Deadline(Deadline.Params()), WIDE)
    ends = drive.run(steady(1900, 1.0, 0.1))
    assert 1.0 == share_done(ends)
    assert max(end.at - end.request.arrived for end in ends) < 0.1


def test_deadline_policy_fits_batch_to_tightest_deadline() -> None:
    """A request with a budget of 4 ms leaves in a batch that fits it, and the rest in the next."""
    drive = Drive(Deadline(Deadline.Params()), WIDE)
    drive.run([Arrival(0.01 * i, 1.0) for i in range(10)])
    for size in (2, 4, 8):
        drive.run([Arrival(drive.clock.now + 0.1, 1.0)] * size)
    drive.batches.clear()
    at = drive.clock.now + 0.1
    ends = drive.run([Arrival(at, 0.0045), *[Arrival(at, 0.5)] * 15])[-16:]
    assert [State.DONE] * 16 == [end.state for end in ends]
    assert 2 == len(drive.batches)
    assert all(end.at <= end.request.deadline for end in ends)


def test_deadline_policy_keeps_goodput_under_overload() -> None:
    """At twice the capacity, over 80 % of the capacity is still answered in time."""
    drive = Drive(Deadline(Deadline.Params()), WIDE, queue_max=1024)
    ends = drive.run(steady(5600, 1.0, 0.1))
    in_time = sum(e.state is State.DONE and e.at <= e.request.deadline for e in ends)
    assert in_time > 0.8 * 32 / WIDE.exec_s(32)


def test_none_policy_collapses_at_load_that_deadline_policy_serves() -> None:
    """Under a load that batching serves fully, single requests are mostly lost."""
    load = steady(1500, 1.0, 0.1)
    alone = share_done(Drive(NoBatching(NoBatching.Params()), WIDE).run(load))
    together = share_done(Drive(Deadline(Deadline.Params()), WIDE).run(load))
    assert alone < 0.4
    assert 1.0 == together


@pytest.mark.parametrize("params", [{"size": -1}, {"wait_s": -0.1}, {"wait_s": float("nan")}])
def test_fixed_policy_rejects_invalid_parameters(params: dict[str, float]) -> None:
    """A negative or NaN size or wait is an error at the start, not at the first request."""
    with pytest.raises(ConfigError):
        FixedWindow.Params(**params)  # type: ignore[arg-type]


def test_adaptive_policy_grows_batches_only_where_batching_pays() -> None:
    """Batches grow where weights dominate; where arithmetic dominates they stay small."""
    burst = [Arrival(0.5 * turn, 10.0) for turn in range(40) for _ in range(16)]
    flat = ScriptedFunction(lambda size: 0.0005 + 0.008 * size)

    def mean(policy: BatchPolicy, function: ScriptedFunction) -> tuple[float, float]:
        drive = Drive(policy, function)
        ends = drive.run(burst)[320:]
        waits = [end.at - end.request.arrived for end in ends]
        return sum(waits) / len(waits), max(ran.size for ran in drive.batches[-16:])

    adaptive, deadline = Adaptive(Adaptive.Params()), Deadline(Deadline.Params())
    wide_wait, wide_size = mean(adaptive, WIDE)
    flat_wait, flat_size = mean(Adaptive(Adaptive.Params()), flat)
    assert wide_size >= 8
    assert flat_size <= 2
    assert flat_wait < 0.7 * mean(deadline, flat)[0]
    assert wide_wait < 1.1 * mean(Deadline(Deadline.Params()), WIDE)[0]


def test_adaptive_policy_sustains_load_of_deadline_policy() -> None:
    """The smaller batches grow with the queue until they carry the load."""
    ends = Drive(Adaptive(Adaptive.Params()), WIDE).run(steady(2500, 1.0, 0.1))
    assert share_done(ends) > 0.99
