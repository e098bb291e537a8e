"""The scaler's metrics, as shown at ``/metrics``; every name and label set is listed here."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from carpool.prometheus_text import counter, gauge, render
from scaler.control.sync_pace import FEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from carpool.prometheus_text import Family
    from scaler.control.controller import Controller
    from scaler.control.sync_pace import Pace

__all__ = ["Metrics"]

_EDGE = 2.5  # cost of reading and writing a message, relative to processing it


class Metrics:
    """Counters of one scaler, and gauges read from its functions.

    Args:
        controllers: Returns the controllers of all functions.
        now: Returns seconds, on the axis of the functions.

    Attributes:
        syncs: Accepted messages by kind; refused ones are in ``refused``, by reason.
        actions: Calls of the gateway by verb and outcome.
        sync_s: Processor time spent on messages, without reading and writing them.
        rounds: Number of planning rounds; ``round_s`` and ``planning_s`` are the seconds spent in
            rounds and in policies.
    """

    def __init__(
        self, controllers: Callable[[], list[Controller]], now: Callable[[], float]
    ) -> None:
        self.syncs: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.actions: Counter[tuple[str, str]] = Counter()
        self.rounds = 0
        self.round_s = 0.0
        self.planning_s = 0.0
        self.interval_s = 0.0
        self.sync_s = 0.0
        self._measured = (0, 0.0)
        self._controllers = controllers
        self._now = now

    def rounded(self, took_s: float) -> None:
        """Count a round."""
        self.rounds += 1
        self.round_s += took_s

    def measure(self, pace: Pace, sidecars: int) -> None:
        """Report the cost of messages since the last call to ``pace``."""
        messages = self.syncs.total() + self.refused.total()
        if messages - self._measured[0] >= FEWEST:
            busy_s = _EDGE * (self.sync_s - self._measured[1])
            pace.measured(messages - self._measured[0], busy_s)
            self._measured = (messages, self.sync_s)
        self.interval_s = pace.interval_s(sidecars)

    def render(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return render(self.collect())

    def collect(self) -> Iterator[Family]:
        """Yield the metric families of `render`."""
        yield counter("scaler_syncs", "Sync messages accepted", self.syncs, "kind")
        yield counter("scaler_syncs_refused", "Sync messages refused", self.refused, "reason")
        yield counter("scaler_actions", "Calls to the gateway", self.actions, "verb", "outcome")
        yield counter("scaler_rounds", "Planning rounds", self.rounds)
        yield counter("scaler_rounds_seconds", "Time spent in planning rounds", self.round_s)
        yield counter("scaler_planning_seconds", "Time spent in policies", self.planning_s)
        text = "Interval between syncs that the scaler sets for sidecars"
        yield gauge("scaler_sync_interval_seconds", text, self.interval_s)
        yield from self._functions()

    def _functions(self) -> Iterator[Family]:
        now_s, of = self._now(), "function_name"
        functions = {controller.name: controller for controller in self._controllers()}
        rates = {n: sum(c.reports.rates_rps(now_s).values()) for n, c in functions.items()}
        yield gauge("scaler_rate", "Requests per second to plan for", rates, of)
        queued = {n: c.reports.queued(now_s) for n, c in functions.items()}
        yield gauge("scaler_queued_requests", "Requests waiting", queued, of)
        notes = {n: len(c.notes) for n, c in functions.items()}
        yield gauge("scaler_troubles", "Problems that status marks with !", notes, of)
        unplaced = {n: c.unplaced_rps for n, c in functions.items()}
        text = "Requests per second for which no server has capacity"
        yield gauge("scaler_unplaced_rate", text, unplaced, of)
        ended = {(n, how): k for n, c in functions.items() for how, k in c.reports.outcomes.items()}
        text = "Requests by terminal state; late: answered after the deadline"
        yield counter("scaler_requests", text, ended, of, "state")
        instances = {
            (name, class_name, state): getattr(replicas, state)
            for name, controller in functions.items()
            for class_name, replicas in controller.present(now_s).items()
            for state in ("ready", "loading")
        }
        text = "Instances by class and state"
        yield gauge("scaler_instances", text, instances, of, "class", "state")
