"""HarmonyBatch (IWQoS'24): applications with different objectives share instances on CPU or GPU.

A round sorts the applications of a function by their objectives, divides them into groups and
chooses for each group the cores or GPU slices, the largest batch and the longest wait of each
application, so that requests cost least and every application meets its objective (`provisioning`).
The paper's two stages of merging are one way to divide them; the default tries all divisions.

Deviations from the paper. Batches follow their exact law: they are not assumed to be full (Eq. 11),
the window of many applications is not Eq. 5 applied repeatedly, and a request may be late as often
as the function's percentile allows, where the paper has a sum of bounds (Eq. 10). Costs follow the
billing rule of the scenario. Instances are started beforehand, enough of them that batches hardly
ever wait for one. A plan stays unless another saves more than the change costs.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from carpool.arrivals.smoothing import SmoothRates
from carpool.plain_number import plain
from carpool.recent import Recent, Same
from carpool.scaling import Proposal
from carpool.validation.problems import Problems
from scaler.policies.common.alike import alike
from scaler.policies.harmonybatch.group_instances import missing_rps, placed, wanted
from scaler.policies.harmonybatch.grouped_plan import groups_in, proposal, sized
from scaler.policies.harmonybatch.provisioning import Provisioner, members_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import ClusterView, Configuration, FunctionLoad, Plan, Size
    from scaler.policies.harmonybatch.settling import Group, Member

__all__ = ["HarmonyBatch"]

_KEPT = 1024  # price lists; a scaler has fewer models and objectives
_LISTED = 6


@dataclass(slots=True)
class _Considered:
    """The groups found for a function at one load.

    Attributes:
        members: Its applications at that load.
        provisioner: The provisioner that found the groups.
        best: The best groups.
        thoroughly: Whether the search was thorough.
    """

    members: Sequence[Member]
    provisioner: Provisioner
    best: list[Group]
    thoroughly: bool
    _plan: Plan | None = None
    _there: list[Group] | None = None

    def holds(self, members: Sequence[Member], provisioner: Provisioner) -> bool:
        """Return whether the result can be reused for this load."""
        same = self.thoroughly and provisioner is self.provisioner
        return (
            same and len(members) == len(self.members) and all(map(_alike, members, self.members))
        )

    @property
    def served(self) -> list[Member]:
        """Members whose objective some instance meets."""
        return [member for group in self.best for member in group.members]

    def in_force(self, plan: Plan) -> list[Group] | None:
        """Return the groups of a plan at that load, see `groups_in`."""
        if plan is not self._plan:
            self._plan = plan
            self._there = groups_in(plan, self.served, self.provisioner.settling)
        return self._there


def _alike(member: Member, before: Member) -> bool:
    same = (member.apps, member.slo_s) == (before.apps, before.slo_s)
    return same and alike(member.rate_rps, before.rate_rps)


class HarmonyBatch:
    """Groups applications to share instances, each application with its own maximum wait."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `HarmonyBatch`.

        Attributes:
            grouping: ``optimal``, the paper's ``two-stages``, ``apart`` or ``together``.
            spare: share of the permitted late requests that plans leave unused.
            waiting: share of batches that may find all instances busy.
            smoothing_s: seconds over which measured rates are averaged; 0: no averaging.
            hysteresis: share of its cost that another plan must save.
            horizon_s: seconds within which another plan must recover the cost of the change.
        """

        grouping: Literal["optimal", "two-stages", "apart", "together"] = "optimal"
        spare: float = 0.25
        waiting: float = 0.001
        smoothing_s: float = 60.0
        hysteresis: float = 0.05
        horizon_s: float = 600.0

        def __post_init__(self) -> None:
            """Refuse parameters that are out of range."""
            problems = Problems()
            shares, seconds = ("spare", "hysteresis"), ("smoothing_s", "horizon_s")
            problems.check(self, shares, lambda v: 0 <= v < 1, "a share of at least 0, below 1")
            problems.check(self, ("waiting",), lambda v: 0 < v < 1, "a share above 0, below 1")
            problems.check(self, seconds, lambda v: 0 <= v < math.inf, "a number of at least 0")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params
        self._rates = SmoothRates(params.smoothing_s)
        self._provisioners: Recent[Provisioner] = Recent(_KEPT)
        self._considered: dict[str, _Considered] = {}

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """See `ScalePolicy.propose`."""
        return {load.name: self._proposal(load, cluster) for load in loads}

    def _proposal(self, load: FunctionLoad, cluster: ClusterView) -> Proposal:
        considered = self._consider(load)
        groups = self._groups(load, considered, cluster)
        if not groups:
            return Proposal({})
        by_size = sized(load, groups)
        counts = placed(by_size, self._wanted(groups, load), load, cluster)
        explain = _reasons(by_size, considered.members)
        return proposal(by_size, counts, explain, missing_rps(load, by_size, counts))

    def _consider(self, load: FunctionLoad) -> _Considered:
        """Return the best groups for the load, reusing the last ones if it hardly differs."""
        provisioner = self._provisioner(load)
        members = members_of(self._rates.smoothed(load, load.now_s))
        before = self._considered.get(load.name)
        if before and before.holds(members, provisioner):
            return before
        # The first plan is needed at once; later searches are more thorough.
        thoroughly = before is not None
        best = provisioner.groups(members, self._params.grouping, thoroughly=thoroughly)
        now = self._considered[load.name] = _Considered(members, provisioner, best, thoroughly)
        return now

    def _groups(
        self, load: FunctionLoad, considered: _Considered, cluster: ClusterView
    ) -> list[Group]:
        """Return the best groups, or the current ones if a move does not pay or does not fit."""
        best = considered.best
        if len(best) > 1 and sum(self._wanted(best, load)) > load.instance_limit:
            best = considered.provisioner.groups(considered.served, "together")
        if not (best and load.plan):
            return best
        there = considered.in_force(load.plan)
        if not there:
            return best
        if self._stays(there, best, load):
            return there
        counts = self._wanted(best, load)
        fit = placed(sized(load, best), counts, load, cluster.copy())
        return there if sum(fit) < min(sum(counts), load.instance_limit) else best

    def _stays(self, there: Sequence[Group], best: Sequence[Group], load: FunctionLoad) -> bool:
        """Return whether the current groups meet the objectives and a move would not pay."""
        if max(group.late for group in there) > 1 - load.percentile:
            return False
        now, then = (sum(g.cost * g.rate_rps for g in groups) for groups in (there, best))
        present: Counter[Configuration] = Counter()
        for group, count in zip(there, self._wanted(there, load), strict=True):
            present[group.configuration] += count
        rule, load_s, move = load.billing, load.model.load_s, 0.0
        for group, count in zip(best, self._wanted(best, load), strict=True):
            started = max(count - present[group.configuration], 0)
            present[group.configuration] -= min(count, present[group.configuration])
            loading = rule.execution(group.resources, load_s)
            move += started * (loading + rule.lifetime(group.resources, load_s))
        saved = now - then
        return saved <= self._params.hysteresis * now or saved * self._params.horizon_s <= move

    def _wanted(self, groups: Sequence[Group], load: FunctionLoad) -> list[int]:
        return wanted(groups, load, self._params.waiting)

    def _provisioner(self, load: FunctionLoad) -> Provisioner:
        rule, params = load.billing, self._params
        miss = (1 - load.percentile) * (1 - params.spare)
        return self._provisioners.of(
            (Same(load.model), Same(rule), load.max_batch, load.percentile),
            lambda: Provisioner(load.model, rule, load.max_batch, miss, params.waiting),
        )


def _reasons(groups: Mapping[Size, Group], members: Sequence[Member]) -> list[str]:
    sentences = []
    for size, group in groups.items():
        apps = [app for member in group.members for app in member.apps]
        verb = "has" if len(apps) == 1 else "share"
        sentences.append(
            f"{_listed(apps)} ({plain(group.rate_rps)} requests/s) {verb} {size.name}: batches of "
            f"{plain(group.mean_batch)} on average, {plain(group.cost)} a request, at most "
            f"{100 * group.late:.2g} % late."
        )
    served = {app for group in groups.values() for member in group.members for app in member.apps}
    late = [app for member in members for app in member.apps if app not in served]
    if late:
        sentences.append(f"No instance is fast enough for {_listed(late)}.")
    return sentences


def _listed(apps: list[str]) -> str:
    others = len(apps) - _LISTED
    return ", ".join(apps[:_LISTED]) + (f" and {others} others" if others > 0 else "")
