"""Numbers in sentences and tables."""

from __future__ import annotations

import math

import pytest

from carpool.plain_number import plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (13620.4, "13620"),
        (1234567.8, "1235000"),
        (0.000012345, "0.00001234"),
        (99.996, "100"),
        (0.5, "0.5"),
        (3, "3"),
        (0, "0"),
        (-2.5, "-2.5"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    """Four digits count, and none is added."""
    assert text == plain(value)
