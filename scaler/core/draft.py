"""A plan in the making: one function's instances during a round, and the `Plan` they become.

How many instances of which size there should be is the policies' business.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from carpool.plan import InstanceClass, Plan, Predicted, Route
from scaler.core import cost, dispatch
from scaler.core.sizing import matching

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.core.cost import Prices
    from scaler.core.sizing import Size
    from scaler.core.snapshot import FunctionView

__all__ = ["Draft", "classes_of", "listed", "next_plan", "running", "unchanged"]

_MOVED = 0.01  # of a share; else every change of the rate would make a new plan


@dataclass(slots=True)
class Draft:
    """What a function will have.

    Attributes:
        view: The function.
        sizes: What its instances may be.
        instances: What it has, or is to get.
        needed_rps: What they must be able to take.
        explain: Sentences for an operator.
    """

    view: FunctionView
    sizes: tuple[Size, ...]
    instances: Counter[Size] = field(default_factory=Counter)
    needed_rps: float = 0.0
    explain: list[str] = field(default_factory=list)

    @property
    def missing_rps(self) -> float:
        """What the instances cannot take of what they must."""
        missing = self.needed_rps - dispatch.rate_high(self.instances)
        return missing if missing > 1e-9 * self.needed_rps else 0.0

    @property
    def unplaced_rps(self) -> float:
        """The part of the function's rate that goes with what is missing."""
        rate_rps = self.view.rate_rps
        return rate_rps * self.missing_rps / self.needed_rps if self.needed_rps else 0.0


def running(view: FunctionView, sizes: tuple[Size, ...]) -> Counter[Size]:
    """The instances there are of the plan in force, of those sizes that still serve."""
    found: Counter[Size] = Counter()
    for planned in view.plan.classes if view.plan else ():
        there = view.instances.get(planned.name)
        size = matching(sizes, planned)
        if size and there:
            found[size] += there.ready + there.loading
    return +found


def next_plan(
    draft: Draft,
    policy: str,
    prices: Prices,
    *,
    wait_s: float = 0.0,
    keep_alive_s: float | None = None,
) -> Plan:
    """The plan that a draft has become; the one in force if nothing but words has changed.

    Args:
        draft: It has at least one size among its instances, maybe with a count of 0.
        policy: The policy's name.
        prices: To say what a request costs.
        wait_s: Longest wait for company at the tightest objective; a laxer one may wait longer.
        keep_alive_s: As in the plan.
    """
    view, before = draft.view, draft.view.plan
    # In the order in which they are best placed: what needs no GPU fills up the servers.
    ordered = sorted(draft.instances, key=lambda size: (-size.resources.gpu, -size.units))
    classes = classes_of(Counter({size: draft.instances[size] for size in ordered}))
    plan = Plan(
        function=view.name,
        version=before.version + 1 if before else 1,
        policy=policy,
        classes=tuple(classes.values()),
        routes=_routes(draft, classes, wait_s),
        keep_alive_s=keep_alive_s,
        predicted=Predicted(cost_per_request=_cost(draft, prices)),
        explain=tuple(draft.explain),
    )
    return before if before and unchanged(plan, before) else plan


def unchanged(plan: Plan, before: Plan) -> bool:
    """Whether carrying out the one is carrying out the other."""

    def without_words(one: Plan, routes: tuple[Route, ...]) -> Plan:
        return replace(one, version=0, predicted=Predicted(), explain=(), routes=routes)

    routes = plan.routes
    if len(before.routes) == len(routes) and all(map(_alike, routes, before.routes)):
        routes = before.routes
    return without_words(plan, routes) == without_words(before, before.routes)


def _alike(route: Route, before: Route) -> bool:
    if route.weights.keys() != before.weights.keys():
        return False
    moved = [abs(share - before.weights[name]) for name, share in route.weights.items()]
    return max(moved) < _MOVED and replace(route, weights=before.weights) == before


def classes_of(instances: Counter[Size]) -> dict[Size, InstanceClass]:
    """Instances as the classes of a plan."""
    taken: Counter[str] = Counter()
    classes = {}
    for size, count in instances.items():
        taken[size.name] += 1
        again = taken[size.name]  # names are rounded
        classes[size] = InstanceClass(
            name=size.name if again == 1 else f"{size.name}-{again}",
            variant=size.variant,
            cpu=size.cpu,
            gpu=size.gpu,
            memory_mb=size.resources.memory_mb or None,
            batch_size=size.batch,
            replicas=count,
            exec_s=size.exec_s,
            rate_low=min(size.rate_low, size.rate_high),  # rounded, it may be more
            rate_high=size.rate_high,
        )
    return classes


def _routes(draft: Draft, classes: dict[Size, InstanceClass], wait_s: float) -> tuple[Route, ...]:
    """One for everybody, and one for each application that may wait longer than the tightest."""
    weights = _weights(draft, classes)
    apps = draft.view.apps
    tightest_s = min([app.slo_s for app in apps], default=0.0)
    laxer = [app for app in apps if app.slo_s > tightest_s]
    routes = [Route(app.name, weights, wait_s + app.slo_s - tightest_s) for app in laxer]
    return (Route("*", weights, wait_s), *routes)


def _weights(draft: Draft, classes: dict[Size, InstanceClass]) -> dict[str, float]:
    """Each class's share; where no instance runs, all of it goes where the first is to start."""
    each = dispatch.rates(draft.view.rate_rps, draft.instances)
    shares = {size: each[size] * count for size, count in draft.instances.items()}
    total = sum(shares.values())
    if total <= 0:
        shares = {size: max(count, 1) * size.rate_high for size, count in draft.instances.items()}
        total = sum(shares.values())
    return {classes[size].name: share / total for size, share in shares.items()}


def _cost(draft: Draft, prices: Prices) -> float | None:
    """What a request costs if batches are full."""
    rate_rps = draft.view.rate_rps
    if not rate_rps:
        return None
    rule = cost.billing(prices)
    each = dispatch.rates(rate_rps, draft.instances)
    per_second = sum(
        count
        * (
            rule.lifetime(size.resources, 1.0)
            + each[size] / size.batch * rule.execution(size.resources, size.exec_s)
        )
        for size, count in draft.instances.items()
    )
    return per_second / rate_rps


def listed(instances: Counter[Size], most: int = 6) -> str:
    """Instances in words: ``4 x b4-c2-g10 and 1 x b1-c2``."""
    parts: Sequence[str] = [f"{count} x {size.name}" for size, count in instances.items()]
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{len(parts) - most + 1} other sizes"]
    return " and ".join(parts) if parts else "none"
