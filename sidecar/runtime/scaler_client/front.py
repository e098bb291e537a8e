"""Reports a front's load to the scaler, and follows the plans that come back.

The last plan is also saved if there is a folder for it, so that a front that was killed continues
with it, even while there is no scaler.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from carpool.errors import BadRequest, CarpoolError
from carpool.sync import AppReport, ClassReport, FrontReport, InstanceReport, SyncAnswer
from carpool.variants.instance_states import State
from sidecar.core.load import Executions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sidecar.core.batcher import Batcher
    from sidecar.core.load import Load
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["Front"]

log = logging.getLogger(__name__)

_DIGITS = 6
_NOTHING = Executions()


class Front:
    """Makes a front's messages (`sidecar.runtime.scaler_client.sync.Reporter`).

    Args:
        function: Name by which users call the function.
        load: Counts arrivals and executions.
        batcher: Holds the waiting requests.
        upstreams: The instances and the plan.
        metrics: Counts requests by terminal state.
        changed: Called after a plan has come into force.
    """

    def __init__(
        self,
        function: str,
        load: Load,
        batcher: Batcher,
        upstreams: FunctionUpstreams,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        self._function = function
        self._load = load
        self._batcher = batcher
        self._upstreams = upstreams
        self._metrics = metrics
        self._changed = changed
        self._plan_file: Path | None = None
        self._revision = ""
        self._reported: Counter[str] = Counter()  # requests by terminal state
        self._was_ready = False

    def save_plans(self, plan_file: Path) -> None:
        """Save plans to ``plan_file`` from now on; follow the saved plan, if there is one."""
        self._plan_file = plan_file
        if not plan_file.exists():
            return
        try:
            self.answered(SyncAnswer.from_json(plan_file.read_bytes()))
            self._revision = ""  # the scaler may have a newer plan
        except (CarpoolError, OSError) as error:
            log.warning("the saved plan was ignored: %s", error)

    @property
    def starving(self) -> bool:
        """Whether requests wait and no instance can be reached."""
        return self._batcher.queued > 0 and not any(instance.up for instance in self._upstreams)

    def not_ready(self) -> str:
        """Return why it is not ready yet. Empty once it was, as requests then wait here."""
        if self._was_ready:
            return ""
        plan = self._upstreams.plan
        if plan is None:
            return "no plan yet"
        wanted = any(each.replicas for each in plan.classes)
        if wanted and not any(instance.up for instance in self._upstreams):
            return "no instance yet"
        self._was_ready = True
        return ""

    def message(self, sender: str, sequence: int) -> FrontReport:
        """Return the next report."""
        now = time.monotonic()
        if self._batcher.idle and not any(instance.streams for instance in self._upstreams):
            self._load.became_idle(now)
        sample = self._load.take(now)
        ended = self._ended(sample.late)
        plan = self._upstreams.plan
        return FrontReport(
            self._function,
            sender,
            sequence,
            self._revision,
            plan.version if plan else None,
            round(sample.period_s, _DIGITS),
            self._load.idle_s(now),
            self._batcher.queued,
            self.starving,
            tuple(AppReport(name, app.arrivals, app.gaps) for name, app in sample.apps.items()),
            self._classes(sample.classes),
            self._instances(now, sample.instances),
            sample.idle,
            ended,
            sample.latency,
            sample.surging,
            plan.term if plan else 0,
        )

    def answered(self, answer: SyncAnswer) -> None:
        """Follow the plan in a response, if there is one.

        Raises:
            CarpoolError: the plan is not for this function, is older than the one in force, or does
                not match these addresses.
        """
        plan = answer.plan
        if plan is None:
            self._upstreams.set_conditions(_states(answer))
            return
        if plan.function != self._function:
            message = f"a plan for {plan.function!r}: expected {self._function!r}"
            raise BadRequest(message)
        self._upstreams.apply(plan, answer.instances)
        self._upstreams.set_conditions(_states(answer))
        self._revision = answer.revision
        self._save(answer)
        self._changed()

    def _save(self, answer: SyncAnswer) -> None:
        if self._plan_file is None:
            return
        fresh = self._plan_file.with_suffix(".new")
        try:
            fresh.write_bytes(answer.to_json())
            fresh.replace(self._plan_file)
        except OSError as error:
            log.warning("the plan cannot be saved: %s", error)
            self._plan_file = None

    def _ended(self, late: int) -> Mapping[str, int]:
        """Return the requests ended since the last report, by terminal state, and ``late`` ones."""
        total = Counter(self._metrics.requests)
        total["refused"] = sum(self._metrics.refusals.values())
        ended = total - self._reported
        self._reported = total
        return {**ended, "late": late} if late else dict(ended)

    def _classes(self, executed: Mapping[str, Executions]) -> tuple[ClassReport, ...]:
        exec_times = {
            instance.upstream.instance_class: instance.upstream.exec_time
            for instance in self._upstreams
        }
        reports = []
        for name, executions in executed.items():
            times = exec_times.get(name)
            base_s, per_item_s = times.line() if times and times.settled else (0.0, 0.0)
            reports.append(
                ClassReport(
                    name,
                    executions.batches,
                    executions.item_count,
                    round(executions.exec_s, _DIGITS),
                    round(base_s, _DIGITS),
                    round(per_item_s, _DIGITS),
                )
            )
        return tuple(reports)

    def _instances(
        self, now: float, executed: Mapping[str, Executions]
    ) -> tuple[InstanceReport, ...]:
        reports = []
        for instance in self._upstreams:
            upstream = instance.upstream
            idle_s = max(0.0, now - (upstream.last_returned or instance.since))
            executions = executed.get(upstream.name, _NOTHING)
            report = InstanceReport(
                upstream.name,
                upstream.instance_class,
                instance.up,
                upstream.in_flight + instance.streams,
                round(idle_s, _DIGITS),
                executions.batches,
                executions.item_count,
                round(executions.exec_s, _DIGITS),
            )
            reports.append(report)
        return tuple(reports)


def _states(answer: SyncAnswer) -> dict[str, State]:
    return {address: State(word) for address, word in answer.conditions.items()}
