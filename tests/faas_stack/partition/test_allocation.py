"""Tests of the ledger: reservations and assignments, which never exceed the total."""

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
    Reservation,
    max_instances,
)
from faas_stack.partition.machine import Capacity
from faas_stack.partition.resources import Resources
from tests.effort import scaled

GIB = 2**30
MACHINE = Capacity((0, 1, 2, 3), 4.0, 8 * GIB, ("g0", "g1"))


def cores(count: float, *, pinned: bool = False, memory_gib: int = 0) -> Resources:
    """Return a size of cores and memory."""
    memory_bytes = memory_gib * GIB or None
    return Resources(cpu=count, pinned=pinned, memory_bytes=memory_bytes)


def gpu(percent: float, count: int = 1) -> Resources:
    """Return a share of one or more GPUs."""
    return Resources(gpus=count, gpu_percent=percent)


# -- reservations --------------------------------------------------------------------------------


def test_reservations_do_not_exceed_capacity() -> None:
    """A refusal says what was requested, what would fit, and what is used."""
    ledger = Allocation(MACHINE)
    ledger.reserve("a", cores(1), 2)
    ledger.reserve("b", cores(0.5, memory_gib=1), 2)
    with pytest.raises(NoCapacity) as caught:
        ledger.reserve("c", cores(0.5), 3)
    assert (
        "no capacity for 3 instances of 'c' with 0.5 core each: 2 would fit; "
        "of 4 cores and 8 GiB and 2 GPUs, part is reserved by a (2 x 1 core), "
        "b (2 x 0.5 core and 1 GiB); "
        "for smaller ones, set com.carpool.cpu"
    ) == str(caught.value)
    assert 503 == caught.value.status
    ledger.reserve("c", cores(0.5), 2)


def test_reservation_replaces_previous_one() -> None:
    """The owner's previous reservation is returned, so that it can be restored."""
    ledger = Allocation(MACHINE)
    assert ledger.reserve("a", cores(1), 4) is None
    before = ledger.reserve("a", cores(2), 2)
    assert Reservation(cores(1), 4) == before
    ledger.record("a", before)
    with pytest.raises(NoCapacity):
        ledger.reserve("b", cores(0.1), 1)
    ledger.record("a", None)
    ledger.reserve("b", cores(4), 1)


def test_scale_down_is_granted_on_too_small_machine() -> None:
    """On a machine that has become too small, functions can be scaled down and not up."""
    ledger = Allocation(MACHINE)
    ledger.record("a", Reservation(cores(2), 5))
    ledger.reserve("a", cores(2), 4)
    ledger.reserve("a", cores(1), 8)
    with pytest.raises(NoCapacity, match="none would fit"):
        ledger.reserve("b", cores(1), 1)
    with pytest.raises(NoCapacity):
        ledger.reserve("a", cores(1), 9)


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (cores(5), "limits.cpu = '5': expected at most 4 cores"),
        (cores(1, memory_gib=9), "limits.memory = '9 GiB': expected at most 8 GiB"),
        (gpu(50, 3), "com.carpool.gpu = '3': expected at most 2 GPUs"),
    ],
)
def test_size_that_never_fits_is_a_configuration_error(each: Resources, expected: str) -> None:
    """A size that could never fit is a configuration error, whatever else runs."""
    with pytest.raises(ConfigError) as caught:
        Allocation(MACHINE).reserve("a", each, 0)
    assert expected in str(caught.value)


def test_instances_without_limits_are_not_counted() -> None:
    """Instances without limits use no part of the total; only their number is limited."""
    ledger = Allocation(MACHINE)
    ledger.reserve("a", cores(4, memory_gib=8), 1)
    ledger.reserve("b", Resources(), 100)
    ledger.take("a-1", cores(4))
    assert Assignment(Resources()) == ledger.take("b-1", Resources())


def test_machine_limits_number_of_instances() -> None:
    """A machine's cores and memory limit the number of instances; earlier reservations are kept."""
    assert 128 == max_instances(MACHINE)
    assert 32 == max_instances(Capacity((0,), 0.5, GIB))
    assert 4 == max_instances(Capacity((0, 1), 2.0, GIB / 8))
    assert 1 == max_instances(Capacity((0,), 1.0, 1.0))
    assert 64 == max_instances(Capacity((0, 1), 2.0))
    assert 256 == max_instances(Capacity())
    ledger = Allocation(MACHINE)
    with pytest.raises(ConfigError, match="instances of 'a' = '129': expected at most 128"):
        ledger.reserve("a", Resources(), 129)
    ledger.reserve("a", Resources(), 100)
    with pytest.raises(NoCapacity, match="29 instances of 'b': 28 would fit"):
        ledger.reserve("b", cores(0.01), 29)
    ledger.reserve("b", cores(0.01), 28)
    with pytest.raises(NoCapacity, match="none would fit"):
        ledger.reserve("c", Resources(), 1)
    ledger.reserve("c", Resources(), 0)
    ledger.reserve("a", Resources(), 99)
    ledger.reserve("c", Resources(), 1)
    smaller = Allocation(MACHINE, 2)
    smaller.record("a", Reservation(Resources(), 5))  # the machine shrank
    smaller.reserve("a", Resources(), 5)
    smaller.reserve("a", Resources(), 4)


def test_reservations_are_summed() -> None:
    """Reservations are summed for metrics."""
    ledger = Allocation(MACHINE)
    ledger.reserve("a", cores(0.5, memory_gib=1), 3)
    ledger.reserve("b", cores(1), 1)
    ledger.reserve("c", Resources(), 7)
    assert Capacity(cpu=2.5, memory_bytes=3 * GIB) == ledger.reserved()
    assert {"cpus": 4.0, "gpus": 2, "memory_mb": 8 * GIB / 1e6} == MACHINE.to_dict()
    assert {} == Capacity().to_dict()


def test_memory_limit_takes_no_cores() -> None:
    """A function that limits its memory but no cores takes no cores from others."""
    ledger = Allocation(MACHINE)
    ledger.reserve("a", Resources(memory_bytes=4 * GIB), 2)
    ledger.reserve("b", cores(4), 1)
    with pytest.raises(NoCapacity):
        ledger.reserve("c", Resources(memory_bytes=1), 1)


def test_gpu_share_has_to_fit_on_one_gpu() -> None:
    """A share of a GPU has to fit on one GPU."""
    ledger = Allocation(MACHINE)
    ledger.reserve("a", gpu(60), 2)
    with pytest.raises(NoCapacity):
        ledger.reserve("b", gpu(50), 1)
    ledger.reserve("b", gpu(40), 2)


# -- seats --------------------------------------------------------------------------------------


def test_pinned_cores_belong_to_one_instance() -> None:
    """Pinned cores belong to one instance, and the others share the rest for that time."""
    ledger = Allocation(MACHINE)
    assert (3,) == ledger.take("a", cores(1, pinned=True)).cores
    assert () == ledger.take("b", cores(0.5)).cores
    assert (1, 2) == ledger.take("c", cores(2, pinned=True)).cores
    assert (0,) == ledger.pool_cores()
    ledger.leave("a")
    assert (0, 3) == ledger.pool_cores()


def test_instance_that_starts_before_there_is_room_is_refused() -> None:
    """An instance that starts before there is room is refused, with what it waits for."""
    ledger = Allocation(MACHINE)
    ledger.take("a", cores(3))
    assert not ledger.fits(cores(2))
    with pytest.raises(NoCapacity, match="waits for 2 cores, held by a"):
        ledger.take("b", cores(2))
    ledger.leave("a")
    ledger.take("b", cores(2))
    assert ledger.assignment("b") == ledger.take("b", cores(2))  # a restart


def test_fullest_gpu_with_room_is_used() -> None:
    """The fullest GPU with room is used, which leaves whole GPUs to functions that need them."""
    ledger = Allocation(MACHINE)
    assert ("g0",) == ledger.take("a", gpu(30)).gpus
    assert ("g0",) == ledger.take("b", gpu(60)).gpus
    assert ("g1",) == ledger.take("c", gpu(20)).gpus
    assert not ledger.fits(gpu(100))
    assert ("g0",) == ledger.take("d", gpu(10)).gpus


def test_restored_assignments_are_counted() -> None:
    """Assignments restored from an earlier provider are counted."""
    ledger = Allocation(MACHINE)
    ledger.restore("a", Assignment(cores(2, pinned=True), (0, 3), ("g1",)))
    assert (1, 2) == ledger.pool_cores()
    assert (1, 2) == ledger.take("b", cores(2, pinned=True)).cores
    assert not ledger.fits(cores(0.1))


def test_without_capacity_nothing_is_refused() -> None:
    """Without a capacity, nothing is counted or refused."""
    ledger = Allocation(Capacity())
    ledger.reserve("a", cores(1000, memory_gib=1000), 200)
    assert () == ledger.take("a", cores(1000, pinned=True)).cores
    ledger.check(gpu(40))
    ledger.reserve("b", gpu(100, count=2), 5)
    assert () == ledger.take("b", gpu(100, count=2)).gpus


def test_machine_without_gpus_refuses_gpu_shares() -> None:
    """A machine with cores and without GPUs refuses shares of GPUs."""
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
def test_sums_never_exceed_capacity(steps: list[tuple[bool, int, Resources]]) -> None:
    """Sums never exceed the total, and no core belongs to two instances."""
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
def test_consecutive_cores_are_written_as_ranges(numbers: tuple[int, ...], text: str) -> None:
    """Consecutive cores are written as ranges."""
    assert text == amounts.core_list(numbers)


def test_sizes_are_written_with_units() -> None:
    """Sizes are written in units that operators use."""
    each = Resources(cpu=0.5, memory_bytes=256 * 2**20, gpus=1, gpu_percent=40)
    assert "0.5 core and 256 MiB and 40 % of one GPU" == amounts.resources(each)
    assert "no limit" == amounts.resources(Resources())
    assert "1.5 GiB" == amounts.size(1.5 * GIB)
