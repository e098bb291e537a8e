"""The conformance suite of batch policies (`carpool.testing.check_policy`).

Random scenarios come first, short ones before long ones, each run twice with two fresh policies; a
scenario that breaks a promise is shrunk to what is needed to show it. A long run follows, in which
memory must not grow. The suite does not judge whether a policy is good or fast.
"""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from typing import TYPE_CHECKING, Any, TypeVar

from carpool import plugins
from carpool.policy_errors import Broken, raised
from carpool.testing import BrokenPromise, Report
from sidecar.conformance.observed_policy import ObservedPolicy
from sidecar.conformance.promises import BOUNDED, LEAVES, ONE_END, PROMISES, SANE, check_drive
from sidecar.conformance.scenarios import Scenario, random_scenario, shrunk
from sidecar.core.request import IllegalTransition
from sidecar.testing import Arrival, Stuck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sidecar.core.policy import BatchPolicy, Decision, Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["check_policy"]

A = TypeVar("A")
Q = TypeVar("Q")

_LONG = 3000  # requests in each part of the long run
_LEAK_BYTES = 1.0  # for each request: a quarter of what a list grows with an entry for each batch


def check_policy(
    policy: type[Any] | str,
    params: Mapping[str, Any],
    *,
    seed: int,
    scenarios: int,
    wait_max_s: float,
) -> Report:
    """Run the suite on ``policy``, as `carpool.testing.check_policy` describes."""
    policy_class = plugins.resolve("batch", policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else policy.__qualname__
    requests = batches = 0

    def fresh() -> BatchPolicy:
        made: BatchPolicy = plugins.build(policy_class, params)
        return made

    def drive_twice(scenario: Scenario) -> int:
        return _driven_twice(scenario, fresh, wait_max_s)

    for number in range(seed, seed + scenarios):
        scenario = random_scenario(number)
        try:
            batches += drive_twice(scenario)
        except Broken as broken:
            raise _reduced(name, number, broken, drive_twice) from broken
        requests += len(scenario.arrivals)
    _check_memory(name, fresh, wait_max_s)
    return Report(name, PROMISES, scenarios, requests, batches)


def _reduced(
    name: str, seed: int, broken: Broken, drive: Callable[[Scenario], object]
) -> BrokenPromise:
    """Return the same broken promise, shown by the shrunk scenario."""
    seen = broken

    def shows(scenario: Scenario) -> bool:
        nonlocal seen
        try:
            drive(scenario)
        except Broken as again:
            if again.promise == broken.promise:
                seen = again
                return True
        return False

    scenario = shrunk(random_scenario(seed), shows)
    return BrokenPromise(name, seen.promise, seen.detail, seed, str(scenario))


def _driven_twice(scenario: Scenario, fresh: Callable[[], BatchPolicy], wait_max_s: float) -> int:
    """Drive two policies through ``scenario``; return how many batches the first one made."""
    first, batches = _driven(scenario, fresh(), wait_max_s)
    first.check_forgotten()
    second, _ = _driven(scenario, fresh(), wait_max_s)
    first.check_same(second)
    return batches


def _driven(
    scenario: Scenario, policy: BatchPolicy, wait_max_s: float
) -> tuple[ObservedPolicy, int]:
    observed = ObservedPolicy(policy)
    drive = scenario.drive(observed)
    try:
        ends = drive.run(scenario.arrivals)
    except Stuck as stuck:
        raise Broken(LEAVES, str(stuck)) from stuck
    except IllegalTransition as error:
        raise Broken(ONE_END, str(error)) from error
    check_drive(len(scenario.arrivals), ends, drive.batches, scenario.batch_max, wait_max_s)
    return observed, len(drive.batches)


def _check_memory(name: str, fresh: Callable[[], BatchPolicy], wait_max_s: float) -> None:
    """Check that memory does not grow in each of the last three parts of a long run."""
    drive = Scenario(()).drive(_Named(fresh()))
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    sizes_bytes: list[int] = []
    try:
        for _ in range(4):
            drive.run(_steady(drive.clock.now, wait_max_s)).clear()
            drive.batches.clear()
            gc.collect()
            sizes_bytes.append(tracemalloc.get_traced_memory()[0])
    except Broken as broken:
        raise BrokenPromise(name, broken.promise, broken.detail) from broken
    except Stuck as stuck:
        raise BrokenPromise(name, LEAVES, f"{stuck}, in a long run") from stuck
    finally:
        if not tracing:
            tracemalloc.stop()
    grown = [after - before for before, after in itertools.pairwise(sizes_bytes)]
    if min(grown) > _LEAK_BYTES * _LONG:
        detail = f"{min(grown) / _LONG:.1f} bytes a request, over {4 * _LONG} requests"
        raise BrokenPromise(name, BOUNDED, detail)


class _Named:
    """Passes calls on to a policy, without keeping them; its errors become broken promises."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy

    def depart(self, request: Request) -> float:
        """Return the latest departure time of ``request``."""
        return self._asked(self._policy.depart, request)

    def decide(self, waiting: Waiting) -> Decision:
        """Return how many items may leave now."""
        return self._asked(self._policy.decide, waiting)

    def observe(self, executed: Executed) -> None:
        """Learn from a batch that ran."""
        self._asked(self._policy.observe, executed)

    def _asked(self, ask: Callable[[Q], A], question: Q) -> A:
        try:
            return ask(question)
        except (Exception, SystemExit) as error:
            detail = f"{ask.__name__} raised {raised(error)}, in a long run"
            raise Broken(SANE, detail) from error


def _steady(start: float, gap_s: float) -> Iterator[Arrival]:
    """Yield one part of the long run, four arrivals at a time; every fourth has a unique key."""
    for number in range(_LONG):
        at = start + gap_s * (1 + number // 4)
        yield Arrival(at, key="x" if number % 4 else f"only at {at}")
