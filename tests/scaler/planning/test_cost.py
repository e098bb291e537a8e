"""Prices and billing rules."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.latency import Resources
from carpool.latency.coefficients import Curve
from scaler.planning.cost import BillingRule, FunctionCompute, PayPerUse, Prices, Reserved, billing

# Prices of the HarmonyBatch artefact, CNY, and of its paper (IWQoS'24), USD.
ARTEFACT = Prices("function-compute", 9e-5, 9e-6, 1.1e-4, call=9e-7)
PAPER = Prices(cpu_core_s=1.3e-5, gpu_gb_s=1.5e-5, call=1.3e-7)
# VGG-19 from the same artefact: mean latency on cores for batches of 1 and 2, memory, whole GPU.
MEAN = {
    1: Curve(1.8260695578676214, 0.5283726420022545, 0.18015427168547402),
    2: Curve(4.849070286817897, 0.4322505914521466, 0.3644750704985931),
}
GPU_PER_ITEM_S, GPU_BASE_S = 0.001679844365532822, 0.002113091944793135


def memory_mb(batch: int) -> float:
    """Return the memory in MB that VGG-19 needs on a CPU."""
    return 36.57142857 * batch + 807.6190476


def on_cores(rule: BillingRule, batch: int, cores: float) -> float:
    """Return the cost of a request on this number of cores."""
    size = Resources(cores, memory_mb=memory_mb(batch))
    return rule.execution(size, MEAN[batch].at(cores)) / batch


def on_gpu(rule: BillingRule, batch: int, gigabytes: int, exec_s: float = 0.3) -> float:
    """Return the cost of a request on a share of a GPU."""
    size = Resources(gigabytes / 3, 100 * gigabytes / 24, 512, gigabytes)
    return rule.execution(size, exec_s) / batch


def test_pay_per_use_of_memory() -> None:
    """Costs are those of BATCH (SC'20), Eq. 1: 2 s on 1.5 GB, for a batch of 4 and unbatched."""
    rule = PayPerUse(Prices(memory_gb_s=1.66667e-5, call=2e-7))
    size = Resources(1, memory_mb=1.5 * 1024)
    assert pytest.approx(1.2550025e-5, rel=1e-12) == rule.execution(size, 2.0) / 4
    assert pytest.approx(5.02001e-5, rel=1e-12) == rule.execution(size, 2.0)
    assert 0.0 == rule.lifetime(size, 1000.0)


@pytest.mark.parametrize(
    ("exec_s", "step_s", "billed_s"),
    [(0.3, 0.1, 0.3), (0.31, 0.1, 0.4), (0.0001, 1.0, 1.0), (2.0, 1.0, 2.0), (0.31, 0, 0.31)],
)
def test_granularity_rounds_up(exec_s: float, step_s: float, billed_s: float) -> None:
    """Each execution is rounded up to whole steps, and a whole number of steps does not change."""
    rule = PayPerUse(Prices(cpu_core_s=1.0, cpu_billing_granularity_s=step_s))
    assert pytest.approx(billed_s) == rule.execution(Resources(1), exec_s)


def test_cpu_and_gpu_have_their_own_granularity() -> None:
    """An instance with a GPU is billed entirely at the GPU's granularity."""
    rule = PayPerUse(Prices(cpu_core_s=1.0, gpu_percent_s=0.1, gpu_billing_granularity_s=1.0))
    assert pytest.approx(0.5) == rule.execution(Resources(2), 0.25)
    assert pytest.approx(3.0) == rule.execution(Resources(2, 10), 0.25)


def test_gpu_share_is_priced_once() -> None:
    """A share of a GPU is priced by its memory if given, else by its percentage."""
    prices = Prices(gpu_gb_s=2.0, gpu_percent_s=3.0)
    assert 30.0 == prices.per_second(Resources(1, gpu=10))
    assert 8.0 == prices.per_second(Resources(1, gpu=10, gpu_gb=4))


def test_harmonybatch_eq_6_on_cores() -> None:
    """Theorem 1 for VGG-19 gives the cheapest cores, their price and the maximum at fewer cores."""
    rule = PayPerUse(PAPER)

    def cost(cores: float, batch: int = 1) -> float:
        return rule.execution(Resources(cores), MEAN[batch].at(cores)) / batch

    assert pytest.approx(5.7157e-6, rel=1e-5) == cost(1.59485)
    for batch, cheapest in ((1, 1.59485), (2, 1.51603)):
        assert cost(cheapest, batch) < min(cost(cheapest + d, batch) for d in (-1e-3, 1e-3))
    assert cost(0.73979) > max(cost(0.73979 + d) for d in (-1e-3, 1e-3))


@pytest.mark.parametrize("gigabytes", [2, 8])
def test_harmonybatch_eq_16_on_a_gpu(gigabytes: int) -> None:
    """Corrected Eq. 16 with Eq. 3 gives VGG-19's cost in batches of 13 on any share of a GPU."""
    exec_s = 24 / gigabytes * (GPU_PER_ITEM_S * 13 + GPU_BASE_S)
    size = Resources(0, 100 * gigabytes / 24, 512, gigabytes)
    assert pytest.approx(6.7326e-7, rel=1e-5) == PayPerUse(PAPER).execution(size, exec_s) / 13


def test_function_compute_prices_agree_with_published_plans() -> None:
    """Costs in CNY per request are those of the HarmonyBatch authors' code for VGG-19."""
    rule = FunctionCompute(ARTEFACT)
    assert pytest.approx(4.350e-5, abs=5e-9) == on_cores(rule, 1, 1.6)
    assert pytest.approx(4.456e-5, abs=5e-9) == on_cores(rule, 1, 1.945)
    assert pytest.approx(2.854e-4, abs=5e-8) == on_gpu(rule, 1, 2)


@pytest.mark.parametrize(
    ("shares", "total"),
    [
        pytest.param(((5, "c", 1, 1.55), (30, "c", 2, 1.5)), 3.940e-5, id="BATCH"),
        pytest.param(((5, "c", 1, 1.6), (30, "g", 13, 2)), 2.503e-5, id="HarmonyBatch"),
        pytest.param(((10, "c", 1, 1.6), (20, "g", 10, 2)), 3.3526e-5, id="four applications"),
    ],
)
def test_function_compute_totals(
    shares: tuple[tuple[float, str, int, float], ...], total: float
) -> None:
    """Totals over applications are those published in Table I and in the artefact's example."""
    rule = FunctionCompute(ARTEFACT)
    rates = sum(rate for rate, *_ in shares)
    costs = [
        rate * (on_cores(rule, batch, size) if device == "c" else on_gpu(rule, batch, int(size)))
        for rate, device, batch, size in shares
    ]
    assert pytest.approx(total, rel=2e-4) == sum(costs) / rates


@pytest.mark.parametrize(
    ("size", "sold"),
    [
        pytest.param(Resources(0.5, memory_mb=844), Resources(0.5, memory_mb=896), id="steps"),
        pytest.param(
            Resources(1.6, memory_mb=844), Resources(1.6, memory_mb=1664), id="a GB a core"
        ),
        pytest.param(
            Resources(0.1, memory_mb=4096), Resources(1, memory_mb=4096), id="4 GB a core"
        ),
        pytest.param(
            Resources(2, 25, 500, 6), Resources(2.0, 25, 512, 6), id="a core for 3 GB of a GPU"
        ),
        pytest.param(Resources(4, 25, 512), Resources(4, 25, 512), id="a GPU sold by percent"),
    ],
)
def test_function_compute_sizes_have_fixed_proportions(size: Resources, sold: Resources) -> None:
    """Cores, memory and GPU memory are sold in fixed proportions."""
    assert sold == FunctionCompute(ARTEFACT).sold(size)


def test_function_compute_granularity_can_be_set() -> None:
    """GPUs are billed in whole seconds unless the prices differ, and idle time is free."""
    size = Resources(0, 25, 0, 6)
    finer = FunctionCompute(Prices(gpu_gb_s=1.0, gpu_billing_granularity_s=0.1))
    assert pytest.approx(6 * 0.3) == finer.execution(size, 0.25)
    assert pytest.approx(6.0) == FunctionCompute(Prices(gpu_gb_s=1.0)).execution(size, 0.25)
    assert 0.0 == finer.lifetime(size, 10.0)


def test_reserved_instances_are_billed_by_lifetime() -> None:
    """A reserved instance is billed for its lifetime only, whatever it executes."""
    rule = Reserved(Prices(cpu_core_s=1.0, memory_gb_s=0.5, gpu_percent_s=0.1, call=7.0))
    assert 0.0 == rule.execution(Resources(2, 10, 2048), 5.0)
    assert pytest.approx((2 + 1 + 1) * 60) == rule.lifetime(Resources(2, 10, 2048), 60.0)


AMOUNTS = st.floats(0, 100)


@given(
    size=st.builds(Resources, AMOUNTS, AMOUNTS, st.floats(0, 1e5), st.floats(0, 24)),
    prices=st.builds(Prices, st.just("x"), *[st.floats(0, 1)] * 5, *[st.floats(0.001, 2)] * 2),
    times=st.tuples(st.floats(1e-6, 1e4), st.floats(1e-6, 1e4)),
)
def test_cost_is_monotone_in_time(
    size: Resources, prices: Prices, times: tuple[float, float]
) -> None:
    """Every rule is monotone in time, never negative, and never bills less than was used."""
    short_s, long_s = sorted(times)
    for rule in (PayPerUse(prices), Reserved(prices), FunctionCompute(prices)):
        assert 0 <= rule.execution(size, short_s) <= rule.execution(size, long_s)
        assert 0 <= rule.lifetime(size, short_s) <= rule.lifetime(size, long_s)
    used = prices.per_second(size) * short_s
    assert PayPerUse(prices).execution(size, short_s) >= used * (1 - 1e-6)


class Free:
    """A billing rule of another package, which bills nothing."""

    def __init__(self, prices: Prices) -> None:
        del prices

    def execution(self, size: Resources, exec_s: float) -> float:
        """Return 0."""
        del size, exec_s
        return 0.0

    def lifetime(self, size: Resources, alive_s: float) -> float:
        """Return 0."""
        del size, alive_s
        return 0.0


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("pay-per-use", PayPerUse),
        ("reserved", Reserved),
        ("function-compute", FunctionCompute),
    ],
)
def test_rules_are_found_by_name(name: str, rule: type) -> None:
    """The names in ``billing`` stand for the built-in rules."""
    assert type(billing(Prices(name))) is rule


def test_custom_billing_rule() -> None:
    """``pkg.module:Class`` names a custom rule."""
    rule = billing(Prices(f"{__name__}:Free", call=1.0))
    assert (0.0, 0.0) == (rule.execution(Resources(1.0), 1.0), rule.lifetime(Resources(1.0), 1.0))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pay-per-used", "expected one of pay-per-use, .*did you mean 'pay-per-use'"),
        ("no.such.module:Rule", "expected an importable pkg.module:Class"),
    ],
)
def test_an_unknown_rule_is_an_error(name: str, expected: str) -> None:
    """An unknown rule is refused, and the error names the nearest known one."""
    with pytest.raises(ConfigError, match=expected):
        billing(Prices(name))


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_invalid_prices_are_refused(value: float) -> None:
    """Negative and non-finite prices are refused with an error that names them."""
    with pytest.raises(ConfigError, match=r"gpu_gb_s = .*expected a number of at least 0"):
        Prices(gpu_gb_s=value)
