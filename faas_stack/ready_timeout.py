"""The option ``--ready-timeout``: the time that functions have to become ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    import argparse

__all__ = ["add_flag", "seconds"]


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Add the option to a command's parser."""
    parser.add_argument(
        "--ready-timeout",
        default="120s",
        metavar="TIME",
        help="time to become ready (default: %(default)s)",
    )


def seconds(args: argparse.Namespace) -> float:
    """Return the option's value in seconds.

    Raises:
        ConfigError: It is not a duration above zero.
    """
    try:
        ready_s = durations.parse(args.ready_timeout)
    except durations.DurationError:
        ready_s = 0.0
    if ready_s <= 0:
        problem = Problem("--ready-timeout", args.ready_timeout, "a duration such as 90s")
        raise ConfigError([problem])
    return ready_s
