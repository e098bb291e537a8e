"""The live planner: one round for all functions, each by its own policy behind a guard.

A function's label names its policy, unless one was set for all of them. Functions with the same
policy are planned for together, because they share the servers. Planning only computes, and waits
for nothing.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from carpool.errors import CarpoolError
from carpool.policy_errors import raised
from carpool.server_advice import instance_advice, server_advice
from carpool.variants.variant_set import model_of
from scaler.control.guard import Guard
from scaler.control.planning_result import FunctionResult
from scaler.control.stabilization import StabilizationLimits
from scaler.planning.placement import Cluster
from scaler.planning.snapshot import Snapshot
from scaler.policy_choice import chosen_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad
    from scaler.control.controller import Controller
    from scaler.control.shadow_policy import Shadow
    from scaler.planning.cost import Prices
    from scaler.planning.placement import Node

__all__ = ["Planner", "PlannerSettings", "rounded_shares"]

log = logging.getLogger(__name__)

_WHOLE = 100.0
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """Settings of the planner.

    Attributes:
        prices: Prices of resources.
        nodes: The servers; empty if they are unknown.
        policies: Parameters by policy, as in a scenario.
        policy: Policy of all functions; empty to use each function's label.
        limits: How fast plans may follow.
    """

    prices: Prices
    nodes: Sequence[Node] = ()
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: str = ""
    limits: StabilizationLimits = field(default_factory=StabilizationLimits)


class Planner:
    """Plans for all functions, with a guard for each policy in use.

    Args:
        setting: Settings of the planner.
        shadow: A policy that plans for the same loads without being followed.
        term: Term of the plans.

    Attributes:
        nodes: The servers, as configured or as discovered later.
        nodes_configured: Whether the servers are not taken from the provider.
        advice: Advice to the operator of the servers, as of the last round.

    Raises:
        ConfigError: The policy of all functions cannot be used.
    """

    def __init__(
        self, setting: PlannerSettings, shadow: Shadow | None = None, term: int = 0
    ) -> None:
        self._setting = setting
        self._term = term
        self._guards: dict[str, Guard] = {}
        self._wrong: dict[str, str] = {}
        self.shadow = shadow
        self.nodes = setting.nodes
        self.nodes_configured = bool(setting.nodes)
        self.advice: list[str] = []
        if setting.policy:
            self._guards[setting.policy] = self._guard(setting.policy)

    def policy_of(self, controller: Controller) -> str:
        """Return the name of the policy that plans for a function."""
        return self._setting.policy or controller.settings.scale_policy

    def plan(
        self, controllers: Mapping[str, Controller], loads: Mapping[str, FunctionLoad], now_s: float
    ) -> dict[str, FunctionResult]:
        """Plan one round for the functions of ``loads``."""
        outcomes: dict[str, FunctionResult] = {}
        groups: dict[str, list[FunctionLoad]] = {}
        for name, load in loads.items():
            policy = self.policy_of(controllers[name])
            groups.setdefault(policy, []).append(load)
        servers = self._servers(loads.values())
        for policy, of_policy in groups.items():
            guard = self._ready(policy)
            if guard is None:
                failure = f"its policy {policy} cannot be used: {self._wrong[policy]}"
                outcomes.update({load.name: FunctionResult(failure=failure) for load in of_policy})
                continue
            cluster = servers.copy() if servers else None
            snapshot = Snapshot(now_s, tuple(of_policy), cluster, self._setting.prices)
            planning = guard.plan(snapshot)
            for load in of_policy:
                result = planning.of(load.name)
                rounded = rounded_shares(result.plan or load.plan, self.nodes)
                failure = result.failure and f"its policy {policy} fails: {result.failure}"
                outcomes[load.name] = replace(
                    result, notes=[*result.notes, *rounded], failure=failure
                )
        by_hardware = _by_hardware(controllers.values())
        self.advice = [*server_advice(servers), *instance_advice(by_hardware)]
        self._cast_shadow(tuple(loads.values()), now_s)
        return outcomes

    def _cast_shadow(self, loads: tuple[FunctionLoad, ...], now_s: float) -> None:
        if self.shadow is None:
            return
        cluster = Cluster(self.nodes) if self.nodes else None
        known = tuple(load for load in loads if math.isfinite(load.rate_rps))
        try:
            self.shadow.plan(Snapshot(now_s, known, cluster, self._setting.prices))
        except Exception:  # a failing shadow policy must not affect real plans
            log.exception("the shadow policy %s failed and was stopped", self.shadow.name)
            self.shadow = None

    def _ready(self, policy: str) -> Guard | None:
        if policy not in self._guards and policy not in self._wrong:
            try:
                self._guards[policy] = self._guard(policy)
            except CarpoolError as error:
                self._wrong[policy] = str(error)
            except (Exception, SystemExit) as error:  # noqa: BLE001  others are planned for
                self._wrong[policy] = raised(error)
        return self._guards.get(policy)

    def _guard(self, policy: str) -> Guard:
        policy_made = chosen_policy(policy, self._setting.policies)
        return Guard(policy_made, self._setting.limits, self._term)

    def _servers(self, loads: Iterable[FunctionLoad]) -> Cluster | None:
        """Return the servers with all existing instances placed on them; None if unknown."""
        if not self.nodes:
            return None
        cluster = Cluster(self.nodes)
        for load in loads:
            for each in load.plan.classes if load.plan else ():
                instances = load.instances.get(each.name)
                model = model_of(load.model, each.variant)
                size = model.resources(each.batch_size, each.cpu, each.gpu)
                for _ in range(instances.ready + instances.loading if instances else 0):
                    node = cluster.best_fit(size)
                    if node is not None:
                        cluster.place(size, node)
        return cluster


def _by_hardware(controllers: Iterable[Controller]) -> dict[str, Counter[str]]:
    """Count the states of variants' instances by the hardware that they run on."""
    states: dict[str, Counter[str]] = {}
    for controller in controllers:
        classes = {each.name: each for each in controller.plan.classes} if controller.plan else {}
        for name, counts in controller.interference.by_class().items():
            if name in classes:
                hardware = "GPU" if classes[name].gpu else "core"
                states.setdefault(hardware, Counter()).update(counts)
    return states


def rounded_shares(plan: Plan | None, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield a sentence for each class of a plan that takes more of a GPU than it asks for."""
    slot_counts = sorted({node.gpu_slots for node in nodes if node.gpus and node.gpu_slots})
    for each in plan.classes if plan else ():
        for slots in slot_counts if each.gpu else ():
            taken = math.ceil(each.gpu * slots / _WHOLE - _ROUNDING)
            percent = taken * _WHOLE / slots
            if percent > each.gpu + _ROUNDING:
                yield (
                    f"{each.name} takes {percent:.3g} % of a GPU for {each.gpu:.3g} %: "
                    f"{taken} of {slots} slots"
                )
