"""Arrays from decoded JSON values, of one request or of several together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import BadRequest
from watchdog_plugin.protocols.tensors import DTYPES, TensorSpec
from watchdog_plugin.protocols.values import _CODES, _checked, _packed, read_data

FP32 = TensorSpec("x", "FP32", ("batch", 2))


def spec(datatype: str) -> TensorSpec:
    """Return an input of this datatype."""
    return TensorSpec("x", datatype, ("batch",))


@pytest.mark.parametrize("datatype", sorted(set(DTYPES) - {"BYTES", "BOOL"}))
def test_numbers_become_each_datatype(datatype: str) -> None:
    """The array has the NumPy type of the datatype."""
    array = read_data(spec(datatype), [[0, 1, 100]])
    assert DTYPES[datatype] == array.dtype
    assert [0, 1, 100] == array.tolist()


def test_text_and_booleans() -> None:
    """Text keeps every character, and booleans stay booleans."""
    assert ["a", "ü\0"] == read_data(spec("BYTES"), [["a", "ü\0"]]).tolist()
    assert [True, False] == read_data(spec("BOOL"), [[True, False]]).tolist()


def test_large_whole_numbers_are_exact() -> None:
    """Integers are not converted to float and back."""
    assert [2**63 - 1] == read_data(spec("INT64"), [[2**63 - 1]]).tolist()
    assert [2**64 - 1] == read_data(spec("UINT64"), [[2**64 - 1]]).tolist()


def test_data_is_flat_or_nested() -> None:
    """Flat and nested data give the same array."""
    expected = [[1.0, 2.0], [3.0, 4.0]]
    assert expected == read_data(FP32, [[1, 2, 3, 4]], (2, 2)).tolist()
    assert expected == read_data(FP32, [[[1, 2], [3, 4]]], (2, 2)).tolist()
    assert expected == read_data(FP32, [[[1, 2], [3, 4]]]).tolist()


@pytest.mark.parametrize(
    ("datatype", "data", "told"),
    [
        ("FP32", "text", "data is str, expected a list"),
        ("FP32", None, "data is NoneType, expected a list"),
        ("FP32", ["1.5"], "data holds text"),
        ("FP32", [True], "data holds booleans"),
        ("FP32", [None, 1.0], "data holds null"),
        ("FP32", [[1.0], [1.0, 2.0]], "ragged"),
        ("FP32", [1e300], "out of the range of FP32"),
        ("FP16", [1e6], "out of the range of FP16"),
        ("INT64", [1.5], "data holds numbers with fractions"),
        ("INT64", [1e20], "or more than 64 bits"),
        ("INT8", [128], "out of the range of INT8"),
        ("UINT8", [-1], "out of the range of UINT8"),
        ("INT64", [2**63], "out of the range of INT64"),
        ("INT64", [2**70], "data holds numbers out of any range"),
        ("BOOL", [1], "data holds numbers"),
        ("BYTES", [1], "data holds values other than text"),
        ("BYTES", ["a", ["b"]], "data holds values other than text"),
    ],
)
def test_unsuitable_values_are_refused(datatype: str, data: Any, told: str) -> None:
    """Values are not rounded, wrapped or parsed from text."""
    with pytest.raises(BadRequest, match=told) as raised:
        read_data(spec(datatype), [data])
    assert "'x'" in str(raised.value)


def test_data_and_shape_must_agree() -> None:
    """Data of another size or nesting than the shape are refused."""
    for data in ([1, 2, 3], [[1, 2, 3, 4]], [[1], [2], [3], [4]]):
        with pytest.raises(BadRequest, match="but its shape says"):
            read_data(FP32, [data], (2, 2))


VALUES = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**65), 2**65),
    st.floats(-2, 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.text(max_size=2),
    st.lists(st.integers(0, 1), max_size=2),
)
OF_ONE_KIND = st.sampled_from([st.integers(-3, 300), st.floats(-2, 2), st.booleans(), st.text()])
DATA = st.lists(st.one_of(VALUES, OF_ONE_KIND.flatmap(lambda kind: kind)), max_size=3)
SAME_KIND = OF_ONE_KIND.flatmap(lambda kind: st.lists(st.lists(kind, min_size=2, max_size=2)))


@given(
    st.sampled_from(sorted(DTYPES)),
    st.one_of(st.lists(DATA, min_size=1, max_size=4), SAME_KIND.filter(bool)),
    st.sampled_from([None, (2,), (1, 2), (2, 1)]),
)
def test_other_requests_do_not_change_how_values_are_read(
    datatype: str, data: list[Any], shape: tuple[int, ...] | None
) -> None:
    """Other requests in the batch do not change how a value is checked or rounded."""
    try:
        together = read_data(spec(datatype), data, shape)
    except BadRequest:
        return
    alone = [read_data(spec(datatype), [values], shape) for values in data]
    expected = np.concatenate(alone)
    assert (expected.dtype, expected.shape) == (together.dtype, together.shape)
    assert expected.tolist() == together.tolist()


GRIDS = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.lists(st.one_of(VALUES, st.integers(-3, 300), st.floats(-2, 2)), max_size=width),
        min_size=1,
        max_size=3,
    )
)
LARGE = st.sampled_from([2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 1e39, 1e-50, -0.0, True, 1.5])


@given(
    st.sampled_from(sorted(_CODES)),
    st.one_of(
        st.lists(DATA, min_size=1, max_size=4),
        st.lists(GRIDS, min_size=1, max_size=3),
        st.lists(st.lists(LARGE, min_size=2, max_size=2), min_size=1, max_size=3),
        SAME_KIND.filter(bool),
    ),
)
def test_fast_conversion_matches_checked_one(datatype: str, data: list[Any]) -> None:
    """The fast conversion returns the same bits as the checked one, or None."""
    wanted = TensorSpec("x", datatype, ("batch", 2))
    packed = _packed(wanted, data)
    if packed is None:
        return
    expected = _checked(wanted, data)
    assert (expected.dtype, expected.shape) == (packed.dtype, packed.shape)
    assert expected.tobytes() == packed.tobytes()


@pytest.mark.parametrize("datatype", sorted(_CODES))
@pytest.mark.parametrize("data", [[[1, 2]], [[1, 2], [3, 4]], [[[1, 2]], [[3, 4]]]])
def test_fast_conversion_accepts_plain_numbers(datatype: str, data: list[Any]) -> None:
    """The fast conversion accepts flat and nested numbers of one or several requests."""
    assert _packed(TensorSpec("x", datatype, ("batch", 2)), data) is not None


@pytest.mark.parametrize("width", [3, 16, 40])
def test_wide_and_narrow_rows_give_same_array(width: int) -> None:
    """Rows converted together and one by one give the same array."""
    data = [[[row * width + at for at in range(width)] for row in (0, 1)] for _ in range(2)]
    array = read_data(TensorSpec("x", "FP32", ("batch", width)), data)
    assert (np.arange(4 * width).reshape(4, width) % (2 * width)).tolist() == array.tolist()


@pytest.mark.parametrize("datatype", sorted(DTYPES))
def test_similar_requests_are_read_together(datatype: str) -> None:
    """Nested and flat values of every datatype can be read together."""
    rows: dict[str, list[Any]] = {"BYTES": ["a", "b"], "BOOL": [True, False]}
    row = rows.get(datatype, [1, 0])
    expected = [row, row]
    assert expected == read_data(spec(datatype), [[row], [row]]).tolist()
    assert expected == read_data(spec(datatype), [row, row], (1, 2)).tolist()
    assert expected == read_data(spec(datatype), [[row], [row]], (1, 2)).tolist()


@pytest.mark.parametrize(
    ("datatype", "data", "shape"),
    [
        ("FP32", [[0.5, 1.5], [True, True]], (1, 2)),
        ("INT64", [[[True]], [[5]]], None),
        ("FP32", [[1.0], [1.0, 2.0, 3.0]], (1, 2)),
        ("FP32", [[1.0], [2.0]], ()),
        ("INT64", [[1], [1.5]], (1,)),
        ("FP64", [[1.0], [None]], (1,)),
        ("BYTES", [["a"], [["b"]]], None),
    ],
)
def test_invalid_requests_are_refused_when_read_together(
    datatype: str, data: list[Any], shape: tuple[int, ...] | None
) -> None:
    """Invalid requests are refused even if they have the right size together."""
    with pytest.raises(BadRequest):
        read_data(spec(datatype), data, shape)


def test_integer_rounding_does_not_depend_on_batch() -> None:
    """An integer with more digits than the datatype holds is rounded the same in any batch."""
    large = 2**60 + 2**36 + 1
    alone = read_data(spec("FP32"), [[large]])
    assert alone[0] == read_data(spec("FP32"), [[large], [0.5]])[0]
