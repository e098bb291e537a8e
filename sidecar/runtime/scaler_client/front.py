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
from carpool.sync import SyncAnswer
from sidecar.core.front_report import FrontReports, starves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from carpool.sync import FrontReport
    from sidecar.core.batcher import Batcher
    from sidecar.core.load_counter import LoadCounter
    from sidecar.runtime.metrics import Metrics
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["Front"]

log = logging.getLogger(__name__)


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
        load: LoadCounter,
        batcher: Batcher,
        upstreams: FunctionUpstreams,
        metrics: Metrics,
        changed: Callable[[], None],
    ) -> None:
        self._function = function
        self._reports = FrontReports(function, load, batcher)
        self._batcher = batcher
        self._upstreams = upstreams
        self._metrics = metrics
        self._changed = changed
        self._plan_file: Path | None = None
        self._reported: Counter[str] = Counter()  # requests by terminal state
        self._was_ready = False

    def save_plans(self, plan_file: Path) -> None:
        """Save plans to ``plan_file`` from now on; follow the saved plan, if there is one."""
        self._plan_file = plan_file
        if not plan_file.exists():
            return
        try:
            self.answered(SyncAnswer.from_json(plan_file.read_bytes()))
            self._reports.revision = ""  # the scaler may have a newer plan
        except (CarpoolError, OSError) as error:
            log.warning("the saved plan was ignored: %s", error)

    @property
    def starving(self) -> bool:
        """Whether requests wait and no instance can be reached."""
        return starves(self._batcher, self._upstreams)

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
        return self._reports.report(
            sender,
            sequence,
            time.monotonic(),
            self._upstreams.plan,
            list(self._upstreams),
            self._ended(),
        )

    def answered(self, answer: SyncAnswer) -> None:
        """Follow the plan in a response, if there is one.

        Raises:
            CarpoolError: the plan is not for this function, is older than the one in force, or does
                not match these addresses.
        """
        plan = answer.plan
        if plan is None:
            self._upstreams.set_conditions(answer.conditions)
            return
        if plan.function != self._function:
            message = f"a plan for {plan.function!r}: expected {self._function!r}"
            raise BadRequest(message)
        self._upstreams.apply(plan, answer.instances)
        self._upstreams.set_conditions(answer.conditions)
        self._reports.revision = answer.revision
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

    def _ended(self) -> Mapping[str, int]:
        """Return the requests ended since the last report, by terminal state."""
        total = Counter(self._metrics.requests)
        total["refused"] = sum(self._metrics.refusals.values())
        ended = total - self._reported
        self._reported = total
        return dict(ended)
