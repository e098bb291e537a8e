"""What batching can do for models that answer step by step, by their stages' times alone."""

from __future__ import annotations

import pytest

from benchmarks.lazy import LENGTHS
from benchmarks.lazy_floor import BATCH_MAX, TIMES_MS, latencies_s, model, ways
from watchdog_plugin.lazy.program import Left


@pytest.mark.parametrize("name", list(TIMES_MS))
def test_no_way_is_faster_than_a_request_alone_and_stages_come_nearest(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a fifth of what full batches answer, and at nine tenths."""
    monkeypatch.setattr("benchmarks.lazy_floor.COUNT", 1500)
    program = model(name)
    alone_s = sum(p * program.seconds(0, Left(1, n)) for n, p in LENGTHS.items())
    full_rps = BATCH_MAX / program.seconds(0, Left(1, max(LENGTHS)), BATCH_MAX)
    for load in (0.2, 0.9):
        found = {
            way: sum(each) / len(each)
            for way, run in ways().items()
            if (each := latencies_s(program, load * full_rps, run))
        }

        assert 0.98 * alone_s < found["lazy"] == min(found.values())
