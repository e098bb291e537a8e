"""JSON with either library: the same values are written and the same text is accepted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from watchdog_plugin import json_codec

if TYPE_CHECKING:
    from collections.abc import Callable

ENCODERS = [json_codec.dumps, json_codec._standard_dumps]
ids = ["installed", "standard library"]


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
def test_arrays_become_lists_and_non_finite_numbers_null(
    dumps: Callable[[object], bytes],
) -> None:
    """NaN and infinities become null at any place and in every float type."""
    value = {
        "a": np.array([[1, 2], [3, 4]]),
        "b": [np.array([np.nan, 1.5], np.float32), float("inf"), np.float32("nan")],
        "c": np.array(["x"], object),
        "d": (True, None, "ü", np.int64(3), np.array([0.5], np.float16)),
    }
    expected = {
        "a": [[1, 2], [3, 4]],
        "b": [[None, 1.5], None, None],
        "c": ["x"],
        "d": [True, None, "ü", 3, [0.5]],
    }
    assert expected == json.loads(dumps(value))


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
def test_float32_round_trips_exactly(dumps: Callable[[object], bytes]) -> None:
    """A float32 array is read back bit for bit."""
    array = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    assert np.array_equal(array, np.array(json.loads(dumps(array)), np.float32))


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
def test_non_contiguous_array_is_encoded_like_its_copy(
    dumps: Callable[[object], bytes],
) -> None:
    """A non-contiguous array gives the same text as its copy, whatever the type."""
    for dtype in (np.float32, np.float16, np.int64, object):
        array = np.linspace(0, 1, 12).astype(dtype).reshape(3, 4)[:, ::2]
        assert dumps(array.copy()) == dumps(array)


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
def test_unsupported_object_raises_type_error(dumps: Callable[[object], bytes]) -> None:
    """An object without a JSON form raises TypeError."""
    with pytest.raises(TypeError):
        dumps({"a": object()})


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
@pytest.mark.parametrize(
    "around", [lambda value: [value], lambda value: {"a": value}], ids=["lists", "objects"]
)
def test_too_deeply_nested_value_is_refused(
    dumps: Callable[[object], bytes], around: Callable[[object], object]
) -> None:
    """The depth limit is the same for both encoders and does not count brackets in text."""
    value: object = "[[[{{{" * 100
    for _ in range(254):
        value = around(value)
    assert value == json.loads(dumps(value))
    for deep in (around(value), [1, around(value), float("nan")]):
        with pytest.raises(TypeError):
            dumps(deep)


@pytest.mark.parametrize(
    "text",
    [b"{", b"NaN", b"[Infinity]", b"", b"\xff", b"[" * 100_000, b"[" * 1025 + b"]" * 1025],
)
@pytest.mark.parametrize("decode", [json_codec._decode, json_codec._standard_loads], ids=ids)
def test_invalid_json_is_refused(
    decode: Callable[[bytes], object], text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken, incomplete and too deep text raises the same error."""
    monkeypatch.setattr(json_codec, "_decode", decode)
    with pytest.raises(json_codec.NotJsonError):
        json_codec.loads(memoryview(text))
