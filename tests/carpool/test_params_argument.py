"""Parameters in an argument are one JSON object."""

from __future__ import annotations

import pytest

from carpool.errors import ConfigError
from carpool.params_argument import read_params

EXAMPLE = '{"alpha": 0.5}'


def test_an_object_is_read_as_it_is() -> None:
    """Names and values are for the policy to judge."""
    assert {"alpha": 0.5, "any": [None]} == read_params('{"alpha": 0.5, "any": [null]}', EXAMPLE)


@pytest.mark.parametrize("text", ["", "{", "7", "[]", '{"a": NaN}', '{"a": 1, "a": 2}'])
def test_anything_else_is_named_with_an_example(text: str) -> None:
    """The option, the text as given and what would do."""
    with pytest.raises(ConfigError) as caught:
        read_params(text, EXAMPLE, "--more")
    (problem,) = caught.value.problems
    assert ("--more", text) == (problem.name, problem.value)
    assert problem.expected.endswith(EXAMPLE)
