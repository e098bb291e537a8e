"""Which executor suits a model, given the duration of its batches."""

from __future__ import annotations

import pytest

from carpool.executor_advice import better_executor

SHARED, APART = (0.040, 0.005), (0.002, 0.020)  # seconds of a batch, and of each of its requests


@pytest.mark.parametrize(
    ("line", "batch_max", "slo_s", "expected"),
    [
        pytest.param(
            SHARED, 16, 0.2, "lazy", id="a request that just misses a batch of 120 ms is late"
        ),
        pytest.param(SHARED, 16, 0.3, "graph", id="both batches fit into the objective"),
        pytest.param(SHARED, 16, None, None, id="without an objective"),
        pytest.param(APART, 16, 0.2, "graph", id="joining saves nothing"),
        pytest.param(SHARED, 1, 0.05, "graph", id="there are no batches"),
    ],
)
def test_stages_are_advised_if_waiting_misses_the_objective(
    line: tuple[float, float], batch_max: int, slo_s: float | None, expected: str | None
) -> None:
    """Stages are advised if waiting for whole batches misses the SLO and joining saves time."""
    base_s, item_s = line
    found = better_executor(lambda size: base_s + size * item_s, batch_max, slo_s)

    assert expected == (found.executor if found else None)


def test_unknown_batch_sizes_are_ignored() -> None:
    """The largest known batch size is used; without a time for one request there is no advice."""
    found = better_executor({1: 0.01, 8: 0.03}.get, 32, 0.05)

    assert found is not None
    assert "a batch of 8" in found.why
    assert better_executor({8: 0.03}.get, 32, 0.05) is None
