"""Checks that arrays fit a model."""

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
    """Return arrays of the given shapes."""
    return {name: np.zeros(shape) for name, shape in shapes.items()}


def test_rows_are_the_first_dimension() -> None:
    """Free dimensions accept any size."""
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
def test_mismatched_shapes_are_reported(arrays: dict[str, Any], told: str) -> None:
    """The error names the input, its shape and what the model expects."""
    with pytest.raises(BadRequest, match=told):
        SIGNATURE.rows(arrays)


def test_inputs_must_have_same_number_of_rows() -> None:
    """The numbers of rows must agree even if the model does not say so."""
    two = Signature([TensorSpec("a", "FP32", (None,)), TensorSpec("b", "FP32", (None,))], [])
    with pytest.raises(BadRequest, match="rows: 1 in 'a', 2 in 'b'"):
        two.rows(zeros(a=(1,), b=(2,)))


def test_dimensions_with_same_symbol_must_be_equal() -> None:
    """A model with the dimensions (n, n) accepts only square matrices."""
    square = Signature([TensorSpec("x", "FP32", ("n", "n"))], [])
    assert 3 == square.rows(zeros(x=(3, 3)))
    with pytest.raises(BadRequest, match="the size 'n': 3 in 'x', 2 in 'x'"):
        square.rows(zeros(x=(3, 2)))


def test_preprocessed_value_becomes_row_of_model_type() -> None:
    """Lists and arrays of other float types are converted."""
    single = Signature([FP32], [])
    for value in ([1.0, 2.0], np.array([1.0, 2.0]), {"x": [1, 2]}):
        row = single.one_row(value)["x"]
        assert (np.dtype(np.float32), (1, 2)) == (row.dtype, row.shape)
    scalar = Signature([TensorSpec("x", "FP32", ("batch",))], []).one_row(np.float32(3))["x"]
    assert (1,) == scalar.shape


def test_fixed_first_dimension_counts_as_rows_only_if_one() -> None:
    """A fixed first dimension counts as rows only if it is 1."""
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
def test_mismatched_preprocess_result_gets_500(value: Any, told: str) -> None:
    """The status is 500, with what the model expects."""
    with pytest.raises(ItemError, match=told) as raised:
        SIGNATURE.one_row(value)
    assert 500 == raised.value.status
