"""Triton's classification extension."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

from carpool.errors import BadRequest
from watchdog_plugin.protocols.classification import largest
from watchdog_plugin.protocols.tensors import TensorSpec

FLOATS = TensorSpec("y", "FP32", ("batch", None))
NUMBERS = TensorSpec("y", "INT64", ("batch", None))


def test_the_largest_of_each_row_come_first() -> None:
    """Ties go to the lower index, and all classes are returned if more are requested."""
    rows = np.array([[0.5, 2, 2], [9, -1, 3]], np.float32)
    spec, texts = largest(FLOATS, rows, 2, 1000)
    assert [["2.000000:1", "2.000000:2"], ["9.000000:0", "3.000000:2"]] == texts.tolist()
    assert ("y", "BYTES") == (spec.name, spec.datatype)
    whole = largest(NUMBERS, rows.astype(np.int64), 1 << 40, 1000)[1]
    assert [["2:1", "2:2", "0:0"], ["9:0", "3:2", "-1:1"]] == whole.tolist()


def test_oversized_response_is_refused_before_it_is_built() -> None:
    """Neither texts nor their order are made, as both take many times the memory of the values."""
    rows = np.zeros((1, 1_000_000), np.float32)
    tracemalloc.start()
    try:
        with pytest.raises(
            BadRequest, match="1000000 classes of output 'y' have at least 17888890"
        ):
            largest(FLOATS, rows, 1 << 40, 17_888_889)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * rows.nbytes


@pytest.mark.parametrize("width", [1, 9, 10, 11, 100, 101, 1234])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_size_limit_refuses_no_response_that_fits(width: int, dtype: Any) -> None:
    """The bound is their size in JSON, so that no response within the limit is refused."""
    rows = np.zeros((3, width), dtype)
    spec = FLOATS if dtype is np.float32 else NUMBERS
    texts = largest(spec, rows, width, 1 << 40)[1]
    size = len(json.dumps(texts.reshape(-1).tolist(), separators=(",", ":"))) - 1  # one comma less
    assert texts.shape == largest(spec, rows, width, size)[1].shape
    with pytest.raises(BadRequest, match=f"have at least {size} "):
        largest(spec, rows, width, size - 1)


def test_limit_applies_to_requested_classes_only() -> None:
    """The limit applies to the requested classes, not to the number of values."""
    rows = np.zeros((1, 1_000_000), np.float32)
    assert (1, 5) == largest(FLOATS, rows, 5, 9_999_999)[1].shape
