"""What becomes of instances: loading, changes of plan, keep-alive, prewarming, and room."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from scaler.arrivals.processes import Poisson
from scaler.planning.cost import Prices
from scaler.planning.placement import Node
from tests.simulator.load import At, Constant, Every, Scripted, function, linear, plan
from tests.simulator.load import run as run_of
from tests.simulator.load import scenario as of

if TYPE_CHECKING:
    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad

EXEC_S, LOAD_S = 0.05, 2.0
MODEL = linear(EXEC_S, load_s=LOAD_S)
HEARD_S = 0.5 + 0.5  # until a front has reported, and the scaler has had its turn
LEFT_S = 1.0  # after an instance was told to go it serves for two intervals of its front
run = partial(run_of, interval_s=0.5)


def between(least: float, most: float) -> Any:
    """An amount from the one to the other."""
    return pytest.approx((least + most) / 2, abs=(most - least) / 2 + 1e-9)


def test_a_request_before_an_instance_has_loaded_is_cold() -> None:
    """A request every half second, and 2 s to load: three wait, and no other."""
    result = run(
        of(function(Every(0.5, 10.0), MODEL), horizon_s=20.0),
        Constant(Constant.Params()),
        cold=True,
    )
    assert pytest.approx(3 / 20) == result["cold_start_ratio"]
    assert 20 == result["done"]


def test_a_running_system_starts_warm() -> None:
    """By default no request waits for the first plan's instances."""
    result = run(of(function(Every(0.5, 10.0), MODEL), horizon_s=20.0), Constant(Constant.Params()))
    assert 0 == result["cold_start_ratio"]
    assert pytest.approx(EXEC_S * 1000) == result["latency_ms"]["mean"]


def test_an_instance_without_waiting_requests_makes_no_cold_start() -> None:
    """A second instance loads while the first has time for all requests."""
    policy = Scripted(lambda now, _: plan("f", 1 + (now >= 10), 1 + (now >= 10)))
    result = run(of(function(Every(0.5, 20.0), MODEL), horizon_s=20.0), policy)
    assert 0 == result["cold_start_ratio"]
    assert pytest.approx(20.0 + 10.0) == result["cpu_core_s"]


def test_who_comes_without_any_instance_is_answered_late() -> None:
    """The objective is shorter than the load: a front holds them, and they were cold."""
    soon = function(At((1.0, 1.1)), MODEL, slo_s=0.5)
    result = run(of(soon, horizon_s=5.0), Constant(Constant.Params()), cold=True)
    assert 2 == result["done"]
    assert 1 == result["cold_start_ratio"] == result["slo_miss_ratio"]


def changed(kind: str, replicas: int = 2) -> Scripted:
    """From 10 s on, another class."""

    def script(now: float, load: FunctionLoad) -> Plan | None:
        if now == 0:
            return plan("f", 1, 2)
        return plan("f", 2, replicas, kind=kind, cpu=0.5) if now == 10 else load.plan

    return Scripted(script)


def test_executions_take_longer_while_instances_load_beside() -> None:
    """Two load from 10 s to 12 s on the server of the first, each of which takes a quarter more."""

    def script(now: float, load: FunctionLoad) -> Plan | None:
        if load.name == "g":
            return plan("g", 1 + (now >= 10), 2 * (now >= 10), cpu=2.0)
        return load.plan or plan("f", 1, cpu=2.0)

    model = linear(0.4, load_s=LOAD_S)
    served = function(At((8.0, 10.5, 14.0)), model, name="f")
    loads = function(At(()), model, name="g")

    def slowest_ms(*nodes: Node) -> float:
        scenario = of(served, loads, horizon_s=20.0, nodes=nodes)
        result = run(scenario, Scripted(script), loading_slows=0.25)
        found: float = result["functions"]["f"]["latency_ms"]["mean"]
        return 3 * found - 2 * 400.0

    assert pytest.approx(1.5 * 400.0) == slowest_ms()
    assert pytest.approx(1.5 * 400.0) == slowest_ms(Node("n", cpu=6.0))
    assert pytest.approx(400.0) == slowest_ms(Node("n", cpu=2.0), Node("m", cpu=4.0))


def test_a_change_of_sizes_leaves_no_gap() -> None:
    """The old instances serve until the new ones have loaded, and then they go."""
    result = run(of(function(Every(0.1, 20.0), MODEL), horizon_s=20.0), changed("b"))
    both_s = LOAD_S + HEARD_S + LEFT_S
    assert between(2 * 12.0 + 10.0, 2 * (10.0 + both_s) + 10.0) == result["cpu_core_s"]
    assert pytest.approx(EXEC_S * 1000) == result["latency_ms"]["mean"]
    assert 0 == result["cold_start_ratio"]


def test_a_class_of_the_same_name_and_another_size_is_another() -> None:
    """An instance cannot grow where it is: they are replaced, with one more than two at a time."""
    result = run(of(function(Every(0.1, 20.0), MODEL), horizon_s=20.0), changed("a"))
    first_s = 12.0 + LEFT_S
    old_s, new_s = first_s + first_s + LOAD_S, 10.0 + 8.0
    assert pytest.approx(old_s + 0.5 * new_s) == result["cpu_core_s"]


def test_where_there_is_no_place_for_one_more_an_old_one_goes_first() -> None:
    """Two of a core on two cores are replaced by others of a core: one at a time, with a gap."""

    def script(now: float, load: FunctionLoad) -> Plan | None:
        if now == 0:
            return plan("f", 1, 2)
        return plan("f", 2, 2, batch=2) if now == 10 else load.plan

    model, nodes = function(Every(0.1, 30.0), MODEL), [Node("n", cpu=2.0)]
    result = run(of(model, horizon_s=30.0, nodes=nodes), Scripted(script))
    assert 0 == result["cold_start_ratio"]
    assert between(2 * 30.0 - 2 * HEARD_S, 2 * 30.0) == result["cpu_core_s"]


def test_a_released_instance_gives_back_what_it_has() -> None:
    """Two requests are being executed when the plan takes one instance away."""
    slow = function(At((9.0, 9.1)), linear(2.0))
    policy = Scripted(lambda now, _: plan("f", 1 + (now >= 10), 2 - (now >= 10)))
    result = run(of(slow, horizon_s=20.0), policy)
    assert 2 == result["done"]
    assert pytest.approx(2000.0) == result["latency_ms"]["mean"]
    assert between(31.0, 30.0 + HEARD_S + LEFT_S) == result["cpu_core_s"]


def test_idle_instances_go_when_their_keep_alive_is_over() -> None:
    """Used until 1.05 s and kept for 5 s; loaded again for the request at 20 s, which is cold."""
    policy = Constant(Constant.Params(), keep_alive_s=5.0)
    result = run(of(function(At((1.0, 20.0)), MODEL), horizon_s=40.0), policy)
    least_s, later_s = 6.05 + (LOAD_S + 5.0), 2 * (HEARD_S + LEFT_S)
    assert between(least_s, least_s + later_s) == result["cpu_core_s"]
    assert pytest.approx(0.5) == result["cold_start_ratio"]
    idle_s = least_s - LOAD_S - 2 * EXEC_S
    assert between(idle_s, idle_s + later_s) == result["idle_core_s"]


def test_a_kept_instance_serves_again_when_a_plan_wants_it() -> None:
    """Released at 10 s, wanted again at 20 s, within its keep-alive: nothing loads."""

    def script(now: float, _: FunctionLoad) -> Plan:
        return plan("f", 1 + round(2 * now), 0 if 10 <= now < 20 else 1, keep_alive_s=30.0)

    result = run(of(function(At((1.0, 21.0)), MODEL), horizon_s=30.0), Scripted(script))
    assert 0 == result["cold_start_ratio"]
    assert pytest.approx(30.0) == result["cpu_core_s"]


def test_a_kept_instance_serves_at_once_when_no_other_is_there() -> None:
    """The plan wants none any more, and a request comes before the next round."""

    def script(now: float, _: FunctionLoad) -> Plan:
        return plan("f", 1 + round(1000 * now), 0 if now >= 10 else 1, keep_alive_s=30.0)

    result = run(of(function(At((1.0, 15.0)), MODEL), horizon_s=20.0), Scripted(script))
    assert pytest.approx(EXEC_S * 1000) == result["latency_ms"]["mean"]


def test_without_a_keep_alive_what_is_not_wanted_goes_at_once() -> None:
    """One instance until 10 s, and as long as it takes to leave."""
    policy = Scripted(lambda now, _: plan("f", 1 + (now >= 10), 1 - (now >= 10)))
    result = run(of(function(At((1.0,)), MODEL), horizon_s=30.0), policy)
    assert between(10.0, 10.0 + HEARD_S + LEFT_S) == result["cpu_core_s"]


def test_a_prewarmed_instance_is_there_when_its_time_has_come() -> None:
    """The first comes to an idle function, which has none; 10 s after it was served there is one.

    It loads before, serves the second, and so there is a third, which goes 20 s after last use.
    """
    policy = Constant(Constant.Params(), prewarm_s=10.0, keep_alive_s=20.0)
    result = run(of(function(At((1.0, 15.0)), MODEL), horizon_s=60.0), policy)
    assert pytest.approx(0.5) == result["cold_start_ratio"]
    least_s = sum([LOAD_S, 15.05 - 11.05 - HEARD_S, 35.05 - 23.05 - HEARD_S])
    most_s = least_s + 3 * (HEARD_S + LEFT_S) + 2 * HEARD_S
    assert between(least_s, most_s) == result["cpu_core_s"]


def test_an_instance_is_prewarmed_though_no_plan_asks_for_it() -> None:
    """Rounds see no requests and plan none; the prewarm time holds all the same.

    The first request is cold, as an idle function has no instance.
    """

    def script(now: float, load: FunctionLoad) -> Plan:
        wanted = 1 if load.rate_rps else 0
        return plan("f", 1 + round(1000 * now), wanted, prewarm_s=35.0, keep_alive_s=50.0)

    result = run(of(function(At((1.0, 41.0)), MODEL), horizon_s=45.0), Scripted(script))
    assert pytest.approx(0.5) == result["cold_start_ratio"]


def test_a_function_at_zero_is_planned_for_when_a_request_comes() -> None:
    """Out of turn: the next round would be too late."""

    def script(now: float, load: FunctionLoad) -> Plan:
        return plan("f", 1 + round(1000 * now), 1 if load.rate_rps else 0)

    result = run(of(function(At((13.0,)), MODEL), horizon_s=20.0), Scripted(script), cold=True)
    soon_s = 0.3  # reports and rounds of a function that waits do not wait for their turn
    expected = between((LOAD_S + EXEC_S) * 1000, (LOAD_S + EXEC_S + soon_s) * 1000)
    assert expected == result["latency_ms"]["mean"]
    assert 1 == result["cold_start_ratio"]


def test_what_was_not_promised_is_refused_and_asked_for_again() -> None:
    """Three of a core beside another on three: two are there, and the third when that one goes.

    No one starts with all at once, as the provider refuses what it cannot promise as a whole.
    """

    def script(now: float, load: FunctionLoad) -> Plan:
        if load.name == "g":
            return plan("g", 1 + (now >= 20), 1 - (now >= 20))
        return load.plan or plan("f", 1, 3)

    functions = [function(At((1.0,)), MODEL, name=name) for name in "gf"]
    nodes = [Node("n", cpu=3.0)]
    policy = Scripted(script)
    result = run(of(*functions, horizon_s=60.0, nodes=nodes), policy)
    seen = [
        (s.now_s, s.functions[1].instances["a"]) for s in policy.seen if s.functions[1].instances
    ]
    counts = [there.ready + there.loading for at_s, there in seen if at_s < 20]
    assert (1, 2) == (counts[0], max(counts))
    last = seen[-1][1]
    assert (3, 0) == (last.ready, last.loading)
    assert between(20.0, 20.0 + HEARD_S + LEFT_S) == result["functions"]["g"]["cpu_core_s"]


def test_an_instance_waits_for_the_place_of_one_that_is_on_its_way_out() -> None:
    """What was promised to another already: its place is free when the old one is gone."""

    def script(now: float, load: FunctionLoad) -> Plan:
        later = now >= 10
        if load.name == "g":
            return plan("g", 1 + later, 1 - later)
        return plan("f", 1 + later, 2 + later)

    functions = [function(At((1.0,)), MODEL, name=name) for name in "gf"]
    result = run(of(*functions, horizon_s=20.0, nodes=[Node("n", cpu=3.0)]), Scripted(script))
    assert between(3 * 20.0 - 4 * HEARD_S, 3 * 20.0) == result["cpu_core_s"]


def test_a_policy_sees_what_is_placed() -> None:
    """The cluster in a snapshot holds the instances there are."""
    policy = Scripted(lambda _, load: load.plan or plan(load.name, 1, 3))
    nodes = [Node("n", cpu=4.0)]
    scenario = of(function(At((1.0,)), MODEL), horizon_s=20.0, nodes=nodes)
    run(scenario, policy, interval_s=10.0)
    clusters = [snapshot.cluster for snapshot in policy.seen]
    assert [0, 3] == [len(cluster) for cluster in clusters if cluster is not None]


def test_a_policy_sees_measured_rates() -> None:
    """The expected rate at first, then what came in the window."""
    policy = Scripted(lambda _, load: load.plan or plan(load.name, 1, 1))
    run(of(function(Every(0.1, 30.0), MODEL), horizon_s=30.0), policy, window_s=20.0)
    first, *_, last = [snapshot.functions[0].rate_rps for snapshot in policy.seen]
    assert pytest.approx((1.0, 10.0), rel=0.02) == (first, last)


def test_fragmentation_is_of_the_servers_in_use() -> None:
    """Three of four cores of one of two servers."""
    nodes = [Node("n", cpu=4.0), Node("m", cpu=4.0)]
    policy = Constant(Constant.Params(replicas=3))
    result = run(of(function(At((1.0,)), MODEL), horizon_s=20.0, nodes=nodes), policy)
    assert pytest.approx(0.25) == result["fragmentation"]


@pytest.mark.parametrize(
    ("billing", "expected"), [("pay-per-use", 3 * EXEC_S + 3 * 0.01), ("reserved", 2 * 20.0)]
)
def test_cost_is_what_the_billing_rule_says(billing: str, expected: float) -> None:
    """By executions and calls, or by the lives of instances."""
    prices = Prices(billing, cpu_core_s=1.0, call=0.01)
    calls = function(At((1.0, 2.0, 3.0)), MODEL)
    result = run(of(calls, horizon_s=20.0, prices=prices), Constant(Constant.Params(replicas=2)))
    assert pytest.approx(expected) == result["cost"]
    assert pytest.approx(1000 * expected / 3) == result["cost_per_1k"]


def test_requests_per_resource_counts_cores_and_gpus() -> None:
    """Ten requests in 20 s on two cores and a tenth of a GPU."""
    policy = Constant(Constant.Params(), cpu=2.0, gpu=10.0)
    nodes = [Node("n", cpu=4.0, gpus=1)]
    result = run(of(function(Every(1.0, 10.0), MODEL), horizon_s=20.0, nodes=nodes), policy)
    assert pytest.approx(10 / (20 * (64 / 142 * 2 + 10))) == result["rps_per_resource"]


def test_a_queue_that_is_full_refuses() -> None:
    """One executes, two wait, the fourth is refused."""
    slow = function(At((1.0, 1.1, 1.2, 1.3)), linear(5.0))
    result = run(of(slow, horizon_s=30.0), Constant(Constant.Params()), queue_max=2)
    assert (3, 1) == (result["done"], result["refused"])


def test_late_is_not_in_time() -> None:
    """Done, and after the objective."""
    slow = function(Poisson(0.5), linear(1.0), slo_s=0.9)
    result = run(of(slow, horizon_s=60.0), Constant(Constant.Params(replicas=50)))
    assert result["requests"] == result["done"]
    assert 1 == result["slo_miss_ratio"]
