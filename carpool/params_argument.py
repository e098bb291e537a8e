"""Parameters of a policy as commands take them: one JSON object in an argument."""

from __future__ import annotations

from typing import Any

from carpool.errors import ConfigError, Problem
from carpool.validation import rules

__all__ = ["read_params"]


def read_params(text: str, example: str, option: str = "--params") -> dict[str, Any]:
    """What ``text`` says; which parameters there are is the policy's business.

    Args:
        text: As it was given.
        example: Shown where something else was given.
        option: The argument's name.

    Raises:
        ConfigError: it is no JSON object.
    """
    expected = f"a JSON object such as {example}"
    try:
        params = rules.loads(text)
    except rules.NotJsonError as error:
        raise ConfigError([Problem(option, text, expected, str(error))]) from error
    if not isinstance(params, dict):
        raise ConfigError([Problem(option, text, expected)])
    return params
