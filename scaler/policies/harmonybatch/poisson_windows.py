"""Poisson arrivals within windows: their numbers, and the mean window of many applications.

A batch leaves at ``min(a_i + T_i)`` over its members, as `merged_windows` explains; its mean window
without a largest batch is computed here. HarmonyBatch (IWQoS'24) has it for two applications (Eq.
5, exact), and applies that repeatedly for more, which is slightly too long.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.processes import Times

__all__ = ["checked", "expected_window", "poisson"]


_TINY = 1e-300


def expected_window(rates_rps: Sequence[float], windows_s: Sequence[float]) -> float:
    """Return the mean seconds from a batch's first request to its departure without a size limit.

    The integral of ``S(d)``, which is piecewise exponential. With ``R`` the sum of the rates, an
    unbounded batch has ``1 + R D`` members in the mean (Wald).

    Args:
        rates_rps: Requests per second of each application; at least one above 0.
        windows_s: The longest wait of each, in seconds.

    Raises:
        ConfigError: See `checked`.
    """
    rates, windows = checked(rates_rps, windows_s)
    order = np.argsort(windows)
    rates, windows = rates[order], windows[order]
    lengths = np.diff(windows, prepend=0.0)
    over = np.cumsum(rates) - rates  # the rate of those whose windows are over, by segment
    passed = np.concatenate([[0.0], np.cumsum(over * lengths)[:-1]])
    exponents = over * lengths
    # (1 - exp(-x)) / x goes to 1 as x vanishes.
    parts = -np.expm1(-exponents) / np.where(exponents > 0, exponents, 1.0)
    parts = np.where(exponents > 0, parts, 1.0) * lengths
    total = rates.sum()
    return float(((total - over) / total * np.exp(-passed) * parts).sum())


def poisson(mean: Times, count: int) -> Times:
    """Return the probabilities of 0 to ``count - 1``, along one more axis than ``mean`` has."""
    numbers, logs = _factorials(count)
    # A mean this small acts like 0, but has a logarithm.
    safe = np.maximum(mean, _TINY)[..., None]
    chances: Times = np.exp(numbers * np.log(safe) - safe - logs)
    return chances


@lru_cache(maxsize=256)
def _factorials(count: int) -> tuple[Times, Times]:
    """Return 0 to ``count - 1``, and the logarithms of their factorials."""
    logs = [math.lgamma(number + 1.0) for number in range(count)]
    return np.arange(count, dtype=np.float64), np.array(logs)


def checked(rates_rps: Sequence[float], windows_s: Sequence[float]) -> tuple[Times, Times]:
    """Return rates and windows as arrays.

    Raises:
        ConfigError: Rates or windows are negative, infinite or differ in number, or no rate is
            above 0.
    """
    numbers = (*rates_rps, *windows_s)
    good = len(rates_rps) == len(windows_s) and sum(rates_rps) > 0
    if not (good and all(0 <= number < math.inf for number in numbers)):
        given = f"{list(rates_rps)!r:.200} and {list(windows_s)!r:.200}"
        expected = "numbers of at least 0, as many rates as windows, some rate above 0"
        raise ConfigError([Problem("rates, windows", given, expected)])
    return np.asarray(rates_rps, dtype=np.float64), np.asarray(windows_s, dtype=np.float64)
