"""The sidecar in front of a function's instances, as it speaks with the scaler.

It reports its load and what it sees of its instances, and follows the plans that come back. The
last one is also written down where there is a place for it, so that a front that was killed goes on
with it, whether or not there is a scaler just then.
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
    """Speaks for a front (`sidecar.runtime.scaler_client.sync.Speaker`).

    Args:
        function: What the user calls.
        load: What was counted.
        batcher: What waits.
        upstreams: The instances and the plan.
        metrics: What became of requests.
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
        self._notebook: Path | None = None
        self._revision = ""
        self._fates: Counter[str] = Counter()
        self._settled = False

    def remember(self, notebook: Path) -> None:
        """Write plans down there from now on; follow what is written, if anything is."""
        self._notebook = notebook
        if not notebook.exists():
            return
        try:
            self.answered(SyncAnswer.from_json(notebook.read_bytes()))
            self._revision = ""  # there may be a newer one
        except (CarpoolError, OSError) as error:
            log.warning("the plan that was written down is not followed: %s", error)

    @property
    def starving(self) -> bool:
        """Whether requests wait, and no instance can be reached."""
        return self._batcher.queued > 0 and not any(instance.up for instance in self._upstreams)

    def not_ready(self) -> str:
        """Why it is not ready yet; empty once it was: from then on it holds requests."""
        if self._settled:
            return ""
        plan = self._upstreams.plan
        if plan is None:
            return "no plan yet"
        wanted = any(kind.replicas for kind in plan.classes)
        if wanted and not any(instance.up for instance in self._upstreams):
            return "no instance yet"
        self._settled = True
        return ""

    def message(self, sender: str, sequence: int) -> FrontReport:
        """How it goes."""
        now = time.monotonic()
        if self._batcher.idle:
            self._load.became_idle(now)
        taken = self._load.take(now)
        fates = self._became(taken.late)
        plan = self._upstreams.plan
        return FrontReport(
            self._function,
            sender,
            sequence,
            self._revision,
            plan.version if plan else None,
            round(taken.period_s, _DIGITS),
            self._load.idle_s(now),
            self._batcher.queued,
            self.starving,
            tuple(AppReport(name, app.arrivals, app.gaps) for name, app in taken.apps.items()),
            self._classes(taken.classes),
            self._instances(now, taken.instances),
            taken.idle,
            fates,
            taken.latency,
            taken.surging,
            plan.term if plan else 0,
        )

    def answered(self, answer: SyncAnswer) -> None:
        """Follow the plan, if there is one.

        Raises:
            CarpoolError: it is not for this function, older than the one in force, or no plan that
                these addresses go with.
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
        self._write_down(answer)
        self._changed()

    def _write_down(self, answer: SyncAnswer) -> None:
        if self._notebook is None:
            return
        fresh = self._notebook.with_suffix(".new")
        try:
            fresh.write_bytes(answer.to_json())
            fresh.replace(self._notebook)
        except OSError as error:
            log.warning("the plan cannot be written down: %s", error)
            self._notebook = None

    def _became(self, late: int) -> Mapping[str, int]:
        """Requests that came to an end since the last time, by how."""
        found = Counter(self._metrics.requests)
        found["refused"] = sum(self._metrics.refusals.values())
        fates = found - self._fates
        self._fates = found
        return {**fates, "late": late} if late else dict(fates)

    def _classes(self, executed: Mapping[str, Executions]) -> tuple[ClassReport, ...]:
        lines = {
            instance.upstream.instance_class: instance.upstream.exec_time
            for instance in self._upstreams
        }
        reports = []
        for name, found in executed.items():
            times = lines.get(name)
            base_s, per_item_s = times.line() if times and times.settled else (0.0, 0.0)
            reports.append(
                ClassReport(
                    name,
                    found.batches,
                    found.item_count,
                    round(found.exec_s, _DIGITS),
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
            found = executed.get(upstream.name, _NOTHING)
            report = InstanceReport(
                upstream.name,
                upstream.instance_class,
                instance.up,
                upstream.in_flight,
                round(idle_s, _DIGITS),
                found.batches,
                found.item_count,
                round(found.exec_s, _DIGITS),
            )
            reports.append(report)
        return tuple(reports)


def _states(answer: SyncAnswer) -> dict[str, State]:
    return {address: State(word) for address, word in answer.conditions.items()}
