"""Whether arrays fit a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from carpool.errors import BadRequest
from watchdog_plugin import ItemError
from watchdog_plugin.protocols.tensors import Signature, TensorSpec

FP32 = TensorSpec("x", "FP32", ("batch", 2))

SIGNATURE = Signature(
    [
        TensorSpec("ids", "INT64", ("batch", "length")),
        TensorSpec("mask", "FP32", ("batch", "length")),
    ],
    [],
)


def zeros(**shapes: tuple[int, ...]) -> dict[str, Any]:
    """Arrays of these shapes."""
    return {name: np.zeros(shape) for name, shape in shapes.items()}


def test_rows_are_the_first_dimension() -> None:
    """Free dimensions take any size."""
    assert 3 == SIGNATURE.rows(zeros(ids=(3, 5), mask=(3, 5)))
    assert 1 == SIGNATURE.rows(zeros(ids=(1, 9), mask=(1, 9)))


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        (zeros(ids=(1, 5)), "input 'mask' is missing; .*'ids' INT64 .-1, -1."),
        (zeros(ids=(1, 5), mask=(1, 6)), "disagree in the size 'length': 5 in 'ids', 6 in 'mask'"),
        (zeros(ids=(2, 5), mask=(1, 5)), "disagree in rows: 2 in 'ids', 1 in 'mask'; expected"),
        (zeros(ids=(5,), mask=(1, 5)), r"'ids' has the shape \[5\], the model expects"),
        (zeros(ids=(0, 5), mask=(0, 5)), r"'ids' has the shape \[0, 5\]"),
    ],
)
def test_shapes_that_do_not_fit_are_told(arrays: dict[str, Any], told: str) -> None:
    """With the input, its shape and what the model expects."""
    with pytest.raises(BadRequest, match=told):
        SIGNATURE.rows(arrays)


def test_inputs_without_a_common_symbol_must_have_as_many_rows() -> None:
    """Where the model does not say that they agree, they agree all the same."""
    two = Signature([TensorSpec("a", "FP32", (None,)), TensorSpec("b", "FP32", (None,))], [])
    with pytest.raises(BadRequest, match="rows: 1 in 'a', 2 in 'b'"):
        two.rows(zeros(a=(1,), b=(2,)))


def test_a_symbol_of_rows_and_of_another_dimension_is_one_size() -> None:
    """As in a square matrix."""
    square = Signature([TensorSpec("x", "FP32", ("n", "n"))], [])
    assert 3 == square.rows(zeros(x=(3, 3)))
    with pytest.raises(BadRequest, match="the size 'n': 3 in 'x', 2 in 'x'"):
        square.rows(zeros(x=(3, 2)))


def test_a_preprocessed_value_gets_a_row_and_the_models_type() -> None:
    """Lists and other float sizes are welcome."""
    single = Signature([FP32], [])
    for value in ([1.0, 2.0], np.array([1.0, 2.0]), {"x": [1, 2]}):
        row = single.one_row(value)["x"]
        assert (np.dtype(np.float32), (1, 2)) == (row.dtype, row.shape)
    scalar = Signature([TensorSpec("x", "FP32", ("batch",))], []).one_row(np.float32(3))["x"]
    assert (1,) == scalar.shape


def test_a_fixed_first_dimension_is_no_row() -> None:
    """Unless it is one."""
    whole = Signature([TensorSpec("x", "FP32", (4, 2))], [])
    assert (4, 2) == whole.one_row(np.zeros((4, 2)))["x"].shape
    one = Signature([TensorSpec("x", "FP32", (1, 2))], [])
    assert (1, 2) == one.one_row(np.zeros(2))["x"].shape


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.zeros(2), "preprocess returned one value, expected a dict"),
        ({"ids": [1]}, "preprocess returned 'ids', expected a dict"),
        ({"ids": [1.5], "mask": [1]}, "preprocess returned 'ids' as float64, the model expects"),
    ],
)
def test_a_preprocess_that_does_not_fit_the_model_is_the_authors_fault(
    value: Any, told: str
) -> None:
    """It is a 500, with what the model expects."""
    with pytest.raises(ItemError, match=told) as raised:
        SIGNATURE.one_row(value)
    assert 500 == raised.value.status
