"""Fitting again with one more model: what it changes is fitted, and the rest is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from carpool.predictor import fitting
from carpool.predictor.fitting import fit_profiles, learn
from tests.carpool.profiles import graph, profile, profiles

MANY = 25  # one more than `profiles`, and no tenth more since errors were measured last


def test_one_more_model_changes_the_laws_of_its_classes() -> None:
    """The laws are those of a complete fit, and the measured errors are kept."""
    known = profiles(MANY - 1)
    newest = profile(graph([640, 320, 160], "newest"), 1.2)
    before = fit_profiles(known)
    odd = {("odd", unit): law for (kind, unit), law in before.laws.items()}
    earlier = replace(before, laws={**before.laws, **odd})
    every = [*known, newest]
    found, whole = learn(every, newest, earlier), fit_profiles(every)
    for key, law in whole.laws.items():
        np.testing.assert_allclose(found.laws[key], law)
    for key, law in odd.items():
        np.testing.assert_array_equal(found.laws[key], law)
    assert earlier.errors == found.errors
    assert whole.per_run_s == found.per_run_s


@pytest.mark.parametrize(("count", "grown"), [(9, True), (16, True), (25, False), (101, False)])
def test_errors_are_measured_again_after_a_tenth_more_models(count: int, *, grown: bool) -> None:
    """Errors are measured again for each of the first models, then for every tenth more."""
    assert grown == fitting._is_grown(count)
    assert any(fitting._is_grown(more) for more in range(count, int(count * 1.1) + 2))


def test_errors_can_be_measured_by_leaving_out_few_models() -> None:
    """Errors may be measured by leaving out a few models; the laws are always those of all."""
    known = profiles(20)
    all_of_them, some = fit_profiles(known), fit_profiles(known, most=10)
    assert set(all_of_them.errors) == set(some.errors)
    for key, law in all_of_them.laws.items():
        np.testing.assert_allclose(law, some.laws[key])


def test_fit_without_earlier_fit_is_complete() -> None:
    """Without an earlier fit, the result is that of a complete fit."""
    known = profiles(8)
    found, whole = learn(known, known[-1], None), fit_profiles(known)
    assert set(whole.laws) == set(found.laws)
    assert whole.errors == found.errors


def test_errors_are_measured_for_a_new_thread_count() -> None:
    """Errors are measured for a new number of threads, however many models are known."""
    known = profiles(MANY)
    earlier = fit_profiles(known)
    lacking = {key: each for key, each in earlier.errors.items() if key[0].threads != 2}
    assert lacking
    found = learn(known, known[-1], replace(earlier, errors=lacking))
    assert set(earlier.errors) == set(found.errors)
