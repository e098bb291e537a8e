"""What batching can do for models that answer step by step, by their stages' times alone."""

from __future__ import annotations

import pytest

from benchmarks.lazy_floor import capacity_rps, latencies_s, model, ways
from benchmarks.lazy_lengths import LENGTHS
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from simulator.staged import PendingArrival, windowed


@pytest.mark.parametrize("name", ["transformer", pytest.param("recurrent", marks=pytest.mark.slow)])
def test_no_way_is_faster_than_a_request_alone_and_stages_come_nearest(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a fifth of what full batches answer, and at nine tenths."""
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


def test_sequences_that_are_done_cost_their_batch_no_more() -> None:
    """One of one step beside one of three: the steps are of two, of one, and of one."""
    program = Program("words", [Node([1.0, 1.5]), Node([0.1, 0.15], NodeType.DECODER)])
    requests = [PendingArrival(0.0, program, 1e6, RemainingRuns(1, steps)) for steps in (1, 3)]
    windowed(requests, 0.0, 2, leaving=True)

    assert [pytest.approx(1.5 + 0.15 + 2 * 0.1)] * 2 == [each.ended for each in requests]
