"""Tests of when a refusal counts as final."""

from __future__ import annotations

import pytest

from faas_stack.stack.refusals import CHECKS, InstancesRefused, RefusalCounter


def test_function_refused_in_consecutive_checks_is_an_error() -> None:
    """A function refused in several consecutive checks is an error with its last reason."""
    refusals = RefusalCounter()
    for _ in range(CHECKS - 1):
        refusals.take({"fn": "too large"})
    with pytest.raises(InstancesRefused, match="the instances of fn are refused: still too large"):
        refusals.take({"fn": "still too large"})


def test_check_without_refusals_resets_count() -> None:
    """A check without refusals resets the count, as a first plan may ask for more than the next."""
    refusals = RefusalCounter()
    for _ in range(CHECKS):
        for _ in range(CHECKS - 1):
            refusals.take({"fn": "too large", "other": "no"})
        refusals.take({})
