"""Dates of responses."""

from __future__ import annotations

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from carpool.http.http_date import http_date


def test_example_of_the_standard() -> None:
    """The example of RFC 9110 is written as it is there."""
    assert b"Sun, 06 Nov 1994 08:49:37 GMT" == http_date(784111777)


@given(st.floats(0, 32503680000))
def test_dates_are_those_of_the_standard_library(since_epoch_s: float) -> None:
    """Any time until the year 3000 is written as Python's own library for e-mail writes it."""
    assert formatdate(int(since_epoch_s), usegmt=True).encode() == http_date(since_epoch_s)
