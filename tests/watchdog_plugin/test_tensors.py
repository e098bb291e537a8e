"""Arrays from JSON values, and whether they fit a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from carpool.errors import BadRequest
from watchdog_plugin import ItemError
from watchdog_plugin.tensors import DTYPES, Signature, TensorSpec, read_data

FP32 = TensorSpec("x", "FP32", ("batch", 2))


def spec(datatype: str) -> TensorSpec:
    """An input of this datatype."""
    return TensorSpec("x", datatype, ("batch",))


@pytest.mark.parametrize("datatype", sorted(set(DTYPES) - {"BYTES", "BOOL"}))
def test_numbers_become_each_datatype(datatype: str) -> None:
    """With the datatype's own storage."""
    array = read_data(spec(datatype), [0, 1, 100])
    assert DTYPES[datatype] == array.dtype
    assert [0, 1, 100] == array.tolist()


def test_text_and_booleans() -> None:
    """Text keeps every character."""
    assert ["a", "ü\0"] == read_data(spec("BYTES"), ["a", "ü\0"]).tolist()
    assert [True, False] == read_data(spec("BOOL"), [True, False]).tolist()


def test_large_whole_numbers_are_exact() -> None:
    """They never pass through a float."""
    assert [2**63 - 1] == read_data(spec("INT64"), [2**63 - 1]).tolist()
    assert [2**64 - 1] == read_data(spec("UINT64"), [2**64 - 1]).tolist()


def test_data_is_flat_or_nested() -> None:
    """Both mean the same."""
    expected = [[1.0, 2.0], [3.0, 4.0]]
    assert expected == read_data(FP32, [1, 2, 3, 4], (2, 2)).tolist()
    assert expected == read_data(FP32, [[1, 2], [3, 4]], (2, 2)).tolist()
    assert expected == read_data(FP32, [[1, 2], [3, 4]]).tolist()


@pytest.mark.parametrize(
    ("datatype", "data", "told"),
    [
        ("FP32", "text", "data is str, expected a list"),
        ("FP32", None, "data is NoneType, expected a list"),
        ("FP32", ["1.5"], "data holds text"),
        ("FP32", [True], "data holds booleans"),
        ("FP32", [None, 1.0], "data holds null or mixed values"),
        ("FP32", [[1.0], [1.0, 2.0]], "ragged"),
        ("FP32", [1e300], "out of the range of FP32"),
        ("FP16", [1e6], "out of the range of FP16"),
        ("INT64", [1.5], "data holds numbers with fractions"),
        ("INT8", [128], "out of the range of INT8"),
        ("UINT8", [-1], "out of the range of UINT8"),
        ("INT64", [2**63], "out of the range of INT64"),
        ("INT64", [2**70], "data holds null or mixed values"),
        ("BOOL", [1], "data holds numbers"),
        ("BYTES", [1], "data holds more than text"),
        ("BYTES", ["a", ["b"]], "data holds more than text"),
    ],
)
def test_values_that_do_not_fit_are_told(datatype: str, data: Any, told: str) -> None:
    """Nothing is rounded, wrapped or parsed out of text."""
    with pytest.raises(BadRequest, match=told) as raised:
        read_data(spec(datatype), data)
    assert "'x'" in str(raised.value)


def test_data_and_shape_must_agree() -> None:
    """Neither in size nor in nesting may they differ."""
    for data in ([1, 2, 3], [[1, 2, 3, 4]], [[1], [2], [3], [4]]):
        with pytest.raises(BadRequest, match="not the shape"):
            read_data(FP32, data, (2, 2))


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
        (zeros(ids=(1, 5), mask=(1, 6)), r"'mask' has the shape \[1, 6\]"),
        (zeros(ids=(1, 5), mask=(2, 5)), r"'mask' has the shape \[2, 5\]"),
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
    with pytest.raises(BadRequest, match="same number in each"):
        two.rows(zeros(a=(1,), b=(2,)))


def test_a_preprocessed_value_gets_a_row_and_the_models_type() -> None:
    """Lists and other float sizes are welcome."""
    single = Signature([FP32], [])
    for value in ([1.0, 2.0], np.array([1.0, 2.0]), {"x": [1, 2]}):
        row = single.one_row(value)["x"]
        assert (np.dtype(np.float32), (1, 2)) == (row.dtype, row.shape)
    scalar = Signature([spec("FP32")], []).one_row(np.float32(3))["x"]
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
        (np.zeros(2), "preprocess gave one value, expected a dict"),
        ({"ids": [1]}, "preprocess gave 'ids', expected a dict"),
        ({"ids": [1.5], "mask": [1]}, "preprocess gave 'ids' as float64, the model expects"),
    ],
)
def test_a_preprocess_that_does_not_fit_the_model_is_the_authors_fault(
    value: Any, told: str
) -> None:
    """It is a 500, with what the model expects."""
    with pytest.raises(ItemError, match=told) as raised:
        SIGNATURE.one_row(value)
    assert 500 == raised.value.status
