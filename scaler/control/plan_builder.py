"""Builds the plan that a policy's proposal for a function becomes.

Classes get names, which stay the same while their sizes do; applications get routes and waits where
the policy gives none; the cost of a request is computed. How many instances there may be, and how
fast that may change, is decided elsewhere (`guard`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from carpool.plan import InstanceClass, OnOffer, Plan, Predicted, Route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.prewarm_windows import Windows
    from carpool.scaling import Application, FunctionLoad, Proposal, Size

__all__ = ["build_plan", "numbered", "with_windows"]

_MOVED = 0.01  # change of a share that makes a new plan; the rate always changes a little
_LOAD_STEP_S = 0.5  # rounding of measured load times, so that not every start makes a new plan
_OVERHEAD = 0.1  # share of an objective for everything besides waiting and execution
_ALL = "*"
_WORDS = ("version", "term", "predicted", "explain")
_CARRIED_OUT = [field.name for field in fields(Plan) if field.name not in _WORDS]


def build_plan(load: FunctionLoad, proposal: Proposal, policy: str, term: int) -> Plan:
    """Return the plan of a proposal; the current one if only descriptions have changed.

    Args:
        load: Load of the function.
        proposal: With at least one size, possibly with a count of 0.
        policy: The policy's name.
        term: Term of the plan, if it is a new one.
    """
    before = load.plan
    # In the best order of placement: instances without a GPU fill the remaining space.
    ordered = sorted(proposal.instances, key=_placing_order)
    names = _names(load, ordered, proposal.on_offer)
    routes = _routes(load, proposal, ordered, names)
    carried_out = {
        "policy": policy,
        "classes": tuple(_class(names[size], size, proposal.instances[size]) for size in ordered),
        "variants": tuple(_offer(load, names[size], size) for size in proposal.on_offer),
        **_kept(_float(proposal.keep_alive_s), load.windows),
    }
    if before and _unchanged(before, carried_out, routes):
        return before  # before the check, which takes most of a round
    return Plan(
        function=load.name,
        version=before.version if before else 1,  # `numbered` increases it if the plan has changed
        term=term,
        routes=routes,
        predicted=proposal.predicted or Predicted(cost_per_request=_cost(load, proposal)),
        explain=tuple(proposal.explain),
        **carried_out,
    )


def numbered(plan: Plan, before: Plan | None, term: int) -> Plan:
    """Return a plan with this term and the next version; the current one if they are equal."""
    if before is None:
        return plan if plan.term == term else replace(plan, term=term)
    if plan is before or all(getattr(plan, name) == getattr(before, name) for name in _CARRIED_OUT):
        return before
    return replace(plan, term=term, version=before.version + 1)


def with_windows(plan: Plan, windows: Windows | None) -> Plan:
    """Return the plan with the prewarm policy's windows where the scaling policy sets none."""
    given_s = None if plan.last_only else plan.keep_alive_s
    kept = _kept(given_s, windows)
    before = {name: getattr(plan, name) for name in kept}
    return plan if kept == before else replace(plan, **kept)


def _kept(keep_alive_s: float | None, windows: Windows | None) -> dict[str, Any]:
    """Return how long instances are kept, by the scaling policy, or else the prewarm policy."""
    if windows is None or keep_alive_s is not None:
        return {"prewarm_s": 0.0, "keep_alive_s": keep_alive_s, "last_only": False}
    return {
        "prewarm_s": windows.prewarm_s,
        "keep_alive_s": windows.keep_alive_s,
        "last_only": True,
    }


def _float(value: float | None) -> float | None:
    """Return a number, which may be one of NumPy's, as Python's own."""
    return None if value is None else float(value)


def _unchanged(before: Plan, carried_out: Mapping[str, object], routes: tuple[Route, ...]) -> bool:
    """Return whether the current plan already has all of these values."""
    same = all(getattr(before, name) == value for name, value in carried_out.items())
    return same and len(routes) == len(before.routes) and all(map(_alike, routes, before.routes))


def _alike(route: Route, before: Route) -> bool:
    if route.weights.keys() != before.weights.keys():
        return False
    moved = [abs(share - before.weights[name]) for name, share in route.weights.items()]
    return max(moved) < _MOVED and replace(route, weights=before.weights) == before


def _placing_order(size: Size) -> tuple[object, ...]:
    resources = size.resources
    return (-resources.gpu, -size.units, size.variant, -size.batch, size.pool)


def _names(load: FunctionLoad, sizes: Iterable[Size], others: Iterable[Size]) -> dict[Size, str]:
    """Return names of classes: those that sizes have in the current plan, else new ones."""
    in_force = {size: name for name, size in load.planned.items()}
    names: dict[Size, str] = {}
    wanted = list(dict.fromkeys([*sizes, *others]))
    for size in wanted:
        known = in_force.get(size)
        if known is not None and _may_have(size, known):
            names[size] = known
    taken = set(names.values())
    for size in wanted:
        if size not in names:
            again = 1
            name = size.name
            while name in taken:  # names are rounded, and pools have the same size
                again += 1
                name = f"{size.name}-{again}"
            names[size] = name
            taken.add(name)
    return names


def _may_have(size: Size, name: str) -> bool:
    """Return whether this size could be given the name; other names are not kept."""
    rest = name.removeprefix(size.name)
    return rest != name and (not rest or (rest[0] == "-" and rest[1:].isdecimal()))


def _class(name: str, size: Size, count: int) -> InstanceClass:
    return InstanceClass(
        name=name,
        variant=size.variant,
        cpu=size.cpu,
        gpu=size.gpu,
        memory_mb=size.resources.memory_mb or None,
        batch_size=size.batch,
        replicas=int(count),  # it may be one of NumPy's
        exec_s=size.exec_s,
        rate_low=min(size.min_rps, size.rate_rps),  # rounding may have made it higher
        rate_high=size.rate_rps,
    )


def _offer(load: FunctionLoad, name: str, size: Size) -> OnOffer:
    """Return what fronts may offer of a size; with batching, latency is two executions.

    A batch may have left just before a request arrived.
    """
    seen_s = math.ceil(load.load_s / _LOAD_STEP_S) * _LOAD_STEP_S
    return OnOffer(
        name=name,
        variant=size.variant,
        accuracy=size.accuracy,
        latency_s=size.exec_s if size.batch == 1 else 2 * size.exec_s,
        cost=size.price_per_s / size.rate_rps,
        load_s=max(size.load_s, seen_s),
    )


def _routes(
    load: FunctionLoad, proposal: Proposal, sizes: list[Size], names: Mapping[Size, str]
) -> tuple[Route, ...]:
    """Return the route of all requests, for the strictest application, and differing ones."""
    shares = {app: _parts(given, names) for app, given in proposal.shares.items()}
    everywhere = _parts(_capacities(proposal.instances, sizes), names)
    waits_s = _waits(load, proposal, sizes)
    accurate = any(size.variant for size in sizes)

    def route(app: Application) -> Route:
        weights = shares.get(app.name) or shares.get(_ALL) or everywhere
        return Route(app.name, weights, waits_s[app.name], app.accuracy if accurate else 0.0)

    apps = [app for app in load.apps if not shares or {app.name, _ALL} & shares.keys()]
    # Requests that choose for themselves follow no route, unless there are no other requests.
    apps = [app for app in apps if not app.chooses] or apps
    if not apps:
        return (Route(_ALL, shares.get(_ALL) or everywhere, waits_s[_ALL]),)
    star = replace(route(max(apps, key=lambda app: (app.accuracy, -app.slo_s))), app=_ALL)
    named = proposal.wait_s.keys() if isinstance(proposal.wait_s, Mapping) else ()

    def own(one: Route) -> bool:
        # One that requires less accuracy leads to more of the instances that stand in for others.
        same = replace(one, app=_ALL) == star
        return one.app != _ALL and (one.app in named or not same)

    return (star, *filter(own, map(route, apps)))


def _parts(given: Mapping[Size, float], names: Mapping[Size, str]) -> dict[str, float]:
    total = math.fsum(given.values())
    return {names[size]: float(share) / total for size, share in given.items()}


def _capacities(instances: Mapping[Size, int], sizes: list[Size]) -> dict[Size, float]:
    """Return the requests per second of each size; with no instances, as if each had one."""
    least = 0 if any(instances.values()) else 1
    return {size: max(instances[size], least) * size.rate_rps for size in sizes}


def _waits(load: FunctionLoad, proposal: Proposal, sizes: list[Size]) -> dict[str, float]:
    """Return the maximum wait of each application, and of all others."""
    given = proposal.wait_s
    if isinstance(given, Mapping):
        rest = float(given.get(_ALL, min(given.values(), default=0.0)))
        return {_ALL: rest, **{app.name: float(given.get(app.name, rest)) for app in load.apps}}
    if given is None:  # a batch may have to wait for the one before it
        batching = [size.exec_s for size in sizes if size.batch > 1]
        left_s = (1 - _OVERHEAD) * load.tightest_s
        given = max(left_s - 2 * max(batching), 0.0) if batching else 0.0
    given = float(given)
    laxer = {app.name: given + (app.slo_s - load.tightest_s) for app in load.apps}
    return {_ALL: given, **laxer}


def _cost(load: FunctionLoad, proposal: Proposal) -> float | None:
    """Return the cost of a request with full batches and evenly used instances."""
    rate_rps, rule = load.rate_rps, load.billing
    if not rate_rps:
        return None
    high_rps = sum(size.rate_rps * count for size, count in proposal.instances.items())
    used = min(rate_rps / high_rps, 1.0) if high_rps else 0.0
    per_second = sum(
        count
        * (
            rule.lifetime(size.resources, 1.0)
            + used * size.rate_rps / size.batch * rule.execution(size.resources, size.exec_s)
        )
        for size, count in proposal.instances.items()
    )
    return per_second / rate_rps
