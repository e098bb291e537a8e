"""When a refusal is taken to be for good."""

from __future__ import annotations

import pytest

from faas_stack.stack.refusals import LOOKS, Looks, Refused


def test_what_was_refused_at_each_of_some_looks_is_refused_for_good() -> None:
    """The message has the function and the last reason."""
    looks = Looks()
    for _ in range(LOOKS - 1):
        looks.take({"fn": "too large"})
    with pytest.raises(Refused, match="fn cannot get its instances: still too large"):
        looks.take({"fn": "still too large"})


def test_one_look_without_it_begins_anew() -> None:
    """A first plan may ask for more than the next."""
    looks = Looks()
    for _ in range(LOOKS):
        for _ in range(LOOKS - 1):
            looks.take({"fn": "too large", "other": "no"})
        looks.take({})
