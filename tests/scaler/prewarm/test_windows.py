"""The windows that a prewarm policy may return."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from carpool.errors import ConfigError
from scaler.prewarm.contract import Windows


@pytest.mark.parametrize(
    ("prewarm_s", "keep_alive_s"),
    [(-1.0, 5.0), (math.inf, None), (math.nan, 5.0), (5.0, 1.0), (0.0, math.inf), (0.0, math.nan)],
)
def test_invalid_windows_are_refused(prewarm_s: float, keep_alive_s: float | None) -> None:
    """Invalid windows are refused when they are created, before a plan would refuse them."""
    with pytest.raises(ConfigError, match="_s = "):
        Windows(prewarm_s, keep_alive_s)


def test_numpy_numbers_become_floats() -> None:
    """Windows become Python floats, as plans are written as JSON."""
    prewarm_s: Any = np.int64(3)
    keep_alive_s: Any = np.float32(4.5)
    windows = Windows(prewarm_s, keep_alive_s)
    assert [float, float] == [type(windows.prewarm_s), type(windows.keep_alive_s)]
    assert Windows(3.0, 4.5) == windows
