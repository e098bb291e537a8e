"""The operators latency model: learnt from profiles, corrected by measured runs."""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.latency import Configuration, LatencyModel, Resources
from carpool.predictor.fit import Errors, ThreadsAndGpu
from carpool.predictor.fit_json import from_json, to_json
from carpool.predictor.latency_model import OperatorLatencyModel
from carpool.predictor.profile import Setting
from tests.carpool.profiles import BATCHES, graph, learnt, operator_s, run_s

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("profiles")  # what is learnt from them is learnt once

UNSEEN = graph([333, 512, 700, 64], "unseen")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", BATCHES)
def test_an_unmeasured_network_is_predicted_from_its_operators(batch: int, threads: int) -> None:
    """The sum over a network's operators is right if others of their classes were measured."""
    model: LatencyModel = OperatorLatencyModel(UNSEEN, learnt())
    assert pytest.approx(run_s(UNSEEN, batch, threads), rel=0.1) == model.predict(batch, threads, 0)


def test_batches_beyond_twice_the_measured_ones_are_unknown() -> None:
    """Batches up to twice the largest measured one are known, for measured numbers of threads."""
    model = OperatorLatencyModel(UNSEEN, learnt())
    assert model.predict(11, 1, 0) is not None
    assert model.predict(32, 1, 0) is not None
    assert model.predict(33, 1, 0) is None
    assert model.predict(0, 1, 0) is None
    assert model.predict(4, 3, 0) is None
    assert model.predict(4, 0, 0) is None
    assert model.predict(4, 1, 50) is None
    assert model.interval(4, 3, 0) is None


def test_fractional_cores_lengthen_a_run() -> None:
    """Half a core takes twice as long, and 1.6 cores run two threads for longer."""
    model = OperatorLatencyModel(UNSEEN, learnt())
    one_s, two_s = (model.predict(4, cpu, 0) or math.nan for cpu in (1, 2))
    assert pytest.approx(2 * one_s) == model.predict(4, 0.5, 0)
    assert pytest.approx(two_s * 2 / 1.6) == model.predict(4, 1.6, 0)


def test_one_measured_run_corrects_every_other() -> None:
    """A run that is 30 % slower than predicted corrects the predictions for all sizes."""
    slow = {Setting(4, 1): run_s(UNSEEN, 4, 1, 1.3)}
    model = OperatorLatencyModel(UNSEEN, learnt(), runs=slow)
    for batch in BATCHES:
        for threads in (1, 2):
            expected = pytest.approx(run_s(UNSEEN, batch, threads, 1.3), rel=0.1)
            assert expected == model.predict(batch, threads, 0)
    assert pytest.approx(run_s(UNSEEN, 4, 1, 1.3)) == model.predict(4, 1, 0)


def test_a_correction_is_bounded() -> None:
    """A measurement that is a hundred times off changes predictions by a factor of four only."""
    plain = OperatorLatencyModel(UNSEEN, learnt()).predict(8, 1, 0) or math.nan
    model = OperatorLatencyModel(UNSEEN, learnt(), runs={Setting(4, 1): run_s(UNSEEN, 4, 1, 100.0)})
    assert pytest.approx(4 * plain) == model.predict(8, 1, 0)


def test_measured_operators_take_precedence_over_laws() -> None:
    """A measured time of an operator replaces that of its law."""
    unit = ThreadsAndGpu(1)
    known = {
        (operator.at(batch), unit): 3 * operator_s(operator.at(batch), 1)
        for operator in UNSEEN.operators
        for batch in (4, 8)
    }
    plain, model = (
        OperatorLatencyModel(UNSEEN, learnt()),
        OperatorLatencyModel(UNSEEN, learnt(), known),
    )
    for batch in (4, 6, 8, 16):
        ratio = (model.predict(batch, 1, 0) or 0) / (plain.predict(batch, 1, 0) or 1)
        assert pytest.approx(3, rel=0.1) == ratio
    assert plain.predict(4, 2, 0) == model.predict(4, 2, 0)


def test_branches_overlap_where_the_executor_runs_them_in_parallel() -> None:
    """With parallel execution, the longest path counts instead of the sum."""
    fit = learnt()
    chain = OperatorLatencyModel(UNSEEN, fit, parallel=True).predict(4, 1, 0)
    assert pytest.approx(OperatorLatencyModel(UNSEEN, fit).predict(4, 1, 0)) == chain
    branches = [dataclasses.replace(o, after=()) for o in UNSEEN.operators]
    apart = dataclasses.replace(UNSEEN, operators=branches)
    found = OperatorLatencyModel(apart, fit, parallel=True).predict(4, 1, 0)
    longest = max(operator_s(o.at(4), 1) for o in branches)
    assert pytest.approx(longest, rel=0.2) == found


@given(
    st.integers(1, 32),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.lists(st.floats(0.01, 0.999), min_size=2),
)
def test_higher_quantiles_are_never_quicker(batch: int, cpu: float, quantiles: list[float]) -> None:
    """A higher quantile never has a shorter latency."""
    model = OperatorLatencyModel(UNSEEN, learnt())
    found = [model.predict(batch, cpu, 0, quantile) or math.nan for quantile in sorted(quantiles)]
    assert sorted(found) == found


@given(st.integers(1, 32), st.sampled_from([1.0, 2.0]))
def test_the_interval_holds_the_prediction(batch: int, cpu: float) -> None:
    """The bounds of an interval are positive and in order."""
    model = OperatorLatencyModel(UNSEEN, learnt())
    interval, middle_s = model.interval(batch, cpu, 0), model.predict(batch, cpu, 0)
    assert interval is not None
    assert middle_s is not None
    assert 0 < interval.low_s <= interval.high_s


def test_short_runs_have_wider_intervals() -> None:
    """Short runs have wider intervals, as their overhead is known less well."""
    wide, narrow = Errors(plain=(-1.0, 1.0)), Errors(plain=(-0.1, 0.1))
    errors = {
        (ThreadsAndGpu(1), 0): wide,
        (ThreadsAndGpu(1), 1): narrow,
        (ThreadsAndGpu(1), 2): narrow,
    }
    fit = dataclasses.replace(learnt(), errors=errors)
    for net, low in ((graph([16, 16]), math.exp(-1.0)), (graph([4000] * 5), math.exp(-0.1))):
        model = OperatorLatencyModel(net, fit)
        interval, middle_s = model.interval(4, 1, 0), model.predict(4, 1, 0)
        assert interval is not None
        assert middle_s is not None
        assert pytest.approx(low) == interval.low_s / middle_s


def test_fingerprint_ignores_order_of_operators() -> None:
    """A fingerprint ignores the order of operators, as the optimiser's order of branches varies."""
    turned = dataclasses.replace(UNSEEN, operators=UNSEEN.operators[::-1], model="again")
    assert UNSEEN.fingerprint == turned.fingerprint
    assert UNSEEN.fingerprint != graph([333, 512, 700, 65]).fingerprint


def test_known_configurations_are_offered_to_planners() -> None:
    """Every batch is offered on whole cores, with the measured memory and load time."""
    model = OperatorLatencyModel(UNSEEN, learnt(), load_s=2.0, memory_mb=300.0)
    offered = list(model.configurations(3))
    assert [Configuration(b, c, 0.0) for c in (1.0, 2.0) for b in (1, 2, 3)] == offered
    assert Resources(1, 0, 300.0) == model.resources(4, 1, 0)
    assert 2.0 == model.load_s


def test_fixed_batch_size_is_predicted_at_that_size_only() -> None:
    """A model with a fixed batch size is predicted at that size only."""
    fixed = dataclasses.replace(UNSEEN, fixed_batch=4)
    model = OperatorLatencyModel(fixed, learnt())
    assert pytest.approx(OperatorLatencyModel(UNSEEN, learnt()).predict(4, 1, 0)) == model.predict(
        4, 1, 0
    )
    assert model.predict(2, 1, 0) is None


def test_fit_round_trips_as_text() -> None:
    """A fit is stored as text to six digits."""
    again = from_json(to_json(learnt()))
    expected = OperatorLatencyModel(UNSEEN, learnt()).predict(8, 2, 0, 0.99)
    assert pytest.approx(expected, rel=1e-4) == OperatorLatencyModel(UNSEEN, again).predict(
        8, 2, 0, 0.99
    )
    assert learnt().errors == again.errors


@pytest.mark.parametrize("text", ["{}", "[]", '{"laws": 1}', "nonsense"])
def test_text_that_is_not_a_fit_is_refused(text: str) -> None:
    """Text that is not a fit is an error."""
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


def test_unknown_operators_are_named() -> None:
    """An unmeasured operator is estimated from a similar one, and listed as estimated."""
    odd = dataclasses.replace(UNSEEN.operators[0], op_type="Mish")
    net = dataclasses.replace(UNSEEN, operators=[*UNSEEN.operators, odd])
    assert ["Mish"] == OperatorLatencyModel(net, learnt()).guessed()


def test_a_pickled_model_predicts_the_same_in_another_process(tmp_path: Path) -> None:
    """Measured operators are found after unpickling, even with another string hash seed."""
    unit = ThreadsAndGpu(1)
    known = {(o.at(4), unit): 3 * operator_s(o.at(4), 1) for o in UNSEEN.operators}
    fresh = graph([333, 512, 700, 64])  # it has no cases yet that could be pickled
    model = OperatorLatencyModel(fresh, learnt(), known, runs={Setting(8, 1): 0.01}, load_s=2.0)
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(model))
    expected = repr([model.predict(4, 1, 0), model.load_s])
    code = "import pickle, sys; model = pickle.load(open(sys.argv[1], 'rb'))"
    code += "; print([model.predict(4, 1, 0), model.load_s])"
    for seed in ("1", "2"):
        command = (sys.executable, "-c", code, str(path))
        env = {**os.environ, "PYTHONHASHSEED": seed}
        assert expected == subprocess.check_output(command, env=env, text=True).strip()
