"""The instance and the windows of one group, by the exact law of its batches.

The price list (`offers`) tells which configurations are worth evaluating. On each of them the
windows are the objectives less one allowance for the execution, the least with which no application
misses its objective more often than it may (`merged_windows.MergedBatches.late_share`).
HarmonyBatch (IWQoS'24, Eq. 10) has the sum of bounds instead, ``window + maximum execution <=
objective``. With that, requests are late far less often than allowed, so batches leave earlier and
are smaller than necessary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.policies.common.erlang import enough
from scaler.policies.harmonybatch.execution_times import SlicedTimes
from scaler.policies.harmonybatch.merged_windows import MergedBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.scaling import Billing, Configuration, LatencyModel, Resources

__all__ = ["Group", "Member", "Settling"]

_CELLS = 24  # cells of the law's integrals, for four digits
_STEPS = 5  # steps of the search for an allowance, which is then exact to a few thousandths
_NEAR = 0.005  # relative change of the allowance that ends the search
_CLOSE = 0.9  # share of the permitted late requests that ends the search
_AIM = 0.95
_STEEP = 16.0  # assumed power of the allowance by which the late share falls, at first
_WIDER = 1.1
_SLOWEST = 0.99999  # quantile of the execution times that no allowance needs to exceed
_SAMPLED = 4  # members whose late requests are counted: the tightest, and some others as a check
_KEPT = 512  # number of configurations whose execution times are kept


@dataclass(frozen=True, slots=True)
class Member:
    """Applications with the same objective, which are never separated.

    Attributes:
        apps: Their names.
        slo_s: Their objective, in seconds.
        rate_rps: Requests per second of all of them, above 0.
    """

    apps: tuple[str, ...]
    slo_s: float
    rate_rps: float


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Applications that share instances.

    Attributes:
        members: By objective, the tightest first.
        configuration: The instance, and its largest batch.
        resources: Resources of an instance.
        batches: Law of its batches, with the longest wait of each member.
        late: The largest share of a member's requests that miss their objective.
        mean_batch: Mean number of requests in a batch.
        mean_exec_s: Mean execution time of a batch.
        cost: Cost per request.
        instances: Number of instances with which batches hardly ever wait for one.
    """

    members: tuple[Member, ...]
    configuration: Configuration
    resources: Resources
    batches: MergedBatches
    late: float
    mean_batch: float
    mean_exec_s: float
    cost: float
    instances: int

    @property
    def windows_s(self) -> Sequence[float]:
        """The longest wait of each member."""
        return self.batches.windows_s

    @property
    def rate_rps(self) -> float:
        """Requests per second of all members."""
        return sum(member.rate_rps for member in self.members)


class Settling:
    """Settles the groups of one function.

    Args:
        model: Latency model of the function.
        billing: What executions and instances cost.
        miss: Share of an application's requests that may be late.
        waiting: Share of batches that may find all instances busy.
    """

    def __init__(self, model: LatencyModel, billing: Billing, miss: float, waiting: float) -> None:
        self._model = model
        self._billing = billing
        self._miss = miss
        self._waiting = waiting
        self._times: dict[Configuration, SlicedTimes] = {}
        self._allowances_s: dict[Configuration, float] = {}  # found last

    def knows(self, configuration: Configuration) -> bool:
        """Return whether the model knows the configuration, so that a group may use it."""
        return self._model.predict(*configuration) is not None

    def on(
        self, members: Sequence[Member], configuration: Configuration, about_s: float
    ) -> Group | None:
        """Return the group on a configuration with the least allowance; None if it is too slow.

        Only the late requests of the tightest member are counted; `assured` counts the others'.

        Args:
            members: By objective, the tightest first.
            configuration: The instance, and its largest batch.
            about_s: Where to start searching for the allowance, if no group has used it yet.
        """
        times, slo_s = self._times_on(configuration), members[0].slo_s
        known: dict[float, tuple[MergedBatches, float]] = {}

        def late(allowance_s: float) -> float:
            if allowance_s not in known:
                batches = _batches(members, configuration, allowance_s)
                known[allowance_s] = batches, batches.late_share(0, slo_s, times)
            return known[allowance_s][1]

        allowance_s = most_s = self._most_s(configuration, slo_s)
        if configuration.batch > 1:
            begin_s = min(self._allowances_s.get(configuration, about_s), most_s)
            allowance_s = _least(late, self._miss, begin_s, most_s)
            self._allowances_s[configuration] = allowance_s
        if late(allowance_s) > self._miss:
            return None
        return self._filling(*known[allowance_s], members, configuration)

    def assured(self, group: Group) -> Group | None:
        """Return a group from `on`, with shorter windows if another member would be late too often.

        Returns:
            None if no windows are short enough.
        """
        members, configuration = group.members, group.configuration
        slo_s, batches = members[0].slo_s, group.batches
        allowance_s, most_s = slo_s - group.windows_s[0], self._most_s(configuration, slo_s)
        late = max(group.late, self._latest(batches, members, configuration, beyond=1))
        while late > self._miss:
            if allowance_s >= most_s:
                return None
            allowance_s = min(allowance_s * _WIDER, most_s)
            batches = _batches(members, configuration, allowance_s)
            late = self._latest(batches, members, configuration)
        return self._filling(batches, late, members, configuration)

    def having(
        self, members: Sequence[Member], configuration: Configuration, windows_s: Sequence[float]
    ) -> Group:
        """Return the group with given windows, whether or not it meets its objectives."""
        batches = _having(members, windows_s, configuration.batch)
        late = self._latest(batches, members, configuration)
        return self._filling(batches, late, members, configuration)

    def _latest(
        self,
        batches: MergedBatches,
        members: Sequence[Member],
        configuration: Configuration,
        *,
        beyond: int = 0,
    ) -> float:
        """Return the largest share of late requests of sampled members, except the first few."""
        times, every = self._times_on(configuration), math.ceil(len(members) / _SAMPLED)
        witnesses = range(beyond * every, len(members), every)
        shares = (batches.late_share(place, members[place].slo_s, times) for place in witnesses)
        return max(shares, default=0.0)

    def _filling(
        self,
        batches: MergedBatches,
        late: float,
        members: Sequence[Member],
        configuration: Configuration,
    ) -> Group:
        """Return the group with these batches and this share of late requests."""
        times = self._times_on(configuration)
        rate_rps = sum(member.rate_rps for member in members)
        mean = batches.mean_size
        exec_s = float(batches.sizes @ times.mean_s)
        instances = enough(rate_rps / mean * exec_s, self._waiting)
        resources = self._model.resources(*configuration)
        reserved_cost = self._billing.lifetime(resources, 1.0) * instances / rate_rps
        return Group(
            members=tuple(members),
            configuration=configuration,
            resources=resources,
            batches=batches,
            late=late,
            mean_batch=mean,
            mean_exec_s=exec_s,
            cost=float(batches.sizes @ times.costs) / mean + reserved_cost,
            instances=instances,
        )

    def _most_s(self, configuration: Configuration, slo_s: float) -> float:
        """Return an allowance that is sufficient for any batch, if one exists."""
        return min(self._model.predict(*configuration, _SLOWEST) or math.inf, slo_s)

    def _times_on(self, configuration: Configuration) -> SlicedTimes:
        if configuration not in self._times:
            if len(self._times) >= _KEPT:
                self._times.clear()
            self._times[configuration] = SlicedTimes(self._model, configuration, self._billing)
        return self._times[configuration]


def _batches(
    members: Sequence[Member], configuration: Configuration, allowance_s: float
) -> MergedBatches:
    """Return the batches with windows that leave this allowance; batches of one never wait."""
    size = configuration.batch
    windows_s = [max(each.slo_s - allowance_s, 0.0) if size > 1 else 0.0 for each in members]
    return _having(members, windows_s, size)


def _having(members: Sequence[Member], windows_s: Sequence[float], size: int) -> MergedBatches:
    return MergedBatches([each.rate_rps for each in members], windows_s, size, _CELLS)


def _least(late: Callable[[float], float], miss: float, about_s: float, most_s: float) -> float:
    """Return about the least allowance with which at most ``miss`` are late, or ``most_s``.

    The share falls approximately as a power, whose exponent is interpolated once both sides are
    known.
    """
    at_s, low_s, high_s = about_s, 0.0, most_s
    low = high = 0.0  # logarithms of shares relative to the target; 0 if unknown
    for _ in range(_STEPS):
        share = late(at_s)
        over = math.log(max(share / miss, 1e-3) / _AIM)
        if share > miss:
            low_s, low = at_s, over
        else:
            high_s, high = at_s, over
        if _CLOSE * miss <= share <= miss or high_s - low_s <= _NEAR * high_s:
            break
        if low and high:
            part = min(max(low / (low - high), 0.1), 0.9)
            at_s = low_s + part * (high_s - low_s)
        else:
            factor = min(max(math.exp(over / _STEEP), 1 / _WIDER), _WIDER)
            at_s = min(at_s * factor, most_s)
    return high_s
