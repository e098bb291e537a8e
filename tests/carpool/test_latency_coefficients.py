"""The coefficients latency model, with the numbers of VGG-19 in HarmonyBatch (IWQoS'24)."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.latency import Configuration, LatencyModel, Resources
from carpool.latency.coefficients import Coefficients, CpuCoefficients, Curve, GpuCoefficients
from carpool.latency.coefficients_file import read_coefficients

if TYPE_CHECKING:
    from pathlib import Path

    from tests.measured import Data

# Fitted by HarmonyBatch's authors for VGG-19 on Alibaba Function Compute; from their public
# artefact (MIT).
CPU = CpuCoefficients(
    mean_s={
        1: Curve(1.8260695578676214, 0.5283726420022545, 0.18015427168547402),
        2: Curve(4.849070286817897, 0.4322505914521466, 0.3644750704985931),
    },
    max_s={
        1: Curve(2.8046821487917626, 0.4861966854235096, 0.2486015254149421),
        2: Curve(4.9219043468043475, 0.48909337170637446, 0.3932803431571859),
    },
    memory_per_item_mb=36.57142857,
    memory_base_mb=807.6190476,
)
GPU = GpuCoefficients(
    per_item_s=0.001679844365532822,
    base_s=0.002113091944793135,
    time_slice_s=0.002,
    total_slices=24,
    batch_thresholds=(0,),
    memory_mb=512,
)
MODEL = Coefficients(CPU, GPU, load_s=1.5)


def percent(slices: float) -> float:
    """Return ``slices`` of 24 as a percentage of a GPU."""
    return 100 * slices / 24


@pytest.mark.parametrize(
    ("batch", "cores", "mean_s", "max_s"), [(1, 1.6, 0.26854, 0.35300), (2, 1.5, 0.51533, 0.62247)]
)
def test_latency_on_cores_is_eq_1(batch: int, cores: float, mean_s: float, max_s: float) -> None:
    """The mean and 99th percentile on a CPU follow their curves."""
    assert pytest.approx(mean_s, abs=5e-6) == MODEL.predict(batch, cores, 0)
    assert pytest.approx(max_s, abs=5e-6) == MODEL.predict(batch, cores, 0, 0.99)


@pytest.mark.parametrize(("slo_s", "cores"), [(0.5, 1.1727), (0.3, 1.9445)])
def test_objective_determines_minimum_cores(slo_s: float, cores: float) -> None:
    """For VGG-19 and batches of one, the maximum exceeds the SLO below this number of cores."""
    below, above = (MODEL.predict(1, cores + d, 0, 0.99) for d in (-1e-4, 1e-4))
    assert below is not None
    assert above is not None
    assert below > slo_s > above


def test_latency_on_a_share_of_a_gpu() -> None:
    """The worked numbers for 2 of 24 slices hold: whole GPU, exact mean, Eq. 4 with its margin."""
    assert pytest.approx(0.023951, abs=5e-7) == GPU.whole_s(13)
    assert pytest.approx(0.2677, abs=5e-5) == GPU.mean_s(13, 2)
    assert pytest.approx(0.28795, abs=5e-6) == GPU.max_s(13, 2) / 1.2
    assert pytest.approx(0.34554, abs=5e-6) == GPU.max_s(13, 2)
    assert pytest.approx(0.18987, abs=5e-6) == GPU.max_s(7, 2) / 1.2
    assert pytest.approx(0.22785, abs=5e-6) == MODEL.predict(7, 1, percent(2), 0.99)
    assert GPU.mean_s(13, 2) == MODEL.predict(13, 1, percent(2))


def printed_eq_3(batch: int, slices: int) -> float:
    """Return the mean as printed in the paper: whole-GPU latency divided by the share."""
    return GPU.total_slices / slices * GPU.whole_s(batch)


def test_eq_3_differs_from_mean_over_all_arrivals() -> None:
    """Eq. 3 gives .2874, but the mean over all arrivals is .2677 and the maximum .2880."""
    assert pytest.approx(0.28741, abs=5e-6) == printed_eq_3(13, 2)
    ratios = [printed_eq_3(b, m) / GPU.mean_s(b, m) for b in range(1, 33) for m in range(1, 24)]
    assert min(ratios) < 1.0
    assert max(ratios) > 1.2


@given(work=st.integers(1, 60), turn=st.integers(1, 12), pause=st.integers(0, 12))
def test_eq_4_and_mean_agree_with_counting_slices(work: int, turn: int, pause: int) -> None:
    """Minimum, mean and maximum equal those of counting slices for every arrival time."""
    gpu = GpuCoefficients(0.0, float(work), 1.0, turn + pause, max_margin=1.0)
    starts = range(turn + pause)
    latencies = [served(work, turn, pause, start) for start in starts]
    between = [
        (latency + following) / 2
        for latency, following in zip(
            [served(work, turn, pause, start + 1e-6) for start in starts],
            [served(work, turn, pause, start + 1 - 1e-6) for start in starts],
            strict=True,
        )
    ]
    assert pytest.approx(min(latencies)) == gpu.min_s(1, turn)
    assert pytest.approx(max(latencies)) == gpu.max_s(1, turn)
    assert pytest.approx(sum(between) / len(between), abs=1e-4) == gpu.mean_s(1, turn)


def served(work: float, turn: int, pause: int, arrived: float) -> float:
    """Return the seconds of a batch that arrives ``arrived`` after a turn began, slice by slice."""
    at, left = arrived, work
    while left > 1e-9:
        into = at % (turn + pause)
        if into < turn:
            step = min(left, turn - into)
            left -= step
        else:
            step = turn + pause - into
        at += step
    return at - arrived


def test_latency_on_whole_gpu_is_eq_2() -> None:
    """With every slice, mean and maximum are Eq. 2, without a margin."""
    assert pytest.approx(GPU.whole_s(8)) == MODEL.predict(8, 8, 100)
    assert pytest.approx(GPU.whole_s(8)) == MODEL.predict(8, 8, 100, 0.99)


def test_only_whole_slices_count() -> None:
    """Ten percent of 24 slices is two slices, and no share loses a slice by rounding."""
    assert MODEL.predict(4, 1, percent(2)) == MODEL.predict(4, 1, 10)
    assert list(range(1, 25)) == [GPU.slices(percent(slices)) for slices in range(1, 25)]


@given(
    batch=st.integers(1, 2),
    size=st.one_of(
        st.tuples(st.floats(0.05, 16), st.just(0.0)), st.tuples(st.just(1.0), st.floats(9, 100))
    ),
    quantiles=st.tuples(st.floats(0.001, 0.999), st.floats(0.001, 0.999)),
)
def test_a_higher_quantile_is_never_faster(
    batch: int, size: tuple[float, float], quantiles: tuple[float, float]
) -> None:
    """The latency grows with the quantile and is positive at each."""
    low, high = (MODEL.predict(batch, *size, quantile) for quantile in sorted(quantiles))
    assert low is not None
    assert high is not None
    assert 0 < low <= high


@pytest.mark.parametrize(
    ("batch", "cpu", "gpu"),
    [
        pytest.param(3, 1, 0, id="a batch size without coefficients"),
        pytest.param(0, 1, 0, id="no batch"),
        pytest.param(1, 0.01, 0, id="fewer cores than the formula holds for"),
        pytest.param(1, 16.5, 0, id="more cores"),
        pytest.param(33, 1, 50, id="a larger batch than the GPU formula holds for"),
        pytest.param(0, 1, 50, id="no batch on a GPU"),
        pytest.param(1, 1, percent(1), id="less GPU memory than the batch needs"),
        pytest.param(1, 1, percent(0.5), id="less than a slice"),
        pytest.param(1, 1, 101, id="more than a GPU"),
        pytest.param(1, 1, -5, id="a negative share"),
    ],
)
def test_sizes_outside_fitted_range_are_infeasible(batch: int, cpu: float, gpu: float) -> None:
    """The formulas are used only within the range for which they were fitted."""
    assert MODEL.predict(batch, cpu, gpu) is None


def test_device_without_coefficients_is_infeasible() -> None:
    """Without coefficients for a device, every size on it is infeasible."""
    assert Coefficients(None, GPU).predict(1, 1, 0) is None
    assert Coefficients(CPU, None).predict(1, 1, 50) is None
    assert {0.0} == {config.gpu for config in Coefficients(CPU, None).configurations(2)}
    assert 0.0 not in {config.gpu for config in Coefficients(None, GPU).configurations(2)}


def test_instance_memory_by_device() -> None:
    """Memory grows with the batch on a CPU; a GPU share is a fixed number of GB of its memory."""
    model: LatencyModel = MODEL
    assert pytest.approx(844.19, abs=0.005) == model.resources(1, 1.6, 0).memory_mb
    assert Resources(2 / 3, percent(2), 512, 2) == model.resources(13, 2 / 3, percent(2))
    assert 1.5 == model.load_s


def test_the_configurations_are_the_papers_search_space() -> None:
    """Cores go up to 16 in steps of .05; whole slices fit the batch, with a core per 3 GB."""
    offered = list(MODEL.configurations(32))
    assert 2 * 320 + 32 * 23 == len(offered)
    assert {Configuration(1, 0.05, 0), Configuration(2, 16, 0)} < set(offered)
    assert Configuration(32, 2 / 3, percent(2)) in offered
    assert Configuration(32, 1 / 3, percent(1)) not in offered
    assert all(MODEL.predict(*config) is not None for config in offered)
    assert {1} == {config.batch for config in MODEL.configurations(1)}


def test_more_gpu_memory_for_larger_batches() -> None:
    """A batch above each threshold needs another gigabyte."""
    gpu = GpuCoefficients(0.001, 0.01, 0.002, 24, batch_thresholds=(4, 16))
    assert [1, 1, 2, 2, 3] == [gpu.least_slices(batch) for batch in (1, 4, 5, 16, 17)]


FORM: dict[str, Any] = {
    "model": "small",
    "cpu": {
        "memory_mb": {"per_item": 10, "base": 100},
        "mean_s": [{"batch": 1, "scale": 1.0, "decay_cores": 0.5, "floor": 0.1}],
        "max_s": [{"batch": 1, "scale": 2.0, "decay_cores": 0.5, "floor": 0.2}],
    },
    "gpu": {"per_item_s": 1e-3, "base_s": 0.002, "time_slice_s": 0.002, "total_slices_gb": 24},
}


def test_a_file_is_read(tmp_path: Path) -> None:
    """A JSON file with tabs and exponents gives its coefficients."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps(FORM, indent="\t"))
    model = read_coefficients(path, load_s=4.0)
    assert pytest.approx(math.exp(-2) + 0.1) == model.predict(1, 1, 0)
    assert pytest.approx(0.004) == model.predict(2, 8, 100)
    assert 4.0 == model.load_s


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"floor": 0.1', '"floor": -0.1', r":13: cpu.mean_s\[0\].floor = '-0.1': expected a n"),
        ('"floor": 0.1', '"floors": 0.1', r":13: .*did you mean 'floor'"),
        ('"base": 100', '"base": "much"', r"cpu.memory_mb.base = 'much': expected a number"),
        ('"total_slices_gb": 24', '"total_slices_gb": 0.5', "expected a whole number of at least"),
        ('"cpu": {', '"cpus": {', r":3: cpus = .*did you mean 'cpu'"),
        ('"batch": 1', '"batch": 2', r"a row for batch 1, as cpu.max_s has one"),
        ('"model": "small",', '"model": "small"', r":3 = .*expected valid YAML"),
        ('"model": "small",', '"model": "small", "model": "x",', "expected each key once"),
        ('"base_s": 0.002', '"base_s": -0.001', r"gpu.base_s = '-0.001': expected more than -per"),
        (
            '"time_slice_s"',
            '"batch_thresholds_for_extra_gb": [4, 2], "time_slice_s"',
            "batch_thresholds_for_extra_gb = '4, 2': expected batch sizes in ascending order",
        ),
    ],
)
def test_file_error_has_line_value_and_expectation(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    """An error in a file is reported with its line, value and expectation."""
    path = tmp_path / "small.json"
    text = json.dumps(FORM, indent=1)
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=expected):
        read_coefficients(path)


def test_negative_base_is_accepted_if_latencies_are_positive(tmp_path: Path) -> None:
    """A fitted base may be negative if latencies are positive: -0.45 ms and 1 ms per request."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps(FORM).replace('"base_s": 0.002', '"base_s": -0.00045'))
    model = read_coefficients(path)
    assert pytest.approx(0.00055) == model.predict(1, 8, 100)
    assert all((model.predict(*config, 0.01) or 0) > 0 for config in model.configurations(32))


def test_file_without_cpu_or_gpu_coefficients_is_refused(tmp_path: Path) -> None:
    """A file must have coefficients for a CPU or a GPU."""
    path = tmp_path / "small.json"
    path.write_text('{"model": "none"}')
    with pytest.raises(ConfigError, match="expected coefficients for cpu, gpu or both"):
        read_coefficients(path)


def test_published_file_has_cpu_and_gpu_coefficients(data: Data) -> None:
    """The published file has the coefficients above, and batches up to 4 on a CPU."""
    model = read_coefficients(data.coefficients)
    assert model.gpu is not None
    assert model.cpu is not None
    assert data.either([1, 2, 4], [1, 2, 3, 4]) == sorted(model.cpu.mean_s)
    assert len(model.cpu.mean_s) * 320 + 32 * 23 == len(list(model.configurations(32)))
    if data.measured:
        assert GPU == model.gpu
        assert CPU.mean_s.items() <= model.cpu.mean_s.items()
        assert CPU.max_s.items() <= model.cpu.max_s.items()
