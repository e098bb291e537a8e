"""Time from a jump of the load to the request for instances, with a simulated clock.

The front's counts, the contents and times of its reports, and the scaler's rates, policy, guard
and rollout are those of live use; sockets, the event loop and the gateway are left out. Only
waiting for the next report or the next round takes time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.latency.linear import Linear
from carpool.sync import Announcement, AppReport, FrontReport
from scaler.control.class_function import Status
from scaler.control.dependencies import Dependencies
from scaler.control.functions import Functions
from scaler.control.stabilization import StabilizationLimits
from scaler.control.sync_pace import Pace
from scaler.live_planner import Planner, PlannerSettings
from scaler.planning.cost import Prices
from sidecar.core.load_counter import LoadCounter
from tests.effort import scaled

if TYPE_CHECKING:
    from carpool.latency import LatencyModel
    from scaler.control.action import Action

MODEL = Linear(0.026, 0.002, cpu=0.25)
INTERVAL_S, PAUSE_S = 0.5, 0.05  # of rounds
STEP_S = 30.0


class Gateway:
    """Gateway that lists what it was asked to run; instances become ready after a delay."""

    def __init__(self) -> None:
        labels = {
            "com.carpool.slo": "400ms",
            "com.carpool.batch.max": "4",
            "com.carpool.cpu": "0.25",
            "com.carpool.scale.policy": "infless",
        }
        base = {"name": "f", "image": "x", "replicas": 1, "labels": labels}
        self.listed: dict[str, Status] = {"f": Status.of(base)}
        self.asked: list[tuple[float, int]] = []
        self.asked_of: dict[str, float] = {}  # when each class was first asked for
        self.ready_at: list[tuple[float, str]] = []

    def carry_out(self, action: Action, now_s: float) -> None:
        """Carry out ``action`` like an OpenFaaS gateway."""
        if action.verb in ("deploy", "update"):
            document = {**action.document, "name": action.name, "replicas": 0}
            self.listed[action.name] = Status.of(document)
        elif action.verb == "scale":
            before = self.listed[action.name]
            new = action.replicas - before.replicas
            self.listed[action.name] = replace(before, replicas=action.replicas)
            self.ready_at += [(now_s + 2.5, action.class_name)] * max(0, new)
            self.asked.append((now_s, self.instances))
            self.asked_of.setdefault(action.class_name, now_s)
        else:
            self.listed.pop(action.name, None)

    @property
    def instances(self) -> int:
        """Number of requested instances of all classes."""
        return sum(status.replicas for name, status in self.listed.items() if name != "f")


class FunctionState:
    """One front, one scaler and a clock."""

    def __init__(
        self,
        policy: str,
        phase_s: float,
        others: int = 0,
        model: LatencyModel = MODEL,
        hold_s: float = 3.0,
    ) -> None:
        self.now_s = 0.0
        self.demands: dict[float, str] = {}  # of requests that say what they need, by arrival
        self.load = LoadCounter(0.0)
        self.load.on_surge = self._surged
        self.gateway = Gateway()
        self.functions = Functions(
            Dependencies(models={"f": model}), now=lambda: self.now_s, wall=lambda: self.now_s
        )
        self.functions.wake = self._woken
        self.functions.active = True
        self.functions.observe(self.gateway.listed)
        self.planner = Planner(
            PlannerSettings(Prices(), policy=policy, limits=StabilizationLimits(window_s=hold_s))
        )
        self.round_at, self.round_was = 0.0, -1.0
        self.report_at, self.report_was, self.soonest_s = phase_s, 0.0, 0.0
        self.sequence = self.reports = 0
        self._others = others  # fronts, of other functions

    def _surged(self, now_s: float) -> None:
        self.report_at = min(self.report_at, max(now_s, self.report_was + self.soonest_s))

    def _woken(self) -> None:
        self.round_at = min(self.round_at, max(self.now_s, self.round_was + PAUSE_S))

    def run(self, arrivals: list[float], until_s: float) -> None:
        """Process arrivals, reports and rounds in the order of their times."""
        coming = iter([*arrivals, until_s])
        arrival_s = next(coming)
        while True:
            next_s = min(arrival_s, self.report_at, self.round_at)
            if next_s >= until_s:
                return
            self.now_s = next_s
            if next_s == arrival_s:
                self.load.arrived(self.demands.get(next_s, "*"), next_s)
                arrival_s = next(coming)
            elif next_s == self.report_at:
                self._report()
            else:
                self._round()

    def _report(self) -> None:
        taken = self.load.take(self.now_s)
        self.sequence += 1
        (controller,) = self.functions
        report = FrontReport(
            *("f", "a" * 8, self.sequence),
            version=controller.sidecar_config.version or None,
            period_s=taken.period_s,
            apps=tuple(AppReport(name, count) for name, count in taken.arrivals.items()),
            surging=taken.surging,
        )
        self.functions.reported(controller, report)
        answer = self.functions.answer(controller, report)
        self.soonest_s = answer.soonest_s
        self.report_was, self.report_at = self.now_s, self.now_s + answer.interval_s
        self.reports += 1

    def _round(self) -> None:
        self.round_was, self.round_at = self.now_s, self.now_s + INTERVAL_S
        self.functions.observe(self.gateway.listed)
        self.functions.count()
        self.functions._sidecars += self._others
        self.functions._fronts += self._others
        (controller,) = self.functions
        ready = [entry for entry in self.gateway.ready_at if entry[0] <= self.now_s]
        for number, (_, kind) in enumerate(ready):
            where = f"{kind}:{number}"
            said = Announcement("f", f"i{number:07}", 1, kind, where, "ready", 2.5)
            controller.reports.announced(said, self.now_s)
        load = controller.load(self.now_s)
        if load is not None and self.sequence:
            outcome = self.planner.plan({"f": controller}, {"f": load}, self.now_s)["f"]
            if outcome.plan is not None:
                controller.follow(outcome.plan, self.now_s)
        for _ in range(2):  # what was deployed is listed, and scaled, in the same round
            for action in controller.step(self.now_s, self.now_s):
                self.gateway.carry_out(action, self.now_s)
                controller.done(action, self.now_s, self.now_s)
            self.functions.observe(self.gateway.listed)


def step(low_rps: float, high_rps: float, until_s: float, seed: int) -> list[float]:
    """Return random arrival times with a rate that jumps."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.uniform(start_s, end_s, rng.poisson(rate * (end_s - start_s)))
        for start_s, end_s, rate in ((0, STEP_S, low_rps), (STEP_S, until_s, high_rps))
    ]
    return sorted(np.concatenate(parts).tolist())


def followed(scene: FunctionState, low_rps: float, high_rps: float, seed: int) -> float:
    """Return the time from a jump to the request for more instances; 0 if it came before."""
    scene.run(step(low_rps, high_rps, STEP_S + 5, seed), STEP_S + 5)
    before = [count for at_s, count in scene.gateway.asked if at_s < STEP_S]
    more = [at_s for at_s, count in scene.gateway.asked if at_s >= STEP_S and count > before[-1]]
    if not more:
        assert before[-1] > before[0]
        return 0.0
    return more[0] - STEP_S


@pytest.mark.parametrize(
    ("policy", "low_rps", "high_rps"),
    [("infless", 54.0, 150.0), ("openfaas", 54.0, 150.0), ("infless", 300.0, 600.0)],
)
def test_instances_are_requested_within_a_second_of_jump(
    policy: str, low_rps: float, high_rps: float
) -> None:
    """It takes less than a second, whenever in the interval the jump comes."""
    times = scaled(40)
    found = [
        followed(FunctionState(policy, 0.5 * seed / times), low_rps, high_rps, seed)
        for seed in range(times)
    ]
    assert max(found) < 1.0
    assert min(found) >= 0.0


def test_jump_is_reported_early_with_ten_thousand_fronts() -> None:
    """Fronts report every four seconds or more, but most jumps are reported in half of that."""
    interval_s = Pace().interval_s(10_000)
    assert interval_s >= 4.0
    times = scaled(20)
    found = [
        followed(FunctionState("infless", 2 * seed / times, others=10_000), 54.0, 150.0, seed)
        for seed in range(times)
    ]
    assert sorted(found)[times // 2] < interval_s / 2
    assert max(found) < interval_s


@pytest.mark.parametrize("fronts", [1, 10, 100, 1000, 10_000, 1_000_000])
def test_surge_at_all_fronts_takes_at_most_one_core(fronts: int) -> None:
    """A lasting surge at all fronts takes at most one core of the scaler."""
    pace = Pace()
    pace.measured(1000, 0.25)
    cost_s = pace._cost_s
    soonest_s = pace.soonest_s(fronts)
    assert soonest_s <= pace.interval_s(fronts)
    assert fronts * cost_s <= max(soonest_s, 0.02) * 1.01 or soonest_s == pace.interval_s(fronts)


def test_steady_load_causes_no_early_reports() -> None:
    """Without a jump there are no early reports."""
    scene = FunctionState("infless", 0.1)
    scene.run(step(80.0, 80.0, 120.0, 3), 120.0)
    assert 200 <= scene.reports <= 290  # two a second, and more while the first instances load
