"""The errors for invalid settings of lazy batching name the valid values."""

from __future__ import annotations

from typing import Any

import pytest

from carpool.lazy_batching.rules import Rules


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"estimate": "guess"}, "estimate is 'guess': expected batched or serial"),
        ({"remaining": 1}, "remaining is 1: expected true or false"),
        ({"overtaken_max": 0}, "overtaken_max is 0: expected a whole number of at least 1"),
    ],
)
def test_invalid_setting_is_refused(setting: dict[str, Any], said: str) -> None:
    """An invalid setting is refused with its value and what is expected."""
    with pytest.raises((ValueError, TypeError), match=said):
        Rules(**setting)
