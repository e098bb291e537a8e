"""The scaler's metrics, as shown at ``/metrics``; every name and label set is listed here."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scaler.control.sync_pace import FEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

    from scaler.control.controller import Controller
    from scaler.control.sync_pace import Pace

__all__ = ["CONTENT_TYPE", "Tally"]

_EDGE = 2.5  # what reading and writing a message costs beside what is done about it
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Tally(Collector):
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
        self._controls = controllers
        self._now = now
        self._registry = CollectorRegistry()
        self._registry.register(self)

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
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of `render`, as required by prometheus_client."""
        yield _counter("scaler_syncs", "Sync messages accepted", "kind", self.syncs)
        yield _counter("scaler_syncs_refused", "Sync messages refused", "reason", self.refused)
        actions = CounterMetricFamily(
            "scaler_actions", "Calls to the gateway", labels=["verb", "outcome"]
        )
        for labels, count in sorted(self.actions.items()):
            actions.add_metric(labels, count)
        yield actions
        rounds = CounterMetricFamily("scaler_rounds", "Planning rounds")
        rounds.add_metric([], self.rounds)
        yield rounds
        seconds = CounterMetricFamily("scaler_rounds_seconds", "Time spent in planning rounds")
        seconds.add_metric([], self.round_s)
        yield seconds
        planning = CounterMetricFamily("scaler_planning_seconds", "Time spent in policies")
        planning.add_metric([], self.planning_s)
        yield planning
        interval = GaugeMetricFamily(
            "scaler_sync_interval_seconds", "Interval between syncs that sidecars are told to keep"
        )
        interval.add_metric([], self.interval_s)
        yield interval
        yield from self._functions()

    def _functions(self) -> Iterator[Metric]:
        one = ["function_name"]
        rate = GaugeMetricFamily("scaler_rate", "Requests per second to plan for", labels=one)
        queued = GaugeMetricFamily("scaler_queued_requests", "Requests waiting", labels=one)
        troubles = GaugeMetricFamily(
            "scaler_troubles", "Problems that status marks with !", labels=one
        )
        unplaced = GaugeMetricFamily(
            "scaler_unplaced_rate",
            "Requests per second for which no server has capacity",
            labels=one,
        )
        requests = CounterMetricFamily(
            "scaler_requests",
            "Requests by terminal state; late: answered after the deadline",
            labels=["function_name", "state"],
        )
        instances = GaugeMetricFamily(
            "scaler_instances",
            "Instances by class and state",
            labels=["function_name", "class", "state"],
        )
        now_s = self._now()
        for controller in self._controls():
            name = controller.name
            rate.add_metric([name], sum(controller.reports.rates.at(now_s).values()))
            queued.add_metric([name], controller.reports.queued(now_s))
            troubles.add_metric([name], len(controller.notes))
            unplaced.add_metric([name], controller.unplaced_rps)
            for state, count in sorted(controller.reports.fates.items()):
                requests.add_metric([name, state], count)
            for class_name, replicas in sorted(controller.present(now_s).items()):
                instances.add_metric([name, class_name, "ready"], replicas.ready)
                instances.add_metric([name, class_name, "loading"], replicas.loading)
        yield from (rate, queued, troubles, unplaced, requests, instances)


def _counter(name: str, text: str, label: str, values: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
