"""Parameters of a policy as a command-line argument: one JSON object."""

from __future__ import annotations

from typing import Any

from carpool.errors import ConfigError, Problem
from carpool.validation import rules

__all__ = ["read_params"]


def read_params(text: str, example: str, option: str = "--params") -> dict[str, Any]:
    """Parse parameters; whether they are valid is checked by the policy.

    Args:
        text: Argument as given.
        example: Example to show if the argument is invalid.
        option: Name of the argument.

    Raises:
        ConfigError: it is not a JSON object.
    """
    expected = f"a JSON object such as {example}"
    try:
        params = rules.loads(text)
    except rules.NotJsonError as error:
        raise ConfigError([Problem(option, text, expected, str(error))]) from error
    if not isinstance(params, dict):
        raise ConfigError([Problem(option, text, expected)])
    return params
