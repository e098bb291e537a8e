"""Covers for all functions at prices at which they fit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.sizing import Objective, sizes
from scaler.planning.placement import Boundless, Cluster, Node
from scaler.policies.common.draft import Draft
from scaler.policies.infless.covering import CoverDemand
from scaler.policies.infless.priced import PricedSearch, Task
from tests.scaler.loads import CLASSIFIER, load, servers

if TYPE_CHECKING:
    from scaler.policies.infless.priced import Aim

SLO_S = 0.2
SIZES = sizes(CLASSIFIER, Objective(SLO_S))


def task(rate_rps: float, name: str = "f") -> Task:
    """Return the task of a function without instances."""
    draft = Draft(load(rate_rps, name=name), SIZES)
    return Task(draft, CoverDemand(rate_rps, SLO_S, 0.01))


def share_on_gpus(draft: Draft) -> float:
    """Return the share of the instances' capacity that is on GPUs."""
    whole = sum(size.rate_rps * count for size, count in draft.instances.items())
    rates = [size.rate_rps * n for size, n in draft.instances.items() if size.gpu]
    return sum(rates) / whole


def test_size_with_best_rate_per_unit_is_used_without_servers() -> None:
    """Without servers, the size with the highest rate per resource unit is used."""
    alone = task(300)
    PricedSearch().add([alone], Boundless())
    assert {"b1-c2"} == {size.name for size in alone.draft.instances}
    assert 0 == alone.draft.missing_rps


def test_scarce_cores_move_load_to_gpus() -> None:
    """GPUs are used beyond the 288 requests/s that the cores of three servers serve."""
    few, some, many = task(150), task(400), task(900)
    for one in (few, some, many):
        PricedSearch().add([one], servers(3))
        assert 0 == one.draft.missing_rps
    assert 0 == share_on_gpus(few.draft)
    assert 0 < share_on_gpus(some.draft) < share_on_gpus(many.draft)


def test_scarce_gpus_move_load_to_cores() -> None:
    """No more GPUs are planned than exist, also with the aim ``servers``."""
    nodes = [*(Node(f"c{n}", 32, 0) for n in range(6)), Node("g", 32, 1)]
    one = task(500)
    PricedSearch("servers").add([one], Cluster(nodes))
    assert 0 == one.draft.missing_rps
    assert share_on_gpus(one.draft) < 0.5


def test_servers_aim_reduces_fragmentation() -> None:
    """With the aim ``servers``, the servers in use have less unused capacity."""
    left: dict[Aim, float] = {}
    aims: tuple[Aim, ...] = ("resources", "servers")
    for aim in aims:
        room = PricedSearch(aim).add([task(3000)], servers(40))
        assert isinstance(room, Cluster)
        left[aim] = room.fragmentation()
    assert left["servers"] < 0.3
    assert left["resources"] > 0.5


def test_load_without_room_is_unplaced() -> None:
    """If part of the load has no room, the same part of the rate is unplaced."""
    one = task(2000)
    room = PricedSearch().add([one], servers(1))
    assert isinstance(room, Cluster)
    assert 0 < one.draft.missing_rps < one.draft.needed_rps
    part = one.draft.missing_rps / one.draft.needed_rps
    assert pytest.approx(2000 * part) == one.draft.unplaced_rps
    assert len(room) == one.draft.instances.total()


def test_function_without_size_is_unplaced() -> None:
    """A function with an objective that no size meets is unplaced."""
    one = Task(Draft(load(50), ()), CoverDemand(50, 0.001, 0.01))
    PricedSearch().add([one], servers(1))
    assert 50 == one.draft.unplaced_rps


def test_search_does_not_depend_on_earlier_searches() -> None:
    """The same tasks give the same instances, whatever was searched before."""
    search, fresh, again = PricedSearch(), task(123), task(123)
    search.add([fresh], servers(2))
    search.add([task(999), task(1, "g")], servers(2))
    search.add([again], servers(2))
    assert fresh.draft.instances == again.draft.instances


RATE = st.one_of(st.just(0.0), st.floats(0.001, 800))
RATES = st.lists(RATE, min_size=1, max_size=4)
NODES = st.lists(
    st.builds(Node, st.just("n"), st.sampled_from([2.0, 8.0, 32.0]), st.integers(0, 2)),
    min_size=1,
    max_size=4,
)


@given(rates=RATES, nodes=NODES, aim=st.sampled_from(["resources", "servers"]))
def test_added_instances_are_placed(rates: list[float], nodes: list[Node], aim: Aim) -> None:
    """Every added instance is placed on the cluster."""
    tasks = [task(rate, f"f{number}") for number, rate in enumerate(rates)]
    cluster = Cluster(nodes)
    room = PricedSearch(aim).add(tasks, cluster)
    assert isinstance(room, Cluster)
    assert len(room) == sum(one.draft.instances.total() for one in tasks)
    assert 0 == len(cluster)
    for one in tasks:
        assert one.draft.missing_rps == 0 or all(
            room.best_fit(size.resources) is None for size in SIZES
        )


@given(rates=RATES)
def test_existing_instances_are_kept(rates: list[float]) -> None:
    """Instances are only added, never removed."""
    kept = Counter({SIZES[0]: 3})
    tasks = []
    for number, rate in enumerate(rates):
        draft = Draft(load(rate, name=f"f{number}"), SIZES, kept.copy())
        tasks.append(Task(draft, CoverDemand(rate, SLO_S, 0.01).having(kept)))
    PricedSearch().add(tasks, Boundless())
    assert all(kept <= one.draft.instances for one in tasks)


def test_placing_stops_when_servers_are_full() -> None:
    """Four of ten instances fit on four cores."""
    cluster = servers(1, 4, 0)
    size = CLASSIFIER.resources(1, 1.0, 0.0)
    assert 4 == cluster.place_up_to(size, 10)
    assert 4 == len(cluster)
    assert 10 == Boundless().place_up_to(size, 10)
