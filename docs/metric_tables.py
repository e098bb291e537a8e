"""The metrics of each part as Markdown, read from what the parts export."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from faas_stack.provider import metrics as provider
from faas_stack.provider.kubernetes.watch_metrics import WatchMetrics
from faas_stack.provider.local.machine_metrics import MachineMetrics
from scaler import metrics as scaler
from sidecar.runtime import metrics as sidecar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.prometheus_text import Family


def sidecar_metrics() -> list[tuple[str, ...]]:
    """Of a sidecar that has a queue and nothing in it."""
    metrics = sidecar.Metrics()
    shedding = SimpleNamespace(late=0)
    batcher = SimpleNamespace(shedding=shedding, upstreams=[], queued=0, in_flight=0)
    metrics.watch(cast("Any", batcher))
    return _rows(metrics.collect())


def provider_metrics() -> list[tuple[str, ...]]:
    """Of a provider that has no functions and has answered one request."""
    amounts = SimpleNamespace(cpu=1.0, memory_bytes=1)
    ledger = SimpleNamespace(capacity=amounts, reserved=lambda: amounts)
    backend = SimpleNamespace(ledger=ledger, busy_gpus=dict)
    collectors = [WatchMetrics(cast("Any", ())), MachineMetrics(cast("Any", backend))]
    orchestrator = SimpleNamespace(all=list, collectors=collectors)
    metrics = provider.Metrics(cast("Any", orchestrator), [])
    metrics.observe(200, "GET", "/healthz", 0.001)
    return _rows(metrics.collect())


def scaler_metrics() -> list[tuple[str, ...]]:
    """Of a scaler that has no functions."""
    return _rows(scaler.Metrics(list, time.monotonic).collect())


def _rows(families: Iterable[Family]) -> list[tuple[str, ...]]:
    """Name, kind, labels and meaning of each family, by name."""
    return sorted(
        (
            f"`{family.name}`",
            family.type,
            ", ".join(f"`{label}`" for label in family.labels),
            family.documentation.rstrip("."),
        )
        for family in families
    )
