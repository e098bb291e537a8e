"""Selects variants exactly: INFaaS's integer program, solved by HiGHS through SciPy.

The variables are whole numbers ``n`` of instances, of which ``u`` are to be loaded, shares ``y`` of
them for each need, and what is left uncovered, ``s``, at a price that is paid only if there is no
capacity:

    min  sum C n + lambda C T u + M s
    s.t. u >= n - N,  sum over needs of y <= n,  sum of served_rps * y + s >= need,
         cores and GPUs within the available capacity, number of instances within the limit

The paper found a commercial solver too slow for this, at 23 s for 50 architectures.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool.errors import ConfigError, Problem
from scaler.policies.infaas.task import Solution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler.policies.infaas.task import Task

__all__ = ["available", "program"]

_GAP = 1e-6  # relative distance from the optimum that is accepted
_STDOUT, _STDERR = 1, 2
_DEAR = 1e4  # price of an unserved request per second, as a multiple of the most expensive option


def available() -> Any:  # noqa: ANN401  SciPy ships no types
    """Return SciPy's optimization module.

    Raises:
        ConfigError: SciPy is not installed.
    """
    try:
        from scipy import optimize  # noqa: PLC0415  only solving programs needs it
    except ImportError as error:
        expected = "another planner, or SciPy: pip install 'carpool[solver]'"
        raise ConfigError([Problem("planner", "program", expected, str(error))]) from error
    return optimize


def program(task: Task) -> Solution:
    """Return the least-cost instances of each option; otherwise like `greedy.greedy`.

    Raises:
        ConfigError: SciPy is not installed.
    """
    optimize = available()
    options, needs = len(task.options), len(task.needs)
    rows, least, most = _rows(task)
    size = rows.shape[1]
    costs = np.array([option.cost for option in task.options])
    loads = np.array([option.load_s for option in task.options])
    weights = np.zeros(size)
    weights[:options] = costs
    weights[options : 2 * options] = task.loading * costs * loads
    weights[size - needs :] = _dearest(task) * _DEAR
    upper = np.full(size, np.inf)
    for number, need in enumerate(task.needs):
        unfit = [2 * options + number * options + o for o, w in enumerate(need.served_rps) if not w]
        upper[unfit] = 0.0
    with _aside():
        solved = optimize.milp(
            weights,
            constraints=optimize.LinearConstraint(rows, least, most),
            integrality=np.arange(size) < options,
            bounds=optimize.Bounds(np.zeros(size), upper),
            options={"mip_rel_gap": _GAP},
        )
    counts = tuple(int(count) for count in np.rint(solved.x[:options]))
    shares = solved.x[2 * options : size - needs].reshape(needs, options)
    return Solution(counts, np.maximum(shares, 0.0).tolist())


@contextmanager
def _aside() -> Iterator[None]:
    """Redirect the solver's output to standard error, as HiGHS prints whatever its settings."""
    sys.stdout.flush()
    library = ctypes.CDLL(None)
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        library.fflush(None)  # else its output would appear later
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _rows(task: Task) -> tuple[np.ndarray[Any, Any], list[float], list[float]]:
    """Return the constraints on ``n``, ``u``, each need's ``y``, and ``s``."""
    options, needs = len(task.options), len(task.needs)
    size = 2 * options + needs * options + needs
    rows: list[np.ndarray[Any, Any]] = []
    least: list[float] = []
    most: list[float] = []

    def add(at_least: float, at_most: float) -> np.ndarray[Any, Any]:
        rows.append(np.zeros(size))
        least.append(at_least)
        most.append(at_most)
        return rows[-1]

    for option, running in enumerate(task.running):
        row = add(-running, np.inf)
        row[options + option], row[option] = 1.0, -1.0
        row = add(0.0, np.inf)
        row[option] = 1.0
        row[[2 * options + need * options + option for need in range(needs)]] = -1.0
    for number, need in enumerate(task.needs):
        row = add(need.rate_rps, np.inf)
        row[2 * options + number * options : 2 * options + (number + 1) * options] = need.served_rps
        row[size - needs + number] = 1.0
    cores, gpu = task.capacity
    add(-np.inf, cores)[:options] = [option.cpu for option in task.options]
    add(-np.inf, gpu)[:options] = [option.gpu for option in task.options]
    add(-np.inf, task.most)[:options] = 1.0
    return np.array(rows), least, most


def _dearest(task: Task) -> float:
    """Return the highest cost of serving a request per second."""
    return max(
        [
            option.cost * (1 + task.loading * option.load_s) / served_rps
            for need in task.needs
            for option, served_rps in zip(task.options, need.served_rps, strict=True)
            if served_rps
        ],
        default=1.0,
    )
