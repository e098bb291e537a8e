"""Life cycle of simulated instances: loading, plan changes, keep-alive, prewarming, placement."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from carpool.arrivals.processes import Poisson
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
    """Return a value that compares equal to amounts from ``least`` to ``most``."""
    return pytest.approx((least + most) / 2, abs=(most - least) / 2 + 1e-9)


def test_requests_before_instance_has_loaded_are_cold() -> None:
    """With a request every 0.5 s and 2 s to load, exactly three requests are cold."""
    result = run(
        of(function(Every(0.5, 10.0), MODEL), horizon_s=20.0),
        Constant(Constant.Params()),
        cold=True,
    )
    assert pytest.approx(3 / 20) == result["cold_start_ratio"]
    assert 20 == result["done"]


def test_simulation_starts_warm_by_default() -> None:
    """By default, no request waits for the first plan's instances."""
    result = run(of(function(Every(0.5, 10.0), MODEL), horizon_s=20.0), Constant(Constant.Params()))
    assert 0 == result["cold_start_ratio"]
    assert pytest.approx(EXEC_S * 1000) == result["latency_ms"]["mean"]


def test_loading_instance_without_waiting_requests_is_no_cold_start() -> None:
    """A second instance that loads while the first serves all requests makes no cold start."""
    policy = Scripted(lambda now, _: plan("f", 1 + (now >= 10), 1 + (now >= 10)))
    result = run(of(function(Every(0.5, 20.0), MODEL), horizon_s=20.0), policy)
    assert 0 == result["cold_start_ratio"]
    assert pytest.approx(20.0 + 10.0) == result["cpu_core_s"]


def test_requests_without_instance_are_cold_and_late() -> None:
    """Requests without any instance are held beyond the objective and count as cold and late."""
    soon = function(At((1.0, 1.1)), MODEL, slo_s=0.5)
    result = run(of(soon, horizon_s=5.0), Constant(Constant.Params()), cold=True)
    assert 2 == result["done"]
    assert 1 == result["cold_start_ratio"] == result["slo_miss_ratio"]


def changed(kind: str, replicas: int = 2) -> Scripted:
    """Return a policy that changes to another class at 10 s."""

    def script(now: float, load: FunctionLoad) -> Plan | None:
        if now == 0:
            return plan("f", 1, 2)
        return plan("f", 2, replicas, kind=kind, cpu=0.5) if now == 10 else load.plan

    return Scripted(script)


def test_executions_slow_down_while_instances_load_on_same_server() -> None:
    """Each instance that loads on the same server makes executions take a quarter longer."""

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


def test_old_instances_serve_until_new_sizes_have_loaded() -> None:
    """The old instances serve until the new ones have loaded, and are then released."""
    result = run(of(function(Every(0.1, 20.0), MODEL), horizon_s=20.0), changed("b"))
    both_s = LOAD_S + HEARD_S + LEFT_S
    assert between(2 * 12.0 + 10.0, 2 * (10.0 + both_s) + 10.0) == result["cpu_core_s"]
    assert pytest.approx(EXEC_S * 1000) == result["latency_ms"]["mean"]
    assert 0 == result["cold_start_ratio"]


def test_instances_are_replaced_when_class_changes_size() -> None:
    """Instances whose class changes size are replaced, with one extra instance at a time."""
    result = run(of(function(Every(0.1, 20.0), MODEL), horizon_s=20.0), changed("a"))
    first_s = 12.0 + LEFT_S
    old_s, new_s = first_s + first_s + LOAD_S, 10.0 + 8.0
    assert pytest.approx(old_s + 0.5 * new_s) == result["cpu_core_s"]


def test_full_server_releases_old_instance_before_loading_new_one() -> None:
    """On a full server, instances are replaced one at a time, the old one released first."""

    def script(now: float, load: FunctionLoad) -> Plan | None:
        if now == 0:
            return plan("f", 1, 2)
        return plan("f", 2, 2, batch=2) if now == 10 else load.plan

    model, nodes = function(Every(0.1, 30.0), MODEL), [Node("n", cpu=2.0)]
    result = run(of(model, horizon_s=30.0, nodes=nodes), Scripted(script))
    assert 0 == result["cold_start_ratio"]
    assert between(2 * 30.0 - 2 * HEARD_S, 2 * 30.0) == result["cpu_core_s"]


def test_released_instance_completes_requests_in_flight() -> None:
    """When the plan removes an instance, its requests in flight still complete."""
    slow = function(At((9.0, 9.1)), linear(2.0))
    policy = Scripted(lambda now, _: plan("f", 1 + (now >= 10), 2 - (now >= 10)))
    result = run(of(slow, horizon_s=20.0), policy)
    assert 2 == result["done"]
    assert pytest.approx(2000.0) == result["latency_ms"]["mean"]
    assert between(31.0, 30.0 + HEARD_S + LEFT_S) == result["cpu_core_s"]


def test_idle_instance_is_released_after_keep_alive() -> None:
    """An instance is released 5 s after its last use, so the request at 20 s is cold."""
    policy = Constant(Constant.Params(), keep_alive_s=5.0)
    result = run(of(function(At((1.0, 20.0)), MODEL), horizon_s=40.0), policy)
    least_s, later_s = 6.05 + (LOAD_S + 5.0), 2 * (HEARD_S + LEFT_S)
    assert between(least_s, least_s + later_s) == result["cpu_core_s"]
    assert pytest.approx(0.5) == result["cold_start_ratio"]
    idle_s = least_s - LOAD_S - 2 * EXEC_S
    assert between(idle_s, idle_s + later_s) == result["idle_core_s"]


def test_kept_instance_serves_without_loading_when_wanted_again() -> None:
    """An instance wanted again within its keep-alive serves without loading."""

    def script(now: float, _: FunctionLoad) -> Plan:
        return plan("f", 1 + round(2 * now), 0 if 10 <= now < 20 else 1, keep_alive_s=30.0)

    result = run(of(function(At((1.0, 21.0)), MODEL), horizon_s=30.0), Scripted(script))
    assert 0 == result["cold_start_ratio"]
    assert pytest.approx(30.0) == result["cpu_core_s"]


def test_kept_instance_serves_although_plan_wants_none() -> None:
    """A kept instance serves at once, although the current plan wants none."""

    def script(now: float, _: FunctionLoad) -> Plan:
        return plan("f", 1 + round(1000 * now), 0 if now >= 10 else 1, keep_alive_s=30.0)

    result = run(of(function(At((1.0, 15.0)), MODEL), horizon_s=20.0), Scripted(script))
    assert pytest.approx(EXEC_S * 1000) == result["latency_ms"]["mean"]


def test_unwanted_instance_is_released_immediately_without_keep_alive() -> None:
    """Without a keep-alive, an instance that is not wanted is released at once."""
    policy = Scripted(lambda now, _: plan("f", 1 + (now >= 10), 1 - (now >= 10)))
    result = run(of(function(At((1.0,)), MODEL), horizon_s=30.0), policy)
    assert between(10.0, 10.0 + HEARD_S + LEFT_S) == result["cpu_core_s"]


def test_prewarmed_instance_is_ready_when_due() -> None:
    """Only the first request is cold, as an instance is loaded to be ready 10 s after each use.

    After the second request one more is loaded, which is released 20 s after the last use.
    """
    policy = Constant(Constant.Params(), prewarm_s=10.0, keep_alive_s=20.0)
    result = run(of(function(At((1.0, 15.0)), MODEL), horizon_s=60.0), policy)
    assert pytest.approx(0.5) == result["cold_start_ratio"]
    least_s = sum([LOAD_S, 15.05 - 11.05 - HEARD_S, 35.05 - 23.05 - HEARD_S])
    most_s = least_s + 3 * (HEARD_S + LEFT_S) + 2 * HEARD_S
    assert between(least_s, most_s) == result["cpu_core_s"]


def test_instance_is_prewarmed_although_plan_wants_none() -> None:
    """The prewarm time holds even if the plan wants no instance.

    The first request is cold, as an idle function has no instance.
    """

    def script(now: float, load: FunctionLoad) -> Plan:
        wanted = 1 if load.rate_rps else 0
        return plan("f", 1 + round(1000 * now), wanted, prewarm_s=35.0, keep_alive_s=50.0)

    result = run(of(function(At((1.0, 41.0)), MODEL), horizon_s=45.0), Scripted(script))
    assert pytest.approx(0.5) == result["cold_start_ratio"]


def test_request_at_zero_instances_triggers_planning_round() -> None:
    """A request to a function without instances triggers a planning round at once."""

    def script(now: float, load: FunctionLoad) -> Plan:
        return plan("f", 1 + round(1000 * now), 1 if load.rate_rps else 0)

    result = run(of(function(At((13.0,)), MODEL), horizon_s=20.0), Scripted(script), cold=True)
    soon_s = 0.3  # reports and rounds of a function that waits do not wait for their turn
    expected = between((LOAD_S + EXEC_S) * 1000, (LOAD_S + EXEC_S + soon_s) * 1000)
    assert expected == result["latency_ms"]["mean"]
    assert 1 == result["cold_start_ratio"]


def test_unplaced_instance_is_requested_again() -> None:
    """An instance without a place is requested again and starts when another function leaves.

    No function starts with all its instances at once, as the provider refuses a request that it
    cannot grant as a whole.
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


def test_instance_waits_until_departing_one_frees_its_place() -> None:
    """An instance whose place is still occupied starts when the departing one is gone."""

    def script(now: float, load: FunctionLoad) -> Plan:
        later = now >= 10
        if load.name == "g":
            return plan("g", 1 + later, 1 - later)
        return plan("f", 1 + later, 2 + later)

    functions = [function(At((1.0,)), MODEL, name=name) for name in "gf"]
    result = run(of(*functions, horizon_s=20.0, nodes=[Node("n", cpu=3.0)]), Scripted(script))
    assert between(3 * 20.0 - 4 * HEARD_S, 3 * 20.0) == result["cpu_core_s"]


def test_snapshot_holds_current_instances() -> None:
    """The cluster in a snapshot holds the current instances."""
    policy = Scripted(lambda _, load: load.plan or plan(load.name, 1, 3))
    nodes = [Node("n", cpu=4.0)]
    scenario = of(function(At((1.0,)), MODEL), horizon_s=20.0, nodes=nodes)
    run(scenario, policy, interval_s=10.0)
    clusters = [snapshot.cluster for snapshot in policy.seen]
    assert [0, 3] == [len(cluster) for cluster in clusters if cluster is not None]


def test_a_policy_sees_measured_rates() -> None:
    """A policy sees the expected rate at first, then the rate measured in the window."""
    policy = Scripted(lambda _, load: load.plan or plan(load.name, 1, 1))
    run(of(function(Every(0.1, 30.0), MODEL), horizon_s=30.0), policy, window_s=20.0)
    first, *_, last = [snapshot.functions[0].rate_rps for snapshot in policy.seen]
    assert pytest.approx((1.0, 10.0), rel=0.02) == (first, last)


def test_fragmentation_counts_only_servers_in_use() -> None:
    """Fragmentation counts only servers in use: three of four cores of one server give 0.25."""
    nodes = [Node("n", cpu=4.0), Node("m", cpu=4.0)]
    policy = Constant(Constant.Params(replicas=3))
    result = run(of(function(At((1.0,)), MODEL), horizon_s=20.0, nodes=nodes), policy)
    assert pytest.approx(0.25) == result["fragmentation"]


@pytest.mark.parametrize(
    ("billing", "expected"), [("pay-per-use", 3 * EXEC_S + 3 * 0.01), ("reserved", 2 * 20.0)]
)
def test_cost_follows_billing_rule(billing: str, expected: float) -> None:
    """Cost is by executions and calls, or by the lifetimes of instances."""
    prices = Prices(billing, cpu_core_s=1.0, call=0.01)
    calls = function(At((1.0, 2.0, 3.0)), MODEL)
    result = run(of(calls, horizon_s=20.0, prices=prices), Constant(Constant.Params(replicas=2)))
    assert pytest.approx(expected) == result["cost"]
    assert pytest.approx(1000 * expected / 3) == result["cost_per_1k"]


def test_requests_per_resource_counts_cores_and_gpus() -> None:
    """Requests per resource weigh both cores and GPU shares."""
    policy = Constant(Constant.Params(), cpu=2.0, gpu=10.0)
    nodes = [Node("n", cpu=4.0, gpus=1)]
    result = run(of(function(Every(1.0, 10.0), MODEL), horizon_s=20.0, nodes=nodes), policy)
    assert pytest.approx(10 / (20 * (64 / 142 * 2 + 10))) == result["rps_per_resource"]


def test_full_queue_refuses_requests() -> None:
    """With one request executing and two waiting, the fourth is refused."""
    slow = function(At((1.0, 1.1, 1.2, 1.3)), linear(5.0))
    result = run(of(slow, horizon_s=30.0), Constant(Constant.Params()), queue_max=2)
    assert (3, 1) == (result["done"], result["refused"])


def test_late_completion_counts_as_miss() -> None:
    """A request completed after its objective counts as a miss."""
    slow = function(Poisson(0.5), linear(1.0), slo_s=0.9)
    result = run(of(slow, horizon_s=60.0), Constant(Constant.Params(replicas=50)))
    assert result["requests"] == result["done"]
    assert 1 == result["slo_miss_ratio"]
