"""Placement of instances on servers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.latency import Configuration, Resources
from carpool.latency.table import Table, read_table
from carpool.scaling import CORE_WEIGHT, resource_units
from scaler.planning.placement import Cluster, Node, Placement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.measured import Data

SIZES = [
    Resources(cpu, gpu, memory_mb)
    for cpu in (0.1, 1, 2.5, 4)
    for gpu in (0, 100 / 24, 10, 35, 100)
    for memory_mb in (0, 700)
]
CLUSTERS = st.lists(
    st.builds(
        Node,
        st.just("n"),
        st.sampled_from([1.0, 4.0, 10.3]),
        st.integers(0, 3),
        st.sampled_from([1500.0, 4096.0, math.inf]),
        st.sampled_from([0, 1, 3, 4, 24]),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 1000)), max_size=60)


def run(cluster: Cluster, steps: list[tuple[bool, int]]) -> Iterator[dict[Placement, Resources]]:
    """Place by best fit or release at random, and yield the expected placements after each step."""
    placed: dict[Placement, Resources] = {}
    for add, choice in steps:
        if add or not placed:
            size = SIZES[choice % len(SIZES)]
            node = cluster.best_fit(size)
            if node is not None:
                placed[cluster.place(size, node)] = size
        else:
            gone = list(placed)[choice % len(placed)]
            cluster.release(gone)
            del placed[gone]
        yield placed


@given(nodes=CLUSTERS, steps=STEPS)
def test_servers_are_never_overcommitted(nodes: list[Node], steps: list[tuple[bool, int]]) -> None:
    """No server or GPU ever holds more than its capacity."""
    cluster = Cluster(nodes)
    for placed in run(cluster, steps):
        assert len(placed) == len(cluster)
        for number, node in enumerate(nodes):
            here = [(at, size) for at, size in placed.items() if at.node == number]
            assert math.fsum(size.cpu for _, size in here) <= node.cpu + 1e-9
            assert math.fsum(size.memory_mb for _, size in here) <= node.memory_mb + 1e-9
            for gpu in range(node.gpus):
                shares = [size.gpu for at, size in here if at.gpu == gpu]
                assert math.fsum(taken(share, node) for share in shares) <= 100 + 1e-9
            assert all((at.gpu == -1) == (size.gpu == 0) for at, size in here)
            assert all(at.gpu < node.gpus for at, _ in here)


@given(nodes=CLUSTERS, steps=STEPS)
def test_the_best_fit_is_the_fullest_server_with_room(
    nodes: list[Node], steps: list[tuple[bool, int]]
) -> None:
    """The best fit is the first of the fullest servers with room, as in a full search."""
    cluster = Cluster(nodes)
    for placed in run(cluster, steps):
        rooms = [room(nodes, placed, number) for number in range(len(nodes))]
        for size in SIZES:
            fitting = [
                (cluster.left(number), number)
                for number, (cpu, shares, memory_mb) in enumerate(rooms)
                if size.cpu <= cpu + 1e-9
                and size.memory_mb <= memory_mb + 1e-9
                and (not size.gpu or max(shares, default=0) >= size.gpu - 1e-9)
            ]
            assert (min(fitting)[1] if fitting else None) == cluster.best_fit(size)
        for number, (cpu, shares, _) in enumerate(rooms):
            left = resource_units(cpu, sum(shares))
            assert pytest.approx(left, abs=1e-4) == cluster.left(number)


def room(
    nodes: list[Node], placed: dict[Placement, Resources], number: int
) -> tuple[float, list[float], float]:
    """Return the free cores, percentages of each GPU and memory of a server."""
    node = nodes[number]
    here = [(at, size) for at, size in placed.items() if at.node == number]
    shares = [
        100 - math.fsum(taken(size.gpu, node) for at, size in here if at.gpu == gpu)
        for gpu in range(node.gpus)
    ]
    cpu = node.cpu - math.fsum(size.cpu for _, size in here)
    return cpu, shares, node.memory_mb - math.fsum(size.memory_mb for _, size in here)


def taken(gpu: float, node: Node) -> float:
    """Return the percentage of a GPU that a share takes, in whole slots if the GPU has slots."""
    if not node.gpu_slots:
        return gpu
    return math.ceil(gpu * node.gpu_slots / 100 - 1e-6) * 100 / node.gpu_slots


@given(nodes=CLUSTERS, steps=STEPS)
def test_releasing_undoes_placing_exactly(nodes: list[Node], steps: list[tuple[bool, int]]) -> None:
    """After all releases a cluster is exactly as at the beginning."""
    cluster, new = Cluster(nodes), Cluster(nodes)
    history = list(run(cluster, steps))
    for placement in history[-1] if history else ():
        cluster.release(placement)
    numbers = range(len(nodes))
    assert [new.left(n) for n in numbers] == [cluster.left(n) for n in numbers]
    assert [new.best_fit(size) for size in SIZES] == [cluster.best_fit(size) for size in SIZES]
    assert 0.0 == cluster.fragmentation()


@given(nodes=CLUSTERS, steps=STEPS)
def test_fits_does_not_change_cluster(nodes: list[Node], steps: list[tuple[bool, int]]) -> None:
    """``fits`` changes nothing and returns as many as a copy holds; the free amounts add up."""
    cluster = Cluster(nodes)
    whole = cluster.free()
    for number, placed in enumerate(run(cluster, steps)):
        size = SIZES[number % len(SIZES)]
        before = (cluster.free(), [cluster.left(node) for node in range(len(nodes))], len(cluster))
        assert cluster.copy().place_up_to(size, 5) == cluster.fits(size, 5)
        after = (cluster.free(), [cluster.left(node) for node in range(len(nodes))], len(cluster))
        assert before == after
        cores = sum(each.cpu for each in placed.values())
        gpus = sum(taken(each.gpu, nodes[at.node]) for at, each in placed.items())
        assert pytest.approx((whole[0] - cores, whole[1] - gpus), abs=1e-3) == cluster.free()


def test_fractional_shares_fill_whole_resource() -> None:
    """24 shares of 100/24 percent fill a GPU, ten tenths a core, and one more does not fit."""
    for size, count in ((Resources(0, 100 / 24), 24), (Resources(0.1), 10), (Resources(1 / 3), 3)):
        cluster = Cluster([Node("n", 1, 1)])
        for _ in range(count):
            cluster.place(size, 0)
        assert cluster.best_fit(size) is None
        with pytest.raises(ValueError, match="does not fit on n"):
            cluster.place(size, 0)


def test_gpu_share_is_placed_on_fullest_gpu_with_room() -> None:
    """A share is on a single GPU, the fullest that has room for it."""
    cluster = Cluster([Node("n", 32, 2)])
    half, small = Resources(1, 60), Resources(1, 30)
    assert [0, 0, 1] == [cluster.place(size, 0).gpu for size in (half, small, half)]
    assert cluster.best_fit(Resources(1, 50)) is None
    assert pytest.approx(resource_units(29, 50)) == cluster.left(0)
    assert 1 == cluster.place(small, 0).gpu


@pytest.mark.parametrize(
    ("gpu", "slots", "instances"),
    [(25, 4, 4), (40, 4, 2), (40, 10, 2), (41, 10, 2), (51, 4, 1), (100, 3, 1), (100 / 3, 3, 3)],
)
def test_a_share_takes_whole_slots(gpu: float, slots: int, instances: int) -> None:
    """A share takes whole slots: of four slots 40 % takes two, so two instances fill a GPU."""
    cluster = Cluster([Node("n", 32, 1, gpu_slots=slots)])
    assert instances == cluster.place_up_to(Resources(1, gpu), 99)


def test_instance_can_be_placed_on_given_server() -> None:
    """A given server and GPU are used only if they exist, have room and a GPU is needed."""
    cluster = Cluster([Node("a", 4, 2), Node("b", 4)])
    assert Placement(0, 0, 1) == cluster.place(Resources(1, 30), 0, gpu=1)
    assert Placement(1, 1, -1) == cluster.place(Resources(1), 1)
    for gpu in (-1, 2):
        with pytest.raises(ValueError, match="does not fit on a"):
            cluster.place(Resources(1, 30), 0, gpu=gpu)
    with pytest.raises(ValueError, match="does not fit on b"):
        cluster.place(Resources(1, 30), 1)
    with pytest.raises(ValueError, match="does not fit on a"):
        cluster.place(Resources(1), 0, gpu=0)


def test_unknown_or_released_placement_is_refused() -> None:
    """Releasing twice, or an unknown placement, is an error and frees nothing."""
    cluster = Cluster([Node("n", 2)])
    placement = cluster.place(Resources(1), 0)
    cluster.release(placement)
    for unknown in (placement, Placement(9, 0, -1)):
        with pytest.raises(ValueError, match="is not placed here"):
            cluster.release(unknown)
    assert pytest.approx(2 * CORE_WEIGHT) == cluster.left(0)


def test_copy_is_independent_of_original() -> None:
    """Changes of a copy do not change the original cluster, nor the reverse."""
    cluster = Cluster([Node("n", 2, 1)])
    placement = cluster.place(Resources(1, 40), 0)
    before = cluster.left(0)
    twin = cluster.copy()
    twin.place(Resources(1, 60), 0)
    twin.release(placement)
    assert before == cluster.left(0)
    assert (1, 1) == (len(cluster), len(twin))
    assert cluster.best_fit(Resources(2)) is None
    cluster.release(placement)
    assert 0 == cluster.best_fit(Resources(2))
    assert twin.best_fit(Resources(2)) is None


def test_fragmentation_is_the_unallocated_share_of_servers_in_use() -> None:
    """Idle servers do not count in the fragmentation, and a full server has none."""
    cluster = Cluster([Node(str(number), 10, 1) for number in range(5)])
    assert 0.0 == cluster.fragmentation()
    cluster.place(Resources(5, 50), 0)
    assert pytest.approx(0.5) == cluster.fragmentation()
    cluster.place(Resources(10, 100), 1)
    assert pytest.approx(0.25) == cluster.fragmentation()


@pytest.mark.parametrize(
    "size", [Resources(-1), Resources(1, -1), Resources(1, 0, math.inf), Resources(math.nan)]
)
def test_invalid_sizes_are_refused(size: Resources) -> None:
    """Negative and non-finite sizes are refused with an error that says so."""
    with pytest.raises(ValueError, match="expected amounts of at least 0"):
        Cluster([Node("n", 1)]).best_fit(size)


@pytest.mark.parametrize(
    ("cpu", "gpus", "memory_mb", "expected"),
    [
        (0, 1, 1, r"n.cpu = '0': expected a number of cores above 0"),
        (1, -1, 1, r"n.gpus = '-1': expected a number of GPUs"),
        (1, 1, 0, r"n.memory_mb = '0': expected an amount above 0"),
    ],
)
def test_servers_without_capacity_are_refused(
    cpu: float, gpus: int, memory_mb: float, expected: str
) -> None:
    """A server without capacity is refused."""
    with pytest.raises(ConfigError, match=expected):
        Node("n", cpu, gpus, memory_mb)


class Chosen(NamedTuple):
    """A choice of Algorithm 1: configuration, server and efficiency (Eq. 10)."""

    config: Configuration
    node: int
    efficiency: float


def printed_algorithm_1(table: Table, cluster: Cluster, rate: float, slo_s: float) -> list[Chosen]:
    """Run INFless's Algorithm 1 (ASPLOS'22) as printed, to check the best fit against.

    Rates are rounded as in Eq. 1.
    """
    chosen: list[Chosen] = []
    while rate > 0:
        best = None
        for batch in (32, 16, 8, 4, 2, 1):
            rates = {
                config: math.floor(1 / exec_s) * batch
                for config, exec_s in table.rows.items()
                if config.batch == batch and feasible(config, exec_s, slo_s, rate)
            }
            best = most_efficient(rates, cluster) if rates else None
            if best is not None:
                break
        if best is None:
            break
        config = best.config
        cluster.place(Resources(config.cpu, config.gpu), best.node)
        chosen.append(best)
        rate -= math.floor(1 / table.rows[config]) * config.batch
    return chosen


def feasible(config: Configuration, exec_s: float, slo_s: float, rate: float) -> bool:
    """Return whether batches fill and execute in time (Eq. 1)."""
    if config.batch == 1:
        return exec_s <= slo_s
    return exec_s <= slo_s / 2 and rate >= math.ceil(1 / (slo_s - exec_s)) * config.batch


def most_efficient(rates: dict[Configuration, int], cluster: Cluster) -> Chosen | None:
    """Return the argmax of Eq. 10 over configurations, each on its best server."""
    most = max(rate / resource_units(config.cpu, config.gpu) for config, rate in rates.items())
    found = []
    for config, rate in rates.items():
        node = cluster.best_fit(Resources(config.cpu, config.gpu))
        if node is not None:
            units = resource_units(config.cpu, config.gpu)
            left = 1 - units / cluster.left(node)
            gain = rate / units / most
            found.append(Chosen(config, node, gain / left if left > 0 else math.inf))
    return max(found, key=lambda each: each.efficiency, default=None)


def test_algorithm_1_on_resnet(data: Data) -> None:
    """Algorithm 1 as expected: ResNet-50, 300 requests/s, 200 ms, three servers of 20 threads."""
    table = read_table(data.table("resnet-50"))
    cluster = Cluster([Node(str(number), 20, 1) for number in range(3)])
    chosen = printed_algorithm_1(table, cluster, 300, 0.2)
    small, large, one = (
        Configuration(4, 4, 10),
        Configuration(4, 4, 50),
        Configuration(1, 2, 0),
    )
    assert [small] * 4 + [large] + [small] * 2 + [one] * 2 == [each.config for each in chosen]
    assert [0] * 5 == [each.node for each in chosen[:5]]
    last = data.either(1.6897, 1.8306)
    assert pytest.approx([1.1214, 1.1382, 1.1604, 1.1910, last], abs=5e-5) == [
        each.efficiency for each in chosen[:5]
    ]


def test_algorithm_1_with_an_exact_fit(data: Data) -> None:
    """Within 350 ms it chooses large batches; with measured data, one fits a server exactly."""
    table = read_table(data.table("resnet-50"))
    cluster = Cluster([Node(str(number), 20, 1) for number in range(3)])
    chosen = printed_algorithm_1(table, cluster, 300, 0.35)
    expected = data.either(
        [(16, 16, 40)] * 3 + [(8, 4, 50)],
        [(16, 8, 40), (16, 8, 50), (16, 8, 40), (8, 4, 10), (2, 2, 50)],
    )
    assert expected == [tuple(each.config) for each in chosen]
    assert data.measured == (math.inf == chosen[3].efficiency)


def test_algorithm_1_on_ssd(data: Data) -> None:
    """SSD at 60 requests per second within 600 ms runs without a GPU."""
    table = read_table(data.table("ssd"))
    cluster = Cluster([Node(str(number), 20, 1) for number in range(3)])
    chosen = printed_algorithm_1(table, cluster, 60, 0.6)
    expected = data.either([Configuration(8, 16, 0)] * 2, [Configuration(4, 8, 0)] * 4)
    assert expected == [each.config for each in chosen]
