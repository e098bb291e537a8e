"""Metrics of the watches with which the provider follows the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.prometheus_text import counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.prometheus_text import Family
    from faas_stack.provider.kubernetes.namespaces import Namespaces

__all__ = ["WatchMetrics"]

_LABELS = ("namespace", "resource")


class WatchMetrics:
    """Collector that reads the watches when it is scraped."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def collect(self) -> Iterator[Family]:
        """Yield the metrics, by namespace and resource."""
        watches = {
            (namespace.name, resource): watch
            for namespace in self._namespaces
            for resource, watch in namespace.watches.items()
        }
        ends = {key: watch.ends for key, watch in watches.items()}
        yield counter("provider_watch_ends", "Watches that ended.", ends, *_LABELS)
        listings = {key: watch.listings for key, watch in watches.items()}
        yield counter("provider_watch_listings", "Full listings of a resource.", listings, *_LABELS)
        failing = {key: bool(watch.failed) for key, watch in watches.items()}
        yield gauge(
            "provider_watch_failing", "1 while changes are not arriving.", failing, *_LABELS
        )
