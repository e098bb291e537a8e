"""The policy `carpool`: the lowest bill within the objective, for any load and billing.

It combines the strengths of the papers' policies, each part in its own module:

* `options`: every size that responds in time, including batches of more than half the objective.
* `capacity`: what some instances can serve with the batch sizes that arrivals actually produce.
* `cover`: the cheapest instances for a rate, of one or two sizes.
* `replay`: whether fewer instances suffice than `capacity` says.
* `fill`: where executions are billed, the cheapest batch and wait at this rate.
* `demand`: the rate to provision for, with a reserve based on past rises.
* `error_budget`: the instances kept for the next jump while too many requests are missed.

Running sizes are replaced by others only where that saves ``gain`` of the bill. Where executions
are billed, idle instances cost nothing, so there are many of them, and they are kept.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from carpool.plain_number import plain
from carpool.recent import Recent, Same
from carpool.scaling import Predicted, Proposal
from carpool.validation.problems import Problems
from scaler.policies.carpool.cover import Cover, Menu
from scaler.policies.carpool.demand import Demands
from scaler.policies.carpool.error_budget import ErrorBudget
from scaler.policies.carpool.fill import Fills
from scaler.policies.carpool.options import WAY, options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from carpool.scaling import ClusterView, FunctionLoad, Size
    from scaler.policies.carpool.demand import Demand
    from scaler.policies.carpool.fill import Filled
    from scaler.policies.carpool.options import Option

__all__ = ["Carpool"]

_KEPT = 4096  # menus; a scaler has fewer functions
_GAIN_BY_USE = 0.02  # low, as idle instances of another size cost nothing
_IDLE = 8  # additional instances if idle ones are free
_FULL_SERVERS = 2.0  # highest `spare` if servers are shared
_REPLAYS = 20  # replays in a round, of about half a millisecond each
_ROUNDING = 1e-9
_RATIO = 1.01  # ratio of neighbouring rates that are planned for


@dataclass(frozen=True, eq=False)
class _Known:
    """Options worth proposing for a model and an objective, by billing rule.

    Attributes:
        menus: Where instances are billed: menus for eager and for patient batches. Empty if
            nothing responds in time, or if executions are billed.
        fills: Options where only executions are billed.
    """

    menus: tuple[Menu, ...] = ()
    fills: Fills | None = None


@dataclass(slots=True)
class _Peaks:
    """Recent maximum of busy instances, where idle ones are free."""

    seen: deque[tuple[float, float]] = field(default_factory=deque)

    def most(self, busy: float, now_s: float, kept_s: float) -> float:
        """Record ``busy`` and return the maximum over the last ``kept_s``."""
        while self.seen and self.seen[0][0] <= now_s - kept_s:
            self.seen.popleft()
        while self.seen and self.seen[-1][1] <= busy:
            self.seen.pop()
        self.seen.append((now_s, busy))
        return self.seen[0][1]


@dataclass(slots=True)
class _Covered:
    """The cheapest cover for one rate.

    Attributes:
        cover: The cover, with rated instances; None if no instances serve the rate.
        taken_rps: Sum of the capacities that it was found with.
        done: Whether no replay could change it.
    """

    cover: Cover | None = None
    taken_rps: float = -1.0
    done: bool = False


class Carpool:
    """Minimizes the bill within the objective, with batches as full as arrivals make them."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Carpool`.

        Attributes:
            reserve: spare capacity, in standard deviations of the rises seen while instances load.
            smoothing_s: seconds over which measured rates are averaged; 0: no averaging.
            gain: share of the bill that other sizes must save to replace the existing ones.
            spare: number of instances per busy one, if only executions are billed.
            kept_s: seconds for which instances are kept, if only executions are billed.
            fill: whether to compute how full batches will be; else all count as full.
            mix: whether to combine instances of two sizes.
            wait: whether batches may wait for more requests, if instances are billed.
            trend: whether to expect a steady rise of the load to continue while instances load.
            surge: whether to expect more than the measured rate after a jump.
            replay: whether to test by replays if fewer instances suffice.
            bursts: whether to expect a burst to have the rate of earlier ones.
            repay: part of the last jump's rate for which instances are kept while more requests
                are missed than the percentile permits, if instances are billed.
        """

        reserve: float = 0.0
        smoothing_s: float = 15.0
        gain: float = 0.1
        spare: float = 8.0
        kept_s: float = 900.0
        fill: bool = True
        mix: bool = True
        wait: bool = True
        trend: bool = True
        surge: bool = False
        replay: bool = True
        bursts: bool = True
        repay: float = 0.5

        def __post_init__(self) -> None:
            """Refuse parameters that are out of range."""
            problems = Problems()
            names = ("reserve", "smoothing_s", "gain", "kept_s", "repay")
            problems.check(self, names, lambda v: 0 <= v < math.inf, "a number of at least 0")
            problems.check(self, ("spare",), lambda v: 1 <= v < math.inf, "a number of at least 1")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params
        self._demands = Demands(
            params.smoothing_s,
            params.reserve,
            trend=params.trend,
            surge=params.surge,
            bursts=params.bursts,
        )
        self._known: Recent[_Known] = Recent(_KEPT)
        self._covers: Recent[_Covered] = Recent(4 * _KEPT)
        self._replays = 0
        self._filled: Recent[tuple[Filled, ...]] = Recent(4 * _KEPT)
        self._budgets: dict[str, ErrorBudget] = {}
        self._peaks: dict[str, _Peaks] = {}
        self._served: dict[str, dict[Size, float]] = {}

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """See `ScalePolicy.propose`."""
        self._replays = _REPLAYS
        proposals = {load.name: self._proposal(load, cluster) for load in loads}
        return {name: proposal for name, proposal in proposals.items() if proposal is not None}

    def _proposal(self, load: FunctionLoad, cluster: ClusterView) -> Proposal | None:
        known = self._of(load)
        load_s = max(load.load_s, load.model.load_s)
        demand = self._demands.of(load.name, load.rate_rps, load_s, load.now_s)
        if known.fills:
            return self._by_use(load, known.fills, demand, cluster)
        if known.menus:
            return self._by_instance(load, known.menus, demand, cluster)
        return None

    def _of(self, load: FunctionLoad) -> _Known:
        accuracy = max([app.accuracy for app in load.apps], default=0.0)
        variants = frozenset(app.variant for app in load.apps)
        key = (load.tightest_s, load.percentile, load.max_batch, load.error, load.prices)

        def make() -> _Known:
            return self._worth_having(load, options(load))

        return self._known.of((Same(load.model), accuracy, variants, *key), make)

    def _worth_having(self, load: FunctionLoad, options: Sequence[Option]) -> _Known:
        """Return the options that are worth proposing."""
        slo_s, params = (1 - WAY) * load.tightest_s, self._params
        if not options:
            return _Known()
        if _only_executions(load, options[0].size):
            return _Known(fills=Fills.of(options, slo_s, load.billing, honest=params.fill))
        prices = [_price(load, option.size) for option in options]
        miss = 1 - load.percentile
        eager = Menu.of(options, prices, slo_s, miss, mixed=params.mix)
        patient = Menu.patient(options, prices, slo_s, miss) if params.wait else None
        return _Known((eager, patient) if patient else (eager,))

    def _by_instance(
        self, load: FunctionLoad, menus: Sequence[Menu], demand: Demand, cluster: ClusterView
    ) -> Proposal:
        """Propose the cheapest instances for the demand where their lifetime is billed."""
        budget = self._budgets.setdefault(load.name, ErrorBudget())
        kept_rps = budget.kept_rps(load, self._params.repay)
        rate_rps = _rounded(max(demand.rate_rps, kept_rps))
        menu, chosen = self._chosen(load, menus, rate_rps)
        instances = _placed(chosen.instances, _running(load), cluster)
        unplaced = instances != chosen.instances
        said = _reasons(load, demand, chosen, menu)
        if kept_rps > demand.rate_rps:
            said.append(budget.said(kept_rps))
        return Proposal(
            instances,
            wait_s={"*": chosen.wait_s},  # however lax an application's objective is
            explain=said,
            unserved_rps=max(load.rate_rps - menu.taken_by(instances), 0.0) if unplaced else 0.0,
        )

    def _chosen(
        self, load: FunctionLoad, menus: Sequence[Menu], rate_rps: float
    ) -> tuple[Menu, Cover]:
        """Return the cheapest cover, or that of the planned sizes if others do not save enough."""
        limit, planned = load.instance_limit, _planned(load)

        def cheapest(places: Callable[[Menu], tuple[int, ...]]) -> tuple[Menu, Cover] | None:
            """Return the cheapest cover of all menus; on a tie the first, which does not wait."""
            covers = [
                (menu, cover)
                for menu in menus
                if (among := places(menu)) and (cover := self._cover(menu, rate_rps, among, limit))
            ]
            return min(covers, key=lambda each: each[1].price_per_s, default=None)

        best = cheapest(lambda menu: tuple(range(len(menu.options))))
        current = cheapest(
            lambda menu: tuple(sorted({menu.at[s] for s in planned if s in menu.at}))
        )
        if (
            best
            and current
            and current[1].price_per_s <= (1 + self._params.gain) * best[1].price_per_s
        ):
            return current
        return best or (menus[0], menus[0].nearly(rate_rps, limit))

    def _cover(
        self, menu: Menu, rate_rps: float, among: tuple[int, ...], limit: float
    ) -> Cover | None:
        known = self._covers.of((Same(menu), rate_rps, among, limit), _Covered)
        if known.done:
            return known.cover
        if not self._params.replay:
            known.done = True
        elif self._replays:
            made = menu.refine(rate_rps, among, limit, self._replays)
            known.done = made < self._replays
            self._replays -= made
        taken_rps = float(menu.taken_rps.sum())  # raised by replays, of other rates too
        if taken_rps != known.taken_rps:
            known.cover, known.taken_rps = menu.cover(rate_rps, among, limit), taken_rps
        return known.cover

    def _by_use(
        self, load: FunctionLoad, fills: Fills, demand: Demand, cluster: ClusterView
    ) -> Proposal:
        """Propose the cheapest batches and spare instances where only executions are billed."""
        rate_rps = _rounded(demand.rate_rps)
        fillings = self._filled.of((Same(fills), rate_rps), lambda: tuple(fills.at(rate_rps)))
        least = min(each.cost for each in fillings)
        equal = [each for each in fillings if each.cost <= (1 + _ROUNDING) * least]
        best = min(equal, key=lambda each: fills.full_cost[each.at])
        there = set(_planned(load))
        own = [each for each in fillings if fills.options[each.at].size in there]
        current = min(own, key=lambda each: each.cost, default=best)
        chosen = current if current.cost <= (1 + _GAIN_BY_USE) * best.cost else best
        busy = self._peaks.setdefault(load.name, _Peaks()).most(
            chosen.busy, load.now_s, self._params.kept_s
        )
        size = fills.options[chosen.at].size
        spare = min(self._params.spare, _FULL_SERVERS) if cluster.nodes else self._params.spare
        count = math.ceil(spare * busy + 2 * math.sqrt(busy)) + (1 if cluster.nodes else _IDLE)
        instances = Counter({size: int(min(count, load.instance_limit))})
        serving = _serving(load, own, fills, chosen)
        instances |= self._recently_used(load, fills.options[serving.at].size, size)
        if instances.total() > load.instance_limit:
            serving, instances = chosen, Counter({size: instances[size]})
        wait_ms = 1000 * chosen.window_s
        said = (
            f"{plain(demand.level_rps)} requests/s, billed per execution: batches of "
            f"{plain(chosen.mean_batch, 3)} on {size.name} after at most {wait_ms:.0f} ms, "
            f"and {instances[size]} instances, as idle ones are free."
        )
        return Proposal(
            _placed(instances, _running(load), cluster),
            wait_s=serving.window_s,
            shares={"*": {fills.options[serving.at].size: 1.0}},
            explain=[said],
            predicted=Predicted(cost_per_request=serving.cost, mean_batch=serving.mean_batch),
        )

    def _recently_used(self, load: FunctionLoad, serving: Size, chosen: Size) -> Counter[Size]:
        """Return the running instances of other sizes that serve now or did recently.

        They stay because they pay off again if the load returns.
        """
        served = self._served.setdefault(load.name, {})
        served[serving] = load.now_s
        running = _running(load)
        for size in [s for s, at_s in served.items() if at_s < load.now_s - self._params.kept_s]:
            del served[size]
        return Counter({size: running[size] for size in served if size != chosen and running[size]})


def _serving(load: FunctionLoad, own: Sequence[Filled], fills: Fills, chosen: Filled) -> Filled:
    """Return the option to send requests to: a running one until enough of the chosen are ready."""
    ready = Counter({_plain(size): there.ready for size, there in load.running.items()})
    there = [each for each in (chosen, *own) if ready[fills.options[each.at].size]]

    def rank(each: Filled) -> tuple[bool, float]:
        size = fills.options[each.at].size
        enough = ready[size] > each.busy
        return not enough, each.cost if enough else -ready[size] * size.rate_rps

    if ready[fills.options[chosen.at].size] > chosen.busy:
        return chosen
    return min(there, key=rank, default=chosen)


def _only_executions(load: FunctionLoad, size: Size) -> bool:
    """Return whether only executing instances cost money, not idle ones."""
    idle = load.billing.lifetime(size.resources, 1.0)
    return not idle and load.billing.execution(size.resources, size.exec_s) > 0


def _running(load: FunctionLoad) -> Counter[Size]:
    """Return the number of instances of each size, in all pools together."""
    counts: Counter[Size] = Counter()
    for size, there in load.running.items():
        counts[_plain(size)] += there.total
    return counts


def _planned(load: FunctionLoad) -> list[Size]:
    """Return the sizes that have replicas in the current plan."""
    wanted = {each.name for each in load.plan.classes if each.replicas} if load.plan else set()
    return [_plain(size) for name, size in load.planned.items() if name in wanted]


def _price(load: FunctionLoad, size: Size) -> float:
    """Return an instance's price per second by the bill, or else by prices or resource units."""
    return load.billing.lifetime(size.resources, 1.0) or size.price_per_s


def _plain(size: Size) -> Size:
    return replace(size, pool=0) if size.pool else size


def _rounded(rate_rps: float) -> float:
    """Round a rate up to one of a geometric series, so that cached results can be shared."""
    return _RATIO ** math.ceil(math.log(rate_rps, _RATIO)) if rate_rps > 0 else 0.0


def _placed(wanted: Counter[Size], running: Counter[Size], cluster: ClusterView) -> Counter[Size]:
    """Return the wanted instances that fit in the cluster; running ones already have a place."""
    placed: Counter[Size] = Counter()
    for size, count in wanted.items():
        more = count - running[size]
        more = cluster.place_up_to(size.resources, more) if more > 0 else more
        placed[size] = running[size] + more
    return placed


def _reasons(load: FunctionLoad, demand: Demand, cover: Cover, menu: Menu) -> list[str]:
    """Return the reasons for the proposal, as a few sentences."""
    sizes = " and ".join(f"{count} x {size.name}" for size, count in cover.instances.items())
    slo_ms = 1000 * load.tightest_s
    taken_rps = menu.taken_by(cover.instances)
    why = f"{plain(demand.level_rps)} requests/s within {plain(slo_ms)} ms: {sizes}"
    said = [f"{why}, which serve {plain(taken_rps)} with the batches that form."]
    if cover.wait_s:
        said.append(f"Batches wait for more requests for at most {1000 * cover.wait_s:.0f} ms.")
    if demand.rising:
        said.append(
            f"The load is rising: {plain(demand.reserve_rps, 3)}/s more while an instance loads."
        )
    elif demand.jumped:
        said.append(
            f"The load has just jumped: {plain(demand.reserve_rps, 3)}/s are added to the count."
        )
    elif demand.reserve_rps >= 0.05 * demand.level_rps > 0:
        reserve = f"A reserve of {plain(demand.reserve_rps, 3)}/s"
        said.append(f"{reserve} is kept, because the load rose recently.")
    return said
