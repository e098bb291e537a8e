"""Learning again after one more model: what it changes is learnt, and the rest stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from carpool.predictor import fitting
from carpool.predictor.fitting import fit_profiles, learn
from tests.carpool.profiles import graph, profile, profiles

MANY = 25  # one more than `profiles`, and no tenth more since errors were measured last


def test_one_more_model_changes_the_laws_of_its_classes() -> None:
    """As if all had been learnt from the beginning; errors stay those that were measured."""
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
def test_errors_are_measured_anew_for_a_tenth_more_models(count: int, *, grown: bool) -> None:
    """While there are few, each counts."""
    assert grown == fitting._is_grown(count)
    assert any(fitting._is_grown(more) for more in range(count, int(count * 1.1) + 2))


def test_a_few_models_that_are_left_out_tell_about_as_much_as_all() -> None:
    """Of errors; the laws are those of all models in any case."""
    known = profiles(20)
    all_of_them, some = fit_profiles(known), fit_profiles(known, most=10)
    assert set(all_of_them.errors) == set(some.errors)
    for key, law in all_of_them.laws.items():
        np.testing.assert_allclose(law, some.laws[key])


def test_without_anything_known_everything_is_learnt() -> None:
    """As from eight models on."""
    known = profiles(8)
    found, whole = learn(known, known[-1], None), fit_profiles(known)
    assert set(whole.laws) == set(found.laws)
    assert whole.errors == found.errors


def test_errors_of_a_new_number_of_threads_are_learnt() -> None:
    """However many models there are: bounds would stay guesses there."""
    known = profiles(MANY)
    earlier = fit_profiles(known)
    lacking = {key: each for key, each in earlier.errors.items() if key[0].threads != 2}
    assert lacking
    found = learn(known, known[-1], replace(earlier, errors=lacking))
    assert set(earlier.errors) == set(found.errors)
