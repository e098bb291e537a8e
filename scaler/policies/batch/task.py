"""Plans one function for one round of BATCH: the best choice, or the current one, that fits.

A task belongs to one load and one objective; it caches its results, so that repeating it at the
same load costs nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from carpool.arrivals.markov import MarkovArrivals
from carpool.plain_number import plain
from carpool.validation.problems import Problems
from scaler.policies.batch.instances import BatchFleet
from scaler.policies.batch.search import BatchSearch, Choice, examined
from scaler.policies.common.draft import Draft, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.scaling import Billing, ClusterView, FunctionLoad
    from scaler.policies.batch.sizes import InstanceSize

__all__ = ["BatchParams", "BatchTask"]

_TRIED = 6  # instance sizes that are tried until one fits
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class BatchParams:
    """Parameters of `Batch`.

    Attributes:
        budget: maximum cost of a request; null: minimise the cost within the objective.
        reserve: share of the permitted late requests that is kept for busy instances.
        windows: number of windows up to the objective to try.
        gain: share of the cost, or of the latency, that a change must save.
        amortised_s: seconds within which a change of instances must recover their loading.
        learn: number of rounds, at least 30, from whose rates bursts are learned if the arrival
            process is unknown; 0: assume Poisson arrivals at the rate of the round.
    """

    budget: float | None = None
    reserve: float = 0.2
    windows: int = 128
    gain: float = 0.05
    amortised_s: float = 600.0
    learn: int = 60

    def __post_init__(self) -> None:
        """Refuse parameters that are out of range."""
        problems = Problems()
        shares, seconds = ("reserve", "gain"), ("amortised_s",)
        expected = "null or a number above 0"
        problems.check(self, ("budget",), lambda v: 0 < v < math.inf, expected)
        problems.check(self, shares, lambda v: 0 <= v < 1, "a number from 0 to below 1")
        if not 1 <= self.windows <= 1024:  # noqa: PLR2004  the tables grow with the square
            problems.add("windows", self.windows, "a whole number from 1 to 1024")
        problems.check(self, seconds, lambda v: 0 < v < math.inf, "a number above 0")
        if self.learn and self.learn < 30:  # noqa: PLR2004  fewer tell nothing
            problems.add("learn", self.learn, "0 or a whole number of at least 30")
        problems.raise_if_any()


class _Option(NamedTuple):
    """A choice with the instances that it needs, gets, and has to start."""

    fleet: BatchFleet
    wanted: int
    got: int
    new: int

    @property
    def taken_rps(self) -> float:
        return self.got * self.fleet.size.rate_rps


class BatchTask:
    """The planning task of one function at one load.

    Args:
        params: Parameters of the policy.
        load: The function; its plan, instances and queue may change from round to round.
        process: The arrival process.
        instance_sizes: The instance sizes that its model knows.
    """

    def __init__(
        self,
        params: BatchParams,
        load: FunctionLoad,
        process: Markovian,
        instance_sizes: tuple[InstanceSize, ...],
    ) -> None:
        self._params = params
        self._model = load.model
        self._process = process
        self._objective_s = self._target_s = load.tightest_s
        self._percentile = load.percentile
        self._billing = load.billing
        self._instance_sizes = instance_sizes
        self._fleets: dict[tuple[int, int, float], BatchFleet] = {}
        self._known: dict[tuple[int, int, float], Choice] = {}
        self._why_not = "The latency model has no instance sizes."
        self._choices: list[Choice] = []
        if self._instance_sizes:
            self._find()

    @property
    def objective_s(self) -> float:
        """The tightest latency objective of the function."""
        return self._objective_s

    def drafted(self, load: FunctionLoad, cluster: ClusterView) -> tuple[Draft, BatchFleet | None]:
        """Draft instances for the function, and place the new ones in ``cluster``.

        Returns:
            The draft, and the fleet of its instances; None if no instance size is known.
        """
        draft = Draft(load, (), needed_rps=load.rate_rps)
        if not self._choices:
            draft.explain.append(self._why_not)
            return draft, self._idle(draft)
        stays, why = self._stays(load)
        options = [stays, *self._choices] if stays else self._choices
        best = self._first_fitting(load, options[:_TRIED], cluster)
        size = best.fleet.size
        placed = cluster.place_up_to(size.resources, best.new)
        draft.sizes = (size,)
        draft.instances = Counter({size: best.got - best.new + placed})
        draft.explain += self._reasons(load, best, why if best.fleet.choice is stays else "")
        return draft, best.fleet

    def _find(self) -> None:
        params, miss = self._params, (1 - self._percentile) * (1 - self._params.reserve)
        fastest_s = min(
            float(instance_size.service.seconds.min()) for instance_size in self._instance_sizes
        )
        longest_s = self._objective_s - (0.0 if params.budget is not None else fastest_s)
        if longest_s <= 0:
            longest_s = self._objective_s
        search = BatchSearch(
            self._process, self._instance_sizes, self._billing, longest_s, params.windows
        )
        if params.budget is None:
            self._choices = search.within(self._objective_s, miss)
            self._why_not = (
                f"No size meets {plain(self._objective_s * _MS_PER_S)} ms for "
                f"{plain(self._percentile)} of the requests: the fastest batch of one takes "
                f"{plain(fastest_s * _MS_PER_S)} ms."
            )
            return
        best_s, self._choices = search.quickest(params.budget, miss)
        self._target_s = best_s * (1 + params.gain)
        self._why_not = (
            f"A budget of {plain(params.budget)} for a request is below the lowest possible cost "
            f"of {plain(search.cheapest_cost())}."
        )

    def _stays(self, load: FunctionLoad) -> tuple[Choice | None, str]:
        """Return the current choice and why it stays; None if it fails or a change pays."""
        current, best = _in_force(load, self._instance_sizes), self._choices[0]
        if current is None:
            return None, ""
        if current[0] is best.instance_size and current[1:] == (best.batch_size, best.window_s):
            return None, ""
        now = self._examined(current)
        budget = math.inf if self._params.budget is None else self._params.budget
        if now.late > 1 - self._percentile or not now.cost <= budget:
            return None, ""
        if self._params.budget is not None:
            return now, "No faster plan within the budget is worth a change."
        saved = (now.cost - best.cost) * load.rate_rps
        least = self._params.gain * now.cost * load.rate_rps
        if best.instance_size is not now.instance_size or best.batch_size != now.batch_size:
            loading = _loading_cost(load, best, self._billing)
            least += loading / self._params.amortised_s
        if saved > least:
            return None, ""
        return now, f"The best would save {plain(saved, 3)} a second, too little for a change."

    def _examined(self, choice: tuple[InstanceSize, int, float]) -> Choice:
        key = (id(choice[0]), *choice[1:])
        if key not in self._known:
            self._known[key] = examined(self._process, choice, self._target_s, self._billing)
        return self._known[key]

    def _first_fitting(
        self, load: FunctionLoad, options: Sequence[Choice], cluster: ClusterView
    ) -> _Option:
        """Return the first choice whose instances all fit, or else that of highest throughput."""
        fitting: list[_Option] = []
        for choice in options:
            fleet = self._fleet(choice)
            wanted = self._wanted(load, fleet)
            allowed = int(min(wanted, load.instance_limit))
            there = min(running(load, (fleet.size,))[fleet.size], allowed)
            new = allowed - there
            new = cluster.fits(fleet.size.resources, new)
            fitting.append(_Option(fleet, wanted, there + new, new))
            if there + new == wanted:
                return fitting[-1]
        return max(fitting, key=lambda option: option.taken_rps)

    def _wanted(self, load: FunctionLoad, fleet: BatchFleet) -> int:
        if not (load.rate_rps > 0 or load.queued):
            return load.min_instances
        taking = math.ceil(load.rate_rps / fleet.size.rate_rps * (1 - 1e-12))
        needed = fleet.needed(self._target_s, 1 - self._percentile)
        return max(taking, needed, load.min_instances, 1)

    def _fleet(self, choice: Choice) -> BatchFleet:
        key = (id(choice.instance_size), choice.batch_size, choice.window_s)
        if key not in self._fleets:
            self._fleets[key] = BatchFleet(self._process, choice, self._model, self._percentile)
        return self._fleets[key]

    def _idle(self, draft: Draft) -> BatchFleet | None:
        """Draft no instances, of the fastest size."""
        if not self._instance_sizes:
            return None
        instance_size = min(self._instance_sizes, key=lambda one: float(one.service.seconds.min()))
        size = int(instance_size.known.argmax()) + 1
        fleet = self._fleet(Choice(instance_size, size, 0.0, math.inf, 1.0))
        draft.sizes = (fleet.size,)
        draft.instances = Counter({fleet.size: 0})
        return fleet

    def _reasons(self, load: FunctionLoad, option: _Option, why: str) -> list[str]:
        choice = option.fleet.choice
        share, target_ms = self._percentile, self._target_s * _MS_PER_S
        within = f"{plain(share)} of them within {plain(target_ms)} ms"
        request = f"{plain(load.rate_rps)} requests/s, {within}"
        window_ms = choice.window_s * _MS_PER_S
        leaves = f"{plain(window_ms)} ms after their first request"
        batches = f"batches of up to {choice.batch_size}, which leave when full or {leaves}"
        if choice.batch_size == 1:
            batches = "single requests"
        running = f"on {option.got} x {option.fleet.size.name}, for {plain(choice.cost)} a request"
        sentences = [f"{request}: {batches}, {running}."]
        if isinstance(self._process, MarkovArrivals):
            sentences.append(f"They are planned as {_described(self._process)}.")
        if why:
            sentences.append(why)
        if option.got < option.wanted:
            sentences.append(f"{option.wanted} instances are needed, and {option.got} fit.")
        return sentences


def _in_force(
    load: FunctionLoad, instance_sizes: Sequence[InstanceSize]
) -> tuple[InstanceSize, int, float] | None:
    """Return the instance size, batch size and window of the last plan; None if it has no such."""
    plan = load.plan
    if plan is None or len(plan.classes) != 1 or not plan.routes:
        return None
    (there,) = plan.classes
    for instance_size in instance_sizes:
        known = instance_size.known[: there.batch_size]
        same = (instance_size.cpu, instance_size.gpu) == (there.cpu, there.gpu)
        if same and len(known) == there.batch_size and known[-1]:
            return instance_size, there.batch_size, plan.routes[0].max_wait_s
    return None


def _loading_cost(load: FunctionLoad, choice: Choice, billing: Billing) -> float:
    """Return the cost of loading as many instances of another size as exist now."""
    resources, load_s = choice.instance_size.resources[choice.batch_size - 1], load.model.load_s
    one = billing.lifetime(resources, load_s)
    if load_s and not one:
        one = billing.execution(resources, load_s)
    there = sum(each.total for each in load.running.values())
    return max(there, 1) * one


def _described(process: MarkovArrivals) -> str:
    """Describe a process in words, with its rate and burstiness."""
    rows = enumerate(process.arriving)
    is_mmpp = all(rate == 0 for i, row in rows for j, rate in enumerate(row) if i != j)
    return (
        f"{'MMPP' if is_mmpp else 'MAP'}({len(process.arriving)}) at {plain(process.mean_rate)}/s, "
        f"SCV {plain(process.gap_scv, 3)}, lag-1 correlation {plain(process.gap_correlation(), 3)}"
    )
