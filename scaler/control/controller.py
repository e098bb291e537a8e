"""The controller of one function: reports and plans in, actions and sidecar configuration out.

It combines what sidecars report (`sidecar_reports`), how many instances there should be
(`desired_replicas`), the calls of the OpenFaaS API that lead there (`reconciler`), and the
configuration of the front sidecars (`sidecar_config`). The time is passed in; nothing here does
I/O.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError
from carpool.plan import Plan
from carpool.scaling import FunctionLoad, Instances
from carpool.settings import FunctionSettings
from scaler.control import plan_diff
from scaler.control.action import ObservedState
from scaler.control.application_loads import NO_OBJECTIVE_S, app_loads
from scaler.control.calibration.latency_source import LatencySource
from scaler.control.decisions import Decisions, new_sentences
from scaler.control.desired_replicas import DesiredReplicas, FunctionState
from scaler.control.disagreements import Disagreements
from scaler.control.first_plan import deployed_plan, first_plan
from scaler.control.idle_times import IdleTimeTracker
from scaler.control.interference import Baseline, InterferenceMonitor
from scaler.control.measured_rates import Rates
from scaler.control.plan_builder import numbered, with_windows
from scaler.control.reconciler import Reconciler
from scaler.control.sidecar_config import SidecarConfig, stand_ins
from scaler.control.sidecar_reports import SidecarReports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.prewarm_windows import Windows
    from carpool.sync import FrontReport
    from scaler.control.action import Action, ProviderError
    from scaler.control.class_function import Status
    from scaler.control.dependencies import Dependencies

__all__ = ["Controller"]

_DEPOSED = (
    "its fronts follow a scaler that was started later, so this one makes no changes; "
    "a scaler that is started now takes over"
)
_AHEAD_MAX = 10 * 365 * 86_400_000  # ten years: terms are milliseconds


class Controller:
    """Controls one function.

    Attributes:
        name: The name that the user calls.
        settings: Settings from its labels.
        divided: Whether it shares the calls of one name with other functions.
        reports: Reports of its sidecars.
        latency_source: Execution times of its batches.
        plan: The plan in force; None before the first.
        sidecar_config: Configuration of its fronts.
        decisions: The latest decisions.
        interference: States of the instances of its variants.
        wanted: Number of instances that there should be now, by class.
        notes: Problems.
        remarks: Why it has another plan than its policy wanted.
        failure: Why its policy does not plan for it; empty if it does.
        unplaced_rps: The part of its rate for which there is no capacity.
    """

    def __init__(self, base: Status, dependencies: Dependencies) -> None:
        self.name = base.name
        self.reports = SidecarReports(Rates(dependencies.window_s))
        self.latency_source = LatencySource(
            (dependencies.models or {}).get(base.name), self.reports
        )
        self.plan: Plan | None = None
        self.sidecar_config = SidecarConfig(dependencies.term)
        self.decisions = Decisions()
        self.interference = InterferenceMonitor()
        self.notes: list[str] = []
        self.remarks: list[str] = []
        self.failure = ""
        self.unplaced_rps = 0.0
        self.wanted: Mapping[str, int] = {}
        self.settings = FunctionSettings()
        self.divided = False
        self._reconciler = Reconciler(base.name, dependencies.patience_s)
        self._desired = DesiredReplicas()
        self._idle_times = IdleTimeTracker(dependencies.prewarm() if dependencies.prewarm else None)
        self._base: Status | None = None
        self._deployed: Mapping[str, Status] = {}
        self._listed_s = math.inf
        self._read: tuple[Mapping[str, str], ...] | None = None
        self._disagreements = Disagreements()
        self._plan_dict: tuple[Plan | None, dict[str, Any] | None] = (None, None)
        self._wrong: list[str] = []
        self.observe(base, {})
        self.notes += self._wrong

    def observe(
        self, base: Status | None, deployed: Mapping[str, Status], now_s: float | None = None
    ) -> None:
        """Record what the gateway lists of it; ``base`` is None if it is not to be scaled."""
        self._base, self._deployed = base, deployed
        self._listed_s = math.inf if now_s is None else now_s
        if base is not None and now_s is not None:
            self.recounted("the gateway", base.invocations, now_s)
        if base is None or (base.labels, base.annotations, base.limits) == self._read:
            return
        self._read, self._wrong = (base.labels, base.annotations, base.limits), []
        try:
            self.settings = base.settings()
        except ConfigError as error:
            self._wrong = [f"its labels cannot be used: {error}"]
        self.latency_source.sized(self.settings.cpu or 1.0, self.settings.gpu)

    def reported(self, report: FrontReport, now_s: float, wall_s: float) -> None:
        """Process the report of a front."""
        beside_s = self.reports.idle_beside_s(report.sender, now_s)
        self.reports.reported(report, now_s)
        self.latency_source.compare(report, self.plan)
        self.interference.reported(report)
        self._idle_times.reported(report.idle, beside_s, wall_s)

    def recounted(self, source: str, total: float | None, now_s: float, age_s: float = 0.0) -> None:
        """Compare the request count of another source, ``age_s`` old; None if it has no count.

        A gateway counts by the names that are called, so its counts cannot be compared where the
        calls of one name are divided among several functions.
        """
        if self.divided:
            return
        self._disagreements.recounted(source, total, self.reports.arrivals.total(), now_s, age_s)

    def present(self, now_s: float) -> dict[str, Instances]:
        """Return the ready and loading instances by class."""
        replicas = {name: status.replicas for name, status in self._deployed.items()}
        return {
            name: Instances(len(instances.idle_s), instances.loading)
            for name, instances in self.reports.present(now_s, replicas).items()
            if instances.count
        }

    def load(self, now_s: float, windows: Windows | None = None) -> FunctionLoad | None:
        """Return the load that a policy sees; None without a latency model."""
        model = self.latency_source.model()
        if model is None:
            return None
        settings = self.settings
        own = {each.name for each in self.plan.classes} if self.plan else set()
        return FunctionLoad(
            name=self.name,
            model=model,
            slo_s=settings.slo_s or NO_OBJECTIVE_S,
            percentile=settings.percentile,
            max_batch=settings.batch_max,
            apps=app_loads(settings, self.reports.demanded_rps(now_s)),
            plan=self.plan,
            instances={name: i for name, i in self.present(now_s).items() if name in own},
            queued=self.reports.queued(now_s),
            min_instances=settings.scale_min,
            max_instances=settings.scale_max,
            load_s=self.reports.load_s(),
            error=self.latency_source.correction.error,
            windows=windows,
        )

    def to_plan(self, now_s: float, wall_s: float) -> FunctionLoad | None:
        """Return the load to plan for; without a model, follow a first plan and return None.

        A scaler that starts without state first follows what runs already, model or not.
        """
        self.reports.forget(now_s)
        windows = self._idle_times.windows(wall_s) if self.settings.scale_min == 0 else None
        if self.plan is None and (deployed := deployed_plan(self.name, self._deployed)):
            self.reports.rates.expect()
            self._follow_own(deployed, windows, wall_s)
        load = self.load(now_s, windows)
        if load is None:
            self._follow_own(self.plan or self.first_plan(), windows, wall_s)
        return load

    def _follow_own(self, plan: Plan, windows: Windows | None, wall_s: float) -> None:
        """Put a plan that no policy has made into force."""
        timed = with_windows(plan, windows)
        self.follow(numbered(timed, self.plan, self.sidecar_config.term), wall_s)

    def first_plan(self) -> Plan:
        """Return the plan until a model is known: what runs already, else a first plan."""
        return deployed_plan(self.name, self._deployed) or first_plan(self.name, self.settings)

    def complete(self, now_s: float) -> bool:
        """Return whether as many instances are announced as the gateway has available."""
        ready = self.reports.ready(now_s)
        return all(
            len(ready.get(name, ())) >= status.available for name, status in self._deployed.items()
        )

    def follow(self, plan: Plan, wall_s: float) -> None:
        """Put a plan into force."""
        if plan is self.plan:
            return
        changes = list(plan_diff.explained(self.plan, plan))
        known = self.plan.explain if self.plan else ()
        reasons = plan.explain if changes else new_sentences(known, plan.explain)
        for sentence in (*changes, *(reason for reason in reasons if reason not in known)):
            self.decisions.add(sentence, wall_s)
        self.plan = plan

    def step(self, now_s: float, wall_s: float) -> list[Action]:
        """Return the calls to make to the gateway now, and update the fronts' configuration."""
        config = self.sidecar_config
        if self.reports.term() > config.term:
            self.notes = [_DEPOSED]
            self.decisions.note(self.notes, wall_s)
            return []
        if self.plan is None and self._base is not None:
            self.notes = [*self._wrong, *filter(None, [self.failure])]
            return []
        ready = self.reports.ready(now_s)
        observed = ObservedState(
            self._base,
            self._deployed,
            {name: len(where) for name, where in ready.items()},
            self.reports.follows(config.term, config.version, now_s),
            self._listed_s,
        )
        if self.plan is None or self._base is None:
            return self._reconciler.step({}, {}, observed, now_s)
        self.wanted = self._desired.wanted(self.plan, self._function_state(now_s))
        classes = {each.name: each for each in self.plan.classes}
        baseline = Baseline(
            self.latency_source.given, classes, ready, self.reports.lines, self.reports.interval_s
        )
        for sentence in self.interference.look(baseline, now_s):
            self.decisions.add(sentence, wall_s)
        self.wanted = self.interference.more(self.wanted, self.settings.scale_max)
        actions = self._reconciler.step(classes, self.wanted, observed, now_s)
        surplus = stand_ins(self.plan, self._deployed, ready, awaited=self._reconciler.awaited)
        config.update(self.plan, surplus, ready)
        self.notes = [
            *self._wrong,
            *self._reconciler.notes,
            *self._disagreements.warnings(self._deployed, ready, now_s),
            *filter(
                None, [self.failure, self.prewarm_failure, self.latency_source.correction.alarm()]
            ),
        ]
        self.decisions.note(self.notes, wall_s)
        if news := self.latency_source.correction.news():
            self.decisions.add(news, wall_s)
        return actions

    def done(self, action: Action, now_s: float, wall_s: float) -> None:
        """Record that the gateway has accepted ``action``."""
        self._reconciler.succeeded(action, now_s)
        self.decisions.add(f"Done: {action}.", wall_s)

    def failed(self, action: Action, error: ProviderError, now_s: float) -> None:
        """Record that the gateway has refused an action, or could not be reached."""
        refused, lasting = error.refused, error.lasting
        self._reconciler.failed(action, str(error), now_s, refused=refused, lasting=lasting)

    @property
    def prewarm_failure(self) -> str:
        """How its prewarm policy fails; empty if it works."""
        return self._idle_times.failure

    @property
    def refused(self) -> list[str]:
        """Notes on refusals of the gateway that waiting does not resolve."""
        return self._reconciler.refused

    @property
    def changing(self) -> bool:
        """Whether instances are expected that every front should learn of soon."""
        return self._reconciler.awaited

    @property
    def asleep(self) -> int:
        """Number of planned instances that sleep until they are needed."""
        return self._desired.asleep

    def to_dict(self) -> dict[str, Any]:
        """Return the state that must survive a restart."""
        if self.plan is not self._plan_dict[0]:
            self._plan_dict = (self.plan, self.plan.to_dict() if self.plan else None)
        return {
            "plan": self._plan_dict[1],
            "term": self._term(),
            "version": self.sidecar_config.version,
            "reports": self.reports.to_dict(),
            "correction": self.latency_source.correction.to_dict(),
        }

    def _term(self) -> int:
        """Return the latest known term, so that a scaler started now gets a later one.

        Its fronts may follow a scaler whose clock was ahead. Terms that are years ahead are
        ignored.
        """
        own, reported = self.sidecar_config.term, self.reports.term()
        return max(own, reported) if reported < own + _AHEAD_MAX else own

    def prewarm_dict(self) -> dict[str, Any] | None:
        """Return what its prewarm policy has learned; None without such a policy."""
        return self._idle_times.to_dict()

    def absorb(self, data: dict[str, Any], prewarm: dict[str, Any] | None, now_s: float) -> None:
        """Continue from the results of `to_dict` and `prewarm_dict`.

        Raises:
            ConfigError: The plan is invalid, or a policy with these parameters has not learned
                this.
        """
        self.plan = Plan.from_dict(data["plan"]) if data.get("plan") else None
        if self.plan is not None:
            self.reports.rates.expect()
        self.sidecar_config.version = int(data.get("version", 0))
        reports = data.get("reports", data.get("roll", {}))  # "roll" was its name in 0.1
        self.reports.absorb(reports, now_s)
        self.latency_source.correction.absorb(data.get("correction", (1.0, 0.0)))
        self._idle_times.absorb(prewarm)

    def _function_state(self, now_s: float) -> FunctionState:
        reports, settings = self.reports, self.settings
        replicas = {name: status.replicas for name, status in self._deployed.items()}
        return FunctionState(
            present=reports.present(now_s, replicas),
            idle_s=reports.idle_s(now_s),
            queued=reports.queued(now_s),
            starving=reports.starving(now_s),
            load_s=reports.load_s(),
            least=settings.scale_min,
        )
