"""JSON by either library: the same values in, the same meaning out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from watchdog_plugin.protocols import json_codec

if TYPE_CHECKING:
    from collections.abc import Callable

ENCODERS = [json_codec.dumps, json_codec._standard_dumps]
ids = ["installed", "standard library"]


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
def test_arrays_are_lists_and_what_is_no_number_is_null(
    dumps: Callable[[object], bytes],
) -> None:
    """NaN and infinities become null wherever they are, in every float type."""
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
def test_float32_survives(dumps: Callable[[object], bytes]) -> None:
    """What is read back is bit for bit what was written."""
    array = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    assert np.array_equal(array, np.array(json.loads(dumps(array)), np.float32))


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
def test_an_array_in_pieces_is_written_like_one_in_one(
    dumps: Callable[[object], bytes],
) -> None:
    """To the digit, of types the encoder knows and of others."""
    for dtype in (np.float32, np.float16, np.int64, object):
        array = np.linspace(0, 1, 12).astype(dtype).reshape(3, 4)[:, ::2]
        assert dumps(array.copy()) == dumps(array)


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
def test_what_has_no_json_form_is_a_type_error(dumps: Callable[[object], bytes]) -> None:
    """The message names the type."""
    with pytest.raises(TypeError):
        dumps({"a": object()})


@pytest.mark.parametrize("dumps", ENCODERS, ids=ids)
@pytest.mark.parametrize(
    "around", [lambda value: [value], lambda value: {"a": value}], ids=["lists", "objects"]
)
def test_what_is_nested_too_deeply_has_no_json_form(
    dumps: Callable[[object], bytes], around: Callable[[object], object]
) -> None:
    """At the same depth, whatever encodes it; brackets in text are none."""
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
def test_what_is_not_json_says_so(
    decode: Callable[[bytes], object], text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken, endless and deep input is one kind of error."""
    monkeypatch.setattr(json_codec, "_decode", decode)
    with pytest.raises(json_codec.NotJsonError):
        json_codec.loads(memoryview(text))
