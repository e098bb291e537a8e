"""Random scenarios for a batch policy, and shrinking them to the part that shows a fault.

A scenario is data: which requests arrive when, on which instances, and what the function does. A
request of application ``fails`` fails alone, one of ``breaks`` breaks its batch, so a scenario
keeps its meaning when arrivals are removed. What must hold is in `promises`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from sidecar.core.admission.shedding import Shedding
from sidecar.core.batch import Fault
from sidecar.testing import Arrival, Drive, ScriptedFunction

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.policy import BatchPolicy

__all__ = ["Scenario", "random_scenario", "shrunk"]

_ARRIVALS_MAX = 60
_STRAGGLER_S = 86_400.0  # its arrival after all others, none of which may wait for it


@dataclass(frozen=True, slots=True)
class Scenario:
    """Requests, instances and function behaviour that a policy is tested with.

    Attributes:
        arrivals: the requests, in order.
        instances: planned share of each instance.
        batch_max, queue_max, shed: limits of the batcher.
        base_s, per_item_s: execution time of a batch: the fixed part, and that of each item.
        slow_after: number of batches after which execution takes ten times as long.
        fault: how a batch with a request of ``breaks`` fails.
    """

    arrivals: tuple[Arrival, ...]
    instances: tuple[float, ...] = (1.0,)
    batch_max: int = 8
    queue_max: int = 1024
    shed: str = "observe"
    base_s: float = 0.01
    per_item_s: float = 0.001
    slow_after: int | None = None
    fault: Fault = Fault.ANSWERED

    def drive(self, policy: BatchPolicy) -> Drive:
        """Return a new simulated sidecar with ``policy`` and this scenario's function."""
        ran = 0

        def exec_s(items: int) -> float:
            nonlocal ran
            ran += 1
            slow = self.slow_after is not None and ran > self.slow_after
            return (self.base_s + self.per_item_s * items) * (10 if slow else 1)

        function = ScriptedFunction(
            exec_s,
            fails=lambda request: request.app == "fails",
            breaks=lambda request: request.app == "breaks",
            fault=self.fault,
        )
        return Drive(
            policy,
            function,
            instances=self.instances,
            batch_max=self.batch_max,
            queue_max=self.queue_max,
            shedding=Shedding(self.shed),
        )

    def __str__(self) -> str:
        """Return the scenario as Python source, without fields that have their defaults."""
        rows = "".join(f"\n    {_without_defaults(arrival)}," for arrival in self.arrivals)
        rest = "".join(
            f", {field.name}={value if isinstance(value, Fault) else repr(value)}"
            for field in dataclasses.fields(self)[1:]
            if (value := getattr(self, field.name)) != field.default
        )
        return f"Scenario(({rows}\n){rest})"


def _without_defaults(arrival: Arrival) -> str:
    defaults = Arrival._field_defaults
    values = arrival._asdict().items()
    fields = [f"{name}={value!r}" for name, value in values if value != defaults.get(name)]
    return f"Arrival({', '.join(fields)})"


def random_scenario(seed: int) -> Scenario:
    """Return the scenario of a seed; larger seeds give longer ones, up to a limit."""
    random = Random(seed)  # noqa: S311 - it must be reproducible
    base_s = random.choice([1e-6, 0.002, 0.05, 0.5])
    batch_max = random.choice([1, 2, 5, 8, 32])
    return Scenario(
        _arrivals(random, min(1 + seed // 4, _ARRIVALS_MAX), base_s, batch_max),
        instances=random.choice([(1.0,), (1.0,), (0.5, 0.5), (0.7, 0.2, 0.1)]),
        batch_max=batch_max,
        queue_max=random.choice([1024, 1024, 7]),
        shed=random.choice(["observe", "on", "off"]),
        base_s=base_s,
        per_item_s=base_s * random.choice([0.0, 0.1, 1.0]),
        slow_after=random.choice([None, None, 9]),
        fault=random.choice(list(Fault)),
    )


def _arrivals(random: Random, count: int, base_s: float, batch_max: int) -> tuple[Arrival, ...]:
    at = random.choice([0.0, 1_234_567.0])  # clocks of a machine begin anywhere
    gap_s = base_s * random.choice([0.1, 0.5, 2.0])
    gaps_s: Callable[[], float] = random.choice(
        [
            lambda: 0.0,
            lambda: gap_s,
            lambda: random.expovariate(1 / gap_s),
            lambda: random.choice([0.0, 0.0, 0.0, 20 * gap_s]),
        ]
    )
    budgets_s = random.choice([[math.inf], [5 * base_s], [math.inf, 30 * base_s, 2 * base_s, 0.0]])
    keys = random.choice([["x"], ["x"], ["x", "y", "z"]])
    apps = random.choice([["*"], ["*"], ["*", "web", "fails"], ["*", "web", "web", "breaks"]])
    item_counts = random.choice([[1], [1], [1, 1, 2, batch_max, batch_max + 3]])
    lanes = random.choice([[False], [False], [False, True], [True]])
    patience_s = random.choice([[math.inf], [math.inf], [math.inf, 3 * base_s]])
    arrivals = []
    for _ in range(count):
        arrivals.append(
            Arrival(
                at,
                random.choice(budgets_s),
                random.choice(keys),
                random.choice(apps),
                random.choice(item_counts),
                random.choice(lanes),
                random.choice(patience_s),
            )
        )
        at = round(at + gaps_s(), 7)
    return (*arrivals, Arrival(at + _STRAGGLER_S, key="x"))


def shrunk(scenario: Scenario, shows: Callable[[Scenario], bool]) -> Scenario:
    """Return ``scenario`` reduced to what is needed for ``shows`` to hold."""
    size = max(1, len(scenario.arrivals) // 2)
    while size:
        at = 0
        while at < len(scenario.arrivals):
            arrivals = scenario.arrivals[:at] + scenario.arrivals[at + size :]
            fewer = dataclasses.replace(scenario, arrivals=arrivals)
            if arrivals and shows(fewer):
                scenario = fewer
            else:
                at += size
        size //= 2
    return _with_defaults(scenario, shows)


def _with_defaults(scenario: Scenario, shows: Callable[[Scenario], bool]) -> Scenario:
    """Set each setting, and each property of all arrivals, to its default where possible."""

    def if_it_shows(**changes: Any) -> Scenario:  # noqa: ANN401 - any of the fields
        changed = dataclasses.replace(scenario, **changes)
        return changed if shows(changed) else scenario

    for field in dataclasses.fields(scenario)[1:]:
        scenario = if_it_shows(**{field.name: field.default})
    start = scenario.arrivals[0].at
    scenario = if_it_shows(arrivals=tuple(a._replace(at=a.at - start) for a in scenario.arrivals))
    for name, default in Arrival._field_defaults.items():
        scenario = if_it_shows(
            arrivals=tuple(a._replace(**{name: default}) for a in scenario.arrivals)
        )
    return scenario
