"""The number of calls that a provider has open at a sidecar."""

from __future__ import annotations

import math

import pytest

from carpool.http.call_window import CallWindow


def test_without_marks_any_number_of_calls_may_be_open() -> None:
    """Before a first mark there is no limit."""
    window = CallWindow()
    window.answered([1, 2], range(1, 100), 0.0, marked=False)
    assert math.inf == window.size


def test_mark_halves_the_open_calls_once_until_it_can_have_an_effect() -> None:
    """Marked answers to calls sent before the last reduction do not reduce the number again."""
    window = CallWindow()
    window.answered([1], range(1, 401), 0.0, marked=True)
    assert 200 == window.size
    window.answered([2, 400], range(2, 401), 0.0, marked=True)
    assert 200 == window.size
    window.answered([401], range(401, 601), 0.0, marked=True)
    assert 100 == window.size


def test_few_open_calls_are_not_reduced_further() -> None:
    """The number does not fall so low that batches could not fill."""
    window = CallWindow()
    window.answered([1], [1, 2], 0.0, marked=True)
    assert 32 == window.size


def test_unmarked_answers_add_calls() -> None:
    """After fifty answers without a mark, one more call may be open."""
    window = CallWindow()
    window.answered([1], range(1, 201), 0.0, marked=True)
    window.answered(range(201, 251), range(201, 301), 0.0, marked=False)
    assert pytest.approx(101) == window.size


def test_mark_without_open_calls_is_ignored() -> None:
    """If all callers have left, a mark says nothing about the number of calls."""
    window = CallWindow()
    window.answered([1], [], 0.0, marked=True)
    assert math.inf == window.size


def test_round_trip_is_that_of_one_call_at_a_time() -> None:
    """The round trip rises at once and falls slowly; answers to other calls do not count."""
    window = CallWindow()
    window.sent(3, 1.0)
    window.sent(5, 1.5)
    window.answered([1, 2], range(1, 6), 1.75, marked=False)
    assert 0 == window.round_trip_s
    window.answered([4, 3], range(3, 6), 2.0, marked=False)
    assert 1.0 == window.round_trip_s
    window.sent(6, 3.0)
    window.answered([6], [5, 6], 3.5, marked=False)
    assert pytest.approx(0.95) == window.round_trip_s


def test_round_trip_of_a_call_whose_caller_leaves_is_not_measured() -> None:
    """Another call is timed instead."""
    window = CallWindow()
    window.sent(1, 1.0)
    window.answered([2], [2, 3], 9.0, marked=False)
    window.sent(3, 9.0)
    window.answered([3], [3], 9.5, marked=False)
    assert 0.5 == window.round_trip_s
