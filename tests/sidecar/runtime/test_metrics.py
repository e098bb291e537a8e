"""Tests of the sidecar's metrics as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from sidecar.runtime.metrics import Metrics


def test_counters_with_known_values_begin_with_zero() -> None:
    """Each of a counter's values is there from the start, as `increase` misses the first event."""
    families = text_string_to_metric_families(Metrics().render().decode())
    samples = [sample for family in families for sample in family.samples]
    begun = {
        name: {
            value for sample in samples if sample.name == name for value in sample.labels.values()
        }
        for name in (
            "batch_requests_total",
            "batch_refusals_total",
            "batch_closed_total",
            "batch_restarts_total",
            "batch_streams_ended_total",
        )
    }
    assert {
        "batch_requests_total": {"done", "failed", "expired", "refused", "cancelled"},
        "batch_refusals_total": {"queue_full", "expired", "late", "unfit"},
        "batch_closed_total": {"full", "idle", "departure", "drain", "isolation"},
        "batch_restarts_total": {"died", "hung"},
        "batch_streams_ended_total": {"complete", "cut_off", "caller_left"},
    } == begun
    assert {0.0} == {sample.value for sample in samples if sample.name in begun}
