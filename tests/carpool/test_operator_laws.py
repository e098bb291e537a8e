"""Operators' classes, sizes and terms, and the least squares behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.onnx_graph.operator_graph import Case, TensorShape
from carpool.predictor.features import sized
from carpool.predictor.least_squares import non_negative
from carpool.predictor.roofline_terms import BOUNDS, TERMS, terms
from carpool.predictor.thread_scaling import divided, shared

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = {
    "dense": ("Gemm", "{}", "f32[8,512];f32[512,256]=;f32[256]=>f32[8,256]"),
    "product": ("MatMul", "{}", "f32[8,4,64,32];f32[8,4,32,64]>f32[8,4,64,64]"),
    "conv direct": (
        "nchwc.Conv",
        '{"pads":[1,1,1,1],"strides":[1,1],"group":1}',
        "f32[2,64,56,56];f32[64,64,3,3]=;f32[64]=>f32[2,64,56,56]",
    ),
    "conv pointwise": ("nchwc.Conv", "{}", "f32[2,64,56,56];f32[32,64,1,1]=>f32[2,32,56,56]"),
    "conv first": ("nchwc.Conv", "{}", "f32[2,3,224,224];f32[32,3,3,3]=>f32[2,32,222,222]"),
    "conv depthwise": (
        "nchwc.Conv",
        '{"group":64}',
        "f32[2,64,56,56];f32[64,1,3,3]=>f32[2,64,54,54]",
    ),
    "conv unfolded plain": ("Conv", "{}", "f32[2,64,180];f32[100,64,3]=>f32[2,100,178]"),
    "conv unfolded plain tall": ("Conv", "{}", "f32[2,64,80];f32[100,64,3]=>f32[2,100,78]"),
    "conv unfolded plain vector": ("Conv", "{}", "f32[2,7,3,3];f32[100,7,3,3]=>f32[2,100,1,1]"),
    "LSTM": ("LSTM", "{}", "f32[48,2,160];f32[1,1024,160]=;f32[1,1024,256]=>f32[48,1,2,256]"),
    "Softmax": ("Softmax", "{}", "f32[2,10]>f32[2,10]"),
    "Reshape": ("Reshape", "{}", "f32[2,10];i64[1]=>f32[20]"),
    "NeverHeardOf": ("NeverHeardOf", "{}", "f32[2,10];[];f32[10]>f32[2,10]"),
}


@pytest.mark.parametrize("operator_class", CASES)
def test_every_operator_has_a_class_and_terms(operator_class: str) -> None:
    """Kernels that differ have different classes, and each has terms of at least 0."""
    found = sized(Case.parse(*CASES[operator_class]))
    assert operator_class == found.operator_class
    sizes = np.array([found.sizes], float).reshape(1, -1)
    for threads in (1, 2, 3):
        values = terms(found.family, sizes, np.zeros(1), threads)
        assert np.isfinite(values).all()
        assert (values >= 0).all()
        assert len(BOUNDS[found.family]) == values.shape[1]
    assert (1,) == shared(found.family, sizes).shape


def test_every_family_has_bounds_of_its_terms() -> None:
    """Every family of terms has its bounds."""
    assert set(TERMS) == set(BOUNDS)


@pytest.mark.parametrize(
    ("family", "sizes", "expected"),
    [
        ("dense", [1, 16, 64, 64, 0, 0, 0], True),
        ("dense", [1, 15, 64, 64, 0, 0, 0], False),
        ("dense", [2, 1, 1, 1, 0, 0, 0], True),
        ("unfolded", [1, 10, 10, 10, 0, 0, 0, 0], False),
        ("recurrent", [48, 1, 160, 256, 4, 1], False),
        ("recurrent", [48, 2, 160, 256, 4, 1], True),
        ("elementwise", [1000, 1, 8000], False),
        ("elementwise", [1e6, 1, 8e6], True),
        ("direct", [1] * 12, True),
    ],
)
def test_small_operators_are_left_to_one_thread(
    family: str, sizes: Sequence[float], *, expected: bool
) -> None:
    """The runtime's thresholds apply: 64 Ki multiplications, some ten thousand elements."""
    assert [expected] == shared(family, np.array([sizes], float)).tolist()


def test_a_recurrent_layer_is_divided_by_rows() -> None:
    """Two threads share the batch, the larger half counts, and steps are not divided."""
    sizes = np.array([[48, 5, 160, 256, 4, 1], [48, 1, 160, 256, 4, 1]], float)
    assert [[48, 3], [48, 1]] == divided("recurrent", sizes, 2)[:, :2].tolist()
    assert sizes is divided("recurrent", sizes, 1)


def test_single_pixel_uses_channels_as_columns() -> None:
    """For a single pixel, the kernel multiplies weights by a vector: one row, and no idle lanes."""
    found = sized(Case.parse(*CASES["conv unfolded plain vector"]))
    calls, rows, columns, depth = found.sizes[:4]
    assert (2, 1, 100, 63) == (calls, rows, columns, depth)


@pytest.mark.parametrize(
    ("shapes", "runs"),
    [
        ("f32[2,64,180];f32[100,64,3]=>f32[2,100,178]", 2 * 64 * 3),
        ("f32[2,8,9,9];f32[100,8,3,3]=>f32[2,100,7,7]", 2 * 8 * 9 * 7),
        ("f32[2,8,9,9];f32[100,8,1,1]=>f32[2,100,9,9]", 0),
    ],
    ids=["words", "pixels", "as they are"],
)
def test_unfolding_copies_rows_of_pixels(shapes: str, runs: int) -> None:
    """The copied rows are counted, as many short ones take longer than a few long ones."""
    assert runs == sized(Case.parse("Conv", "{}", shapes)).sizes[5]


def test_case_round_trips_as_text() -> None:
    """A case is unchanged after being stored as text."""
    case = Case(
        "Gemm",
        '{"a":1}',
        (TensorShape("f32", (2, 3)), TensorShape("", ()), TensorShape("i64", (), constant=True)),
        (TensorShape("f32", (2,)),),
    )
    assert case == Case.parse(case.op_type, case.attributes, case.shapes)


def test_an_ill_formed_shape_is_refused() -> None:
    """A malformed shape is an error."""
    with pytest.raises(ValueError, match="expected a tensor"):
        Case.parse("Gemm", "{}", "f32[2,x]>f32[2]")


@given(
    st.integers(1, 8).flatmap(
        lambda columns: st.tuples(
            st.lists(
                st.lists(st.floats(0, 100), min_size=columns, max_size=columns),
                min_size=columns,
                max_size=30,
            ),
            st.lists(st.floats(0, 10), min_size=columns, max_size=columns),
        )
    )
)
def test_coefficients_are_not_negative_nor_worse_than_zero(
    drawn: tuple[Sequence[Sequence[float]], Sequence[float]],
) -> None:
    """For any measurements, the fit is at least as close as predicting zero."""
    matrix, truth = np.array(drawn[0]), np.array(drawn[1])
    target = matrix @ truth - 1.0
    found = non_negative(matrix, target)
    assert (found >= 0).all()
    assert np.linalg.norm(matrix @ found - target) <= np.linalg.norm(target) + 1e-6


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_fit_does_not_depend_on_initial_coefficients(columns: int, seed: int) -> None:
    """Starting from nearby coefficients does not change the result."""
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(20, columns)), rng.normal(size=20)
    found = non_negative(matrix, target)
    near = np.maximum(found + rng.normal(size=columns), 0.0)
    assert pytest.approx(found, abs=1e-6) == non_negative(matrix, target, near)


def test_known_coefficients_are_found() -> None:
    """Data without noise gives back its coefficients, zeros included."""
    rng = np.random.default_rng(1)
    matrix = rng.random((60, 5)) * [1, 10, 100, 0.1, 1]
    truth = np.array([1.0, 0.0, 0.3, 5.0, 0.0])
    assert pytest.approx(truth, abs=1e-5) == non_negative(matrix, matrix @ truth)
