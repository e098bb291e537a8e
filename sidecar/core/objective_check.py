"""Notices a function that takes longer for a single request than its objective allows.

Nearly all requests of such a function are refused or late, however low the load is. Only batches
of one are judged, as their time need not be extrapolated from larger ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.exec_time import ExecTime

__all__ = ["ObjectiveCheck", "slower_than"]


class ObjectiveCheck:
    """Compares the learned time of a batch of one with the objective.

    Args:
        objective_s: longest objective of the function.
        report: called with the time in seconds when it exceeds the objective for the first time.

    Attributes:
        exceeding_s: the latest time of a batch of one if it exceeds the objective; otherwise 0.
    """

    def __init__(self, objective_s: float, report: Callable[[float], None]) -> None:
        self._objective_s = objective_s
        self._report = report
        self._reported = False
        self.exceeding_s = 0.0

    def executed(self, size: int, exec_time: ExecTime) -> None:
        """Judge ``exec_time``, which has learned from an executed batch of ``size``."""
        if size != 1 or not exec_time.settled:
            return
        single_s = exec_time.mean(1)
        self.exceeding_s = single_s if single_s > self._objective_s else 0.0
        if self.exceeding_s and not self._reported:
            self._reported = True
            self._report(single_s)


def slower_than(name: str, objective_s: float, single_s: float) -> Problem:
    """Return the problem that the objective in setting ``name`` is below ``single_s``."""
    took = durations.format(float(f"{single_s:.3g}"))
    expected = f"more than {took}, the execution time of a single request"
    fix = "most requests are refused or late: set it to a few times that, or use a faster model"
    return Problem(name, durations.format(objective_s), expected, fix)
