"""The ledger: what is promised, what is placed where, and that it never exceeds the total."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.errors import ConfigError
from faas_stack.partition import amounts
from faas_stack.partition.allocation import (
    Allocation,
    Assignment,
    NoCapacity,
    Promise,
    max_instances,
)
from faas_stack.partition.machine import Capacity
from faas_stack.partition.resources import Resources
from tests.effort import scaled

GIB = 2**30
MACHINE = Capacity((0, 1, 2, 3), 4.0, 8 * GIB, ("g0", "g1"))


def cores(count: float, *, pinned: bool = False, memory_gib: int = 0) -> Resources:
    """A size."""
    memory_bytes = memory_gib * GIB or None
    return Resources(cpu=count, pinned=pinned, memory_bytes=memory_bytes)


def gpu(percent: float, count: int = 1) -> Resources:
    """A share of one GPU, or of several."""
    return Resources(gpus=count, gpu_percent=percent)


# -- promises -----------------------------------------------------------------------------------


def test_promises_add_up_to_what_there_is_and_not_beyond() -> None:
    """The refusal says what was asked for, what would fit, and what has the rest."""
    ledger = Allocation(MACHINE)
    ledger.promise("a", cores(1), 2)
    ledger.promise("b", cores(0.5, memory_gib=1), 2)
    with pytest.raises(NoCapacity) as caught:
        ledger.promise("c", cores(0.5), 3)
    assert (
        "no room for 3 instances of 'c' with 0.5 core each: 2 would fit; of 4 cores and 8 GiB and "
        "2 GPUs, part is reserved by a (2 x 1 core), b (2 x 0.5 core and 1 GiB); "
        "for smaller ones, set com.carpool.cpu"
    ) == str(caught.value)
    assert (503, True) == (caught.value.status, caught.value.retryable)
    ledger.promise("c", cores(0.5), 2)


def test_a_promise_takes_the_place_of_the_one_before() -> None:
    """An owner's own promise is no obstacle to its next; it is told, to be put back if need be."""
    ledger = Allocation(MACHINE)
    assert ledger.promise("a", cores(1), 4) is None
    before = ledger.promise("a", cores(2), 2)
    assert Promise(cores(1), 4) == before
    ledger.record("a", before)
    with pytest.raises(NoCapacity):
        ledger.promise("b", cores(0.1), 1)
    ledger.record("a", None)
    ledger.promise("b", cores(4), 1)


def test_less_is_granted_even_where_there_is_too_little() -> None:
    """After a restart on a smaller machine functions can still be scaled down, and not up."""
    ledger = Allocation(MACHINE)
    ledger.record("a", Promise(cores(2), 5))
    ledger.promise("a", cores(2), 4)
    ledger.promise("a", cores(1), 8)
    with pytest.raises(NoCapacity, match="none would fit"):
        ledger.promise("b", cores(1), 1)
    with pytest.raises(NoCapacity):
        ledger.promise("a", cores(1), 9)


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (cores(5), "limits.cpu = '5': expected at most 4 cores"),
        (cores(1, memory_gib=9), "limits.memory = '9 GiB': expected at most 8 GiB"),
        (gpu(50, 3), "com.carpool.gpu = '3': expected at most 2 GPUs"),
    ],
)
def test_what_could_never_fit_is_another_error(each: Resources, expected: str) -> None:
    """It is the size that is at fault, whatever else runs."""
    with pytest.raises(ConfigError) as caught:
        Allocation(MACHINE).promise("a", each, 0)
    assert expected in str(caught.value)


def test_an_instance_without_a_size_is_not_counted() -> None:
    """Functions without limits use what is left, as many as a machine can have of any."""
    ledger = Allocation(MACHINE)
    ledger.promise("a", cores(4, memory_gib=8), 1)
    ledger.promise("b", Resources(), 100)
    ledger.take("a-1", cores(4))
    assert Assignment(Resources()) == ledger.take("b-1", Resources())


def test_a_machine_has_so_many_instances() -> None:
    """By its cores and its memory, whatever the size; what was promised stays."""
    assert 128 == max_instances(MACHINE)
    assert 32 == max_instances(Capacity((0,), 0.5, GIB))
    assert 4 == max_instances(Capacity((0, 1), 2.0, GIB / 8))
    assert 1 == max_instances(Capacity((0,), 1.0, 1.0))
    assert 64 == max_instances(Capacity((0, 1), 2.0))
    assert 256 == max_instances(Capacity())
    ledger = Allocation(MACHINE)
    with pytest.raises(ConfigError, match="instances of 'a' = '129': expected at most 128"):
        ledger.promise("a", Resources(), 129)
    ledger.promise("a", Resources(), 100)
    with pytest.raises(NoCapacity, match="29 instances of 'b': 28 would fit"):
        ledger.promise("b", cores(0.01), 29)
    ledger.promise("b", cores(0.01), 28)
    with pytest.raises(NoCapacity, match="none would fit"):
        ledger.promise("c", Resources(), 1)
    ledger.promise("c", Resources(), 0)
    ledger.promise("a", Resources(), 99)
    ledger.promise("c", Resources(), 1)
    smaller = Allocation(MACHINE, 2)
    smaller.record("a", Promise(Resources(), 5))  # the machine shrank
    smaller.promise("a", Resources(), 5)
    smaller.promise("a", Resources(), 4)


def test_promises_are_summed() -> None:
    """For metrics, as the machine fills up."""
    ledger = Allocation(MACHINE)
    ledger.promise("a", cores(0.5, memory_gib=1), 3)
    ledger.promise("b", cores(1), 1)
    ledger.promise("c", Resources(), 7)
    assert Capacity(cpu=2.5, memory_bytes=3 * GIB) == ledger.promised()
    assert {"cpus": 4.0, "gpus": 2, "memory_mb": 8 * GIB / 1e6} == MACHINE.to_dict()
    assert {} == Capacity().to_dict()


def test_memory_alone_is_counted_alone() -> None:
    """A function that limits its memory and no cores takes no cores from others."""
    ledger = Allocation(MACHINE)
    ledger.promise("a", Resources(memory_bytes=4 * GIB), 2)
    ledger.promise("b", cores(4), 1)
    with pytest.raises(NoCapacity):
        ledger.promise("c", Resources(memory_bytes=1), 1)


def test_shares_of_gpus_are_laid_out() -> None:
    """Percentages of one GPU do not add up over two."""
    ledger = Allocation(MACHINE)
    ledger.promise("a", gpu(60), 2)
    with pytest.raises(NoCapacity):
        ledger.promise("b", gpu(50), 1)
    ledger.promise("b", gpu(40), 2)


# -- seats --------------------------------------------------------------------------------------


def test_whole_cores_are_of_one_instance_alone() -> None:
    """The others keep to the rest, which is less for as long."""
    ledger = Allocation(MACHINE)
    assert (3,) == ledger.take("a", cores(1, pinned=True)).cores
    assert () == ledger.take("b", cores(0.5)).cores
    assert (1, 2) == ledger.take("c", cores(2, pinned=True)).cores
    assert (0,) == ledger.pool_cores()
    ledger.leave("a")
    assert (0, 3) == ledger.pool_cores()


def test_a_seat_is_free_when_it_was_left() -> None:
    """A start that comes earlier waits, and is told for what."""
    ledger = Allocation(MACHINE)
    ledger.take("a", cores(3))
    assert not ledger.fits(cores(2))
    with pytest.raises(NoCapacity, match="waits for 2 cores, held by a"):
        ledger.take("b", cores(2))
    ledger.leave("a")
    ledger.take("b", cores(2))
    assert ledger.assignment("b") == ledger.take("b", cores(2))  # a restart


def test_the_fullest_gpu_is_taken_that_has_room() -> None:
    """What is left whole can be given to a function that needs it whole."""
    ledger = Allocation(MACHINE)
    assert ("g0",) == ledger.take("a", gpu(30)).gpus
    assert ("g0",) == ledger.take("b", gpu(60)).gpus
    assert ("g1",) == ledger.take("c", gpu(20)).gpus
    assert not ledger.fits(gpu(100))
    assert ("g0",) == ledger.take("d", gpu(10)).gpus


def test_seats_of_an_earlier_provider_are_taken() -> None:
    """What an instance is found to hold is held."""
    ledger = Allocation(MACHINE)
    ledger.restore("a", Assignment(cores(2, pinned=True), (0, 3), ("g1",)))
    assert (1, 2) == ledger.pool_cores()
    assert (1, 2) == ledger.take("b", cores(2, pinned=True)).cores
    assert not ledger.fits(cores(0.1))


def test_without_a_machine_nothing_is_refused() -> None:
    """Where nothing is held to anything, nothing is counted."""
    ledger = Allocation(Capacity())
    ledger.promise("a", cores(1000, memory_gib=1000), 200)
    assert () == ledger.take("a", cores(1000, pinned=True)).cores
    ledger.check(gpu(40))
    ledger.promise("b", gpu(100, count=2), 5)
    assert () == ledger.take("b", gpu(100, count=2)).gpus


def test_a_machine_without_gpus_has_none_to_share() -> None:
    """Cores are counted there, and so are GPUs."""
    with pytest.raises(ConfigError, match="at most 0 GPUs"):
        Allocation(Capacity((0, 1), 2.0)).check(gpu(40))


SIZES = st.builds(
    Resources,
    cpu=st.none() | st.sampled_from([0.1, 0.3, 0.5, 1.0, 1.5, 2.0]),
    pinned=st.booleans(),
    memory_bytes=st.none() | st.sampled_from([GIB, 3 * GIB]),
    gpus=st.sampled_from([0, 0, 1, 2]),
    gpu_percent=st.sampled_from([20.0, 50.0, 100.0]),
)


@settings(max_examples=scaled(200))
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 9), SIZES), max_size=40))
def test_never_more_than_there_is(steps: list[tuple[bool, int, Resources]]) -> None:
    """Sums always stay below the total, and no core has two instances."""
    ledger = Allocation(MACHINE)
    held: dict[str, Assignment] = {}
    for comes, number, each in steps:
        name = f"i{number}"
        if not comes:
            ledger.leave(name)
            held.pop(name, None)
        elif name not in held:
            try:
                held[name] = ledger.take(name, each)
            except NoCapacity:
                assert not ledger.fits(each)
        alone = [core for seat in held.values() for core in seat.cores]
        pool = ledger.pool_cores()
        assert sorted((*alone, *pool)) == list(MACHINE.cores)
        shared = sum(seat.each.cores for seat in held.values() if not seat.cores)
        assert shared <= len(pool) + 1e-6
        assert sum(seat.each.memory_bytes or 0 for seat in held.values()) <= MACHINE.memory_bytes
        for name_of_gpu in MACHINE.gpus:
            on_it = [s.each.gpu_percent for s in held.values() if name_of_gpu in s.gpus]
            assert sum(on_it) <= 100.0
        assert all(len(s.cores) == s.each.whole_cores for s in held.values())


# -- words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((5, 0, 2, 3), "0,2-3,5")],
)
def test_lists_of_cores_as_the_kernel_writes_them(numbers: tuple[int, ...], text: str) -> None:
    """Runs become ranges."""
    assert text == amounts.core_list(numbers)


def test_sizes_in_words() -> None:
    """As an operator says them."""
    each = Resources(cpu=0.5, memory_bytes=256 * 2**20, gpus=1, gpu_percent=40)
    assert "0.5 core and 256 MiB and 40 % of one GPU" == amounts.resources(each)
    assert "no limit" == amounts.resources(Resources())
    assert "1.5 GiB" == amounts.size(1.5 * GIB)
