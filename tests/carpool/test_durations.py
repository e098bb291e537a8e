"""Durations read and written in Go's syntax."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("+0", 0.0),
        ("0s", 0.0),
        ("300ms", 0.3),
        ("1.5h", 5400.0),
        ("2h45m", 9900.0),
        ("1h15m30.918273645s", 4530.918273645),
        ("10us", 10e-6),
        ("10µs", 10e-6),
        ("10μs", 10e-6),
        ("5ns", 5e-9),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("+5s", 5.0),
        ("-1.5s", -1.5),
        ("1m1m", 120.0),
        ("100ms1s", 1.1),
    ],
)
def test_reads_go_syntax(text: str, seconds: float) -> None:
    """Text that Go's ParseDuration accepts is read to the same value."""
    assert seconds == durations.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *["", "3", "-", "s", ".s", "1 s", " 1s", "1s ", "1s\n", "1S", "1d", "1,5s", "1e3s", "1_0s"],
        *["--1s", "1s-1s", "٣s", "nan", "inf", "0x1s", "1.2.3s", "9" * 400 + "h"],
    ],
)
def test_text_that_go_refuses_is_refused(text: str) -> None:
    """Text that Go refuses is refused, and the message names it and shows the syntax."""
    with pytest.raises(durations.DurationError, match=r"is not a duration such as 300ms") as caught:
        durations.parse(text)
    assert repr(text) in str(caught.value)


def test_duration_beyond_int64_nanoseconds_is_refused() -> None:
    """A duration beyond Go's int64 nanoseconds is refused, as the watchdog could not read it."""
    with pytest.raises(durations.DurationError, match="292 years"):
        durations.parse("2562048h")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1e-10, "0s"),
        (5e-9, "5ns"),
        (10e-6, "10us"),
        (0.3, "300ms"),
        (0.0015, "1.5ms"),
        (1.5, "1.5s"),
        (60, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (9900.25, "2h45m0.25s"),
        (-0.2, "-200ms"),
        (0.9999999999, "1s"),
    ],
)
def test_writes_the_short_form(seconds: float, text: str) -> None:
    """The shortest form is written, without parts that are zero."""
    assert text == durations.format(seconds)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, 1e300])
def test_unrepresentable_durations_are_not_written(seconds: float) -> None:
    """NaN, infinity and durations beyond Go's range are refused."""
    with pytest.raises(durations.DurationError, match="cannot be written as a Go duration"):
        durations.format(seconds)


@given(st.integers(-(10**16), 10**16))
def test_written_durations_round_trip(total_ns: int) -> None:
    """Every number of nanoseconds up to months is the same after writing and reading."""
    seconds = total_ns / 10**9
    assert durations.parse(durations.format(seconds)) == pytest.approx(seconds, abs=1e-9, rel=0)


@given(st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """Any text is either read or refused with the documented error."""
    with contextlib.suppress(durations.DurationError):
        assert math.isfinite(durations.parse(text))
