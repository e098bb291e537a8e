"""Guarantees of the scheduler: requests end once, in order, in bounded time."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from carpool.lazy_batching.rules import PAPER, Rules
from carpool.lazy_batching.scheduler import Scheduler
from tests.carpool.lazy_batching.drive import Drive, program
from tests.effort import scaled

RULES = [
    Rules(),
    Rules(pays=False),
    Rules(pays=False, lost="block", partial=False),
    Rules(estimate="serial"),
    PAPER,
]


def _program(name: str, node_types: list[NodeType], batch_max: int) -> Program:
    seconds = [1.0 + 0.3 * size for size in range(batch_max)]
    return Program(name, [Node(seconds, each) for each in node_types])


PROGRAMS = st.lists(
    st.tuples(st.lists(st.sampled_from(NodeType), min_size=1, max_size=5), st.integers(1, 4)),
    min_size=1,
    max_size=3,
)
COMING = st.lists(
    st.tuples(
        st.integers(0, 2),  # its model
        st.floats(0, 40),  # when
        st.sampled_from([0.5, 10.0, 60.0, math.inf]),  # seconds to its deadline
        st.integers(1, 3),  # length of its input
        st.integers(1, 6),  # length of its answer
        st.integers(1, 6),  # as predicted
        st.integers(1, 2),  # rows
        st.sampled_from("ab"),  # its shape
    ),
    max_size=25,
)


@given(programs=PROGRAMS, coming=COMING, rules=st.sampled_from(RULES))
@settings(max_examples=scaled(300))
def test_each_request_runs_every_node_and_ends_once(
    programs: list[tuple[list[NodeType], int]],
    coming: list[tuple[int, float, float, int, int, int, int, str]],
    rules: Rules,
) -> None:
    """No request is lost, no batch is too large, and no node is repeated or left out."""
    made = [_program(str(n), *each) for n, each in enumerate(programs)]
    jobs, inputs, lengths = [], {}, {}
    for number, (which, at, budget, encoder, decoder, predicted, rows, key) in enumerate(coming):
        model = made[which % len(made)]
        inputs[number], lengths[number] = encoder, decoder
        jobs.append(
            Job(
                number,
                model,
                at,
                deadline=at + budget,
                left=RemainingRuns(encoder, predicted),
                key=key,
                rows=min(rows, model.batch_max),
            )
        )
    sizes = {job.id: job.program for job in jobs}
    drive = Drive(rules, lengths).run(jobs)

    assert set(sizes) == set(drive.ended)
    for number, model in sizes.items():
        times = {
            NodeType.STATIC: 1,
            NodeType.ENCODER: inputs[number],
            NodeType.DECODER: lengths[number],
        }
        decoders = sum(block.node_type is NodeType.DECODER for block in model.blocks)
        if decoders > 1 or sum(block.node_type is NodeType.ENCODER for block in model.blocks) > 1:
            continue  # one loop of each kind is what a request's lengths speak of
        expected = Counter(
            {
                node: times[block.node_type]
                for block in model.blocks
                for node in range(block.start, block.end)
            }
        )
        assert expected == Counter(drive.nodes[number])


@pytest.mark.parametrize("rules", RULES, ids=range(len(RULES)))
def test_a_request_without_a_deadline_is_not_starved_by_another_model(rules: Rules) -> None:
    """The requests of a short model cannot preempt a long one indefinitely."""
    short = _program("short", [NodeType.STATIC], 4)
    long = _program("long", [NodeType.STATIC] * 5, 4)
    stream = [Job(number, short, 0.9 * number) for number in range(1, 400)]
    drive = Drive(rules).run([Job(0, long, 0.0), *stream])

    nodes, batches, longest_s = 5, rules.overtaken_max, 1.9
    assert drive.ended[0] <= nodes * (batches + 1) * longest_s


def test_large_request_is_not_overtaken_by_later_ones_of_its_model() -> None:
    """If a request does not fit, no later one of its model starts before it, whatever its shape."""
    model = program(1.0, 1.0, 1.0, batch_max=4)
    wide = Job(1, model, 0.5, rows=4, key="wide")
    narrow = [Job(n + 2, model, 0.6 + 0.5 * n, key="narrow") for n in range(100)]
    drive = Drive(Rules(pays=False)).run([Job(0, model, 0.0, key="narrow"), wide, *narrow])

    assert drive.ended[1] <= 8.0


def test_finished_sequence_leaves_and_newcomer_joins_at_next_step() -> None:
    """With steps of 1, a short response ends at its own step and a later request joins the next."""
    model = Program("words", [Node([1.0] * 4, NodeType.DECODER)])
    jobs = [Job(n, model, at, left=RemainingRuns(1, 5)) for n, at in enumerate((0.0, 0.0, 1.5))]
    drive = Drive(lengths={0: 2, 1: 6, 2: 3}).run(jobs)

    assert {0: 2.0, 1: 6.0, 2: 5.0} == drive.ended
    assert (2.0, (1, 2)) in drive.batches


def test_requests_do_not_join_where_it_does_not_pay() -> None:
    """Requests run one by one if a batch of two takes twice as long as one, otherwise together."""
    alone, cheap = program(*[1.0] * 4, per_item=1.0), program(*[1.0] * 4, per_item=0.1)
    for model, together in ((alone, False), (cheap, True)):
        drive = Drive().run([Job(0, model, 0.0), Job(1, model, 0.5)])

        assert together is any(len(members) > 1 for _, members in drive.batches)


def test_late_request_blocks_others_only_if_configured() -> None:
    """A request that is late anyway is ignored or blocks others, as set; the paper does not say."""
    ended = {}
    for lost in ("ignore", "block"):
        model = program(*[1.0] * 8)
        jobs = [Job(0, model, 0.0, deadline=1.0), Job(1, model, 0.5, deadline=99.0)]
        ended[lost] = Drive(Rules(lost=lost, pays=False)).run(jobs).ended

    assert {0: 9.0, 1: 9.0} == ended["ignore"]
    assert {0: 8.0, 1: 16.0} == ended["block"]


def test_slack_of_every_model_on_the_device_is_checked() -> None:
    """A newcomer waits if it would make a running request of another model late."""
    first, other = program(*[1.0] * 8), program(*[1.0] * 8)
    jobs = [Job(0, first, 0.0, deadline=10.0), Job(1, other, 0.5)]
    drive = Drive(Rules(pays=False)).run(jobs)

    assert {0: 8.0, 1: 16.0} == drive.ended


def test_waiting_request_can_be_cancelled() -> None:
    """A waiting request can be cancelled once, and never runs."""
    model = program(1.0, 1.0)
    scheduler = Scheduler()
    waits = Job(0, model, 0.0)
    scheduler.add(waits)

    assert scheduler.cancel(waits)
    assert not scheduler.cancel(waits)
    assert scheduler.next(0.0) is None
