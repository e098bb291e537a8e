"""Parameters in a command-line argument are one JSON object."""

from __future__ import annotations

import pytest

from carpool.errors import ConfigError
from carpool.params_argument import read_params

EXAMPLE = '{"alpha": 0.5}'


def test_object_is_read_unchanged() -> None:
    """Names and values are left for the policy to check."""
    assert {"alpha": 0.5, "any": [None]} == read_params('{"alpha": 0.5, "any": [null]}', EXAMPLE)


@pytest.mark.parametrize("text", ["", "{", "7", "[]", '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_error_for_other_values_has_an_example(text: str) -> None:
    """The error has the option, the text as given and an example."""
    with pytest.raises(ConfigError) as caught:
        read_params(text, EXAMPLE, "--more")
    (problem,) = caught.value.problems
    assert ("--more", text) == (problem.name, problem.value)
    assert problem.expected.endswith(EXAMPLE)
