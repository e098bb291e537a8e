"""Limits of batching for models that answer step by step, from their stage times alone."""

from __future__ import annotations

import pytest

from benchmarks.lazy_floor import LENGTHS, capacity_rps, latencies_s, model, ways
from benchmarks.staged import PendingArrival, windowed
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns


@pytest.mark.parametrize("name", ["transformer", pytest.param("recurrent", marks=pytest.mark.slow)])
def test_staged_execution_is_fastest_but_not_below_single_request(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staged execution is the fastest way at 20 % and 90 % load, and none beats a request alone."""
    monkeypatch.setattr("benchmarks.lazy_floor.COUNT", 1500)
    program = model(name)
    alone_s = sum(p * program.seconds(0, RemainingRuns(1, n)) for n, p in LENGTHS.items())
    full_rps = capacity_rps(program)
    for load in (0.2, 0.9):
        found = {
            way: sum(each) / len(each)
            for way, run in ways().items()
            if (each := latencies_s(program, load * full_rps, run))
        }

        assert 0.98 * alone_s < found["lazy"] == min(found.values())


def test_completed_sequences_leave_their_batch() -> None:
    """A completed sequence leaves its batch: sequences of one and three steps run as 2, 1 and 1."""
    program = Program("words", [Node([1.0, 1.5]), Node([0.1, 0.15], NodeType.DECODER)])
    requests = [PendingArrival(0.0, program, 1e6, RemainingRuns(1, steps)) for steps in (1, 3)]
    windowed(requests, 0.0, 2, leaving=True)

    assert [pytest.approx(1.5 + 0.15 + 2 * 0.1)] * 2 == [each.ended for each in requests]
