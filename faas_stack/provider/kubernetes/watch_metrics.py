"""Metrics of the watches with which the provider follows the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from faas_stack.provider.kubernetes.namespaces import Namespaces

__all__ = ["WatchMetrics"]


class WatchMetrics(Collector):
    """Collector that reads the watches when it is scraped."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, by namespace and resource."""
        labels = ("namespace", "resource")
        ends = CounterMetricFamily("provider_watch_ends", "Watches that ended.", labels=labels)
        listings = CounterMetricFamily(
            "provider_watch_listings", "Full listings of a resource.", labels=labels
        )
        failing = GaugeMetricFamily(
            "provider_watch_failing", "1 while changes are not arriving.", labels=labels
        )
        for namespace in self._namespaces:
            for resource, watch in namespace.watches.items():
                each = [namespace.name, resource]
                ends.add_metric(each, watch.ends)
                listings.add_metric(each, watch.listings)
                failing.add_metric(each, bool(watch.failed))
        yield from (ends, listings, failing)

    def describe(self) -> Iterable[Metric]:
        """Return nothing, as the metrics depend on the namespaces."""
        return ()
