"""The configuration of one function's front sidecars: a plan, and where its instances are.

It is the scaling plan, plus the instances of an old one that stand in while new ones load. Its
version grows with each change. Its term is that of this start of the scaler, so that fronts take it
for newer than any configuration they had before. A revision names both and the addresses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from carpool.plan import Predicted
from scaler.control.class_function import class_of
from scaler.control.plan_size import capacities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass, Plan, Route
    from scaler.control.class_function import Status

__all__ = ["SidecarConfig", "interim", "stand_ins"]


@dataclass(slots=True)
class SidecarConfig:
    """The current configuration of the fronts.

    Attributes:
        term: Higher at each start of a scaler than at any before.
        version: Version of the fronts' plan.
        plan: The fronts' plan; None if there is none.
        instances: Addresses by class.
    """

    term: int
    version: int = 0
    plan: Plan | None = None
    instances: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _changes: int = 0
    _told: tuple[Plan, Plan] | None = None  # the previous plan, and its form for sidecars

    @property
    def revision(self) -> str:
        """Name of the current state; empty without a plan."""
        return f"{self.term}:{self.version}:{self._changes}" if self.plan else ""

    def update(
        self,
        plan: Plan,
        surplus: Sequence[InstanceClass],
        ready: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Make this the configuration for a plan; its revision changes only if it does.

        Args:
            plan: The plan in force.
            surplus: Class of each instance that stands in, once per instance.
            ready: Addresses of the ready instances by class.
        """
        if surplus or self._told is None or self._told[0] is not plan:
            configuration = _plain(interim(plan, surplus))
            self._told = None if surplus else (plan, configuration)
            known = self.plan is not None and _plain(self.plan) == configuration
        else:
            configuration, known = self._told[1], True
        if not known:
            self.version += 1
            self.plan = replace(
                configuration, term=self.term, version=self.version, explain=plan.explain
            )
        names = {each.name for each in configuration.classes}
        instances = {name: where for name, where in ready.items() if name in names and where}
        if instances != self.instances:
            self.instances = instances
            self._changes += 1


def stand_ins(
    plan: Plan,
    deployed: Mapping[str, Status],
    ready: Mapping[str, Sequence[str]],
    *,
    awaited: bool,
) -> list[InstanceClass]:
    """Return the class of each instance that is not in the plan but has to stand in.

    Args:
        plan: The plan in force.
        deployed: Functions listed by the gateway, by class.
        ready: Addresses of the ready instances by class.
        awaited: Whether planned instances are missing.
    """
    own = {each.name for each in plan.classes}
    if not awaited and any(ready.get(name) for name in own):
        return []
    classes = {name: class_of(status) for name, status in deployed.items()}
    return [
        each
        for name, where in ready.items()
        if name not in own and (each := classes.get(name))
        for _ in where
    ]


def _plain(plan: Plan) -> Plan:
    """Return a plan without the fields that are irrelevant to sidecars."""
    return replace(
        plan,
        version=0,
        term=0,
        prewarm_s=0.0,
        keep_alive_s=None,
        last_only=False,
        predicted=Predicted(),
        explain=(),
    )


def interim(plan: Plan, surplus: Sequence[InstanceClass]) -> Plan:
    """Return ``plan`` with the classes of surplus instances, which stand in for loading ones.

    They get a share in proportion to their capacity; classes of the same name share it. A route
    that requires an accuracy leads only to variants that have it.
    """
    names = {instance_class.name for instance_class in plan.classes}
    others = Counter(
        instance_class for instance_class in surplus if instance_class.name not in names
    )
    if not others or not plan.routes:
        return plan
    capacity = capacities([*plan.classes, *others])
    spare = {each: count * capacity[each] for each, count in others.items()}
    own = sum(each.replicas * capacity[each] for each in plan.classes)
    accuracies = {offer.variant: offer.accuracy for offer in plan.variants}
    classes = {instance_class.name: instance_class for instance_class in others}
    return replace(
        plan,
        classes=(*plan.classes, *classes.values()),
        routes=tuple(_with(route, spare, own, accuracies) for route in plan.routes),
    )


def _with(
    route: Route,
    spare: Mapping[InstanceClass, float],
    own: float,
    accuracies: Mapping[str, float],
) -> Route:
    """Return the route, extended to the spare instances that meet its accuracy."""
    least = route.accuracy
    suiting = {k: n for k, n in spare.items() if accuracies.get(k.variant, 0.0) >= least}
    total = sum(suiting.values())
    if not total:
        return route
    share = total / (total + own)
    weights = {name: (1 - share) * part for name, part in route.weights.items()}
    for instance_class, amount in suiting.items():
        weights[instance_class.name] = (
            weights.get(instance_class.name, 0.0) + share * amount / total
        )
    return replace(route, weights=weights)
