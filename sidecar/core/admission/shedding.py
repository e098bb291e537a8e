"""Load shedding: refusing early the requests that would be answered too late, within limits.

An early refusal costs a caller a moment; a late response costs it the deadline, and costs other
requests an instance's time. But a predictor can be wrong. Mode ``observe`` counts the requests that
would be refused, and serves them. Mode ``on`` refuses at most a given share of the arrivals of each
window (compare Finagle's DeadlineFilter), so that a broken predictor cannot close the function, and
enough requests pass to correct it.

To be in time and not just on average, a margin is added to every prediction. It rises when a
response comes later than prediction plus margin, by one execution time at most, and falls slowly
otherwise, at a rate that leaves about the wanted share of batches within it. It also halves every
few seconds, so that after an overload it does not keep refusing requests at low load.

Interactive and background requests have separate margins: background requests wait for places that
interactive ones leave, so the error of their predictions says nothing about interactive requests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.core.request import Request

__all__ = ["ClassShedding", "Shedding"]

_WINDOW_S = 10.0
_HALF_LIFE_S = 5.0  # of the margin; under overload, this covers many batches
_AGING_S = 0.1
_MARGIN_SHARE_MAX = 1 / 8  # of the time that a request may take
_MARGIN_SHARE_OVERLOADED = 1 / 4
_OVERLOADED = 0.1  # share of a window's arrivals that is refused
_QUANTILE = 0.99  # share of batches that should be answered within prediction and margin
_RUN_BATCHES = 10  # errors are correlated over about one queue length


@dataclass(slots=True)
class ClassShedding:
    """The margin of one class of requests, and how many of them were refused.

    Attributes:
        margin_s: seconds added to predictions.
        late: number of requests predicted to be late, refused or not.
    """

    margin_s: float = 0.0
    late: int = 0
    _window_began: float = 0.0
    _arrived: int = 0
    _refused: int = 0
    _aged: float = 0.0

    def refuses(self, request: Request, share_max: float, now: float) -> bool:
        """Count an arrival; return whether it is predicted late and ``share_max`` allows it."""
        if now - self._aged >= _AGING_S:
            self._age(now)
        self._arrived += 1
        deadline = request.deadline
        if request.predicted_finish + self.margin_s <= deadline:  # true for nearly all requests
            return False
        if request.predicted_finish + self._margin(deadline - request.arrived) <= deadline:
            return False
        return self._may_refuse(share_max)

    def refuses_late(self, share_max: float, now: float) -> bool:
        """Count an arrival known to be late; return True if ``share_max`` allows refusing it."""
        if now - self._aged >= _AGING_S:
            self._age(now)
        self._arrived += 1
        return self._may_refuse(share_max)

    def margin(self, budget_s: float, now: float) -> float:
        """Return the seconds to add to the prediction for a request with a budget of ``budget_s``.

        At most a small part of the budget: a refused request could have been in time, while an
        admitted one that turns out to be late is given up in the queue for those behind it. While
        many have to be refused anyway, it may be larger, so that fewer are given up after waiting.
        """
        if now - self._aged >= _AGING_S:
            self._age(now)
        return self._margin(budget_s)

    def learn(self, error_s: float, exec_s: float, budget_s: float) -> None:
        """Learn that the last request of a batch was answered ``error_s`` later than predicted.

        Args:
            error_s: seconds; negative if it was earlier, ``inf`` if it was never answered.
            exec_s: execution time of a batch, as the scale of changes.
            budget_s: time budget of the requests; they can raise the margin to a part of it.
        """
        if error_s > self.margin_s:
            raised_s = min(error_s, self.margin_s + exec_s, self._share_max * budget_s)
            self.margin_s = max(self.margin_s, raised_s)
        else:
            lowered_s = self.margin_s - (1 - _QUANTILE) * exec_s / _RUN_BATCHES
            self.margin_s = max(0.0, lowered_s)

    def _may_refuse(self, share_max: float) -> bool:
        self.late += 1
        refused = self._refused < share_max * self._arrived
        self._refused += refused
        return refused

    def _margin(self, budget_s: float) -> float:
        return min(self.margin_s, self._share_max * budget_s)

    @property
    def _share_max(self) -> float:
        overloaded = self._refused > _OVERLOADED * self._arrived
        return _MARGIN_SHARE_OVERLOADED if overloaded else _MARGIN_SHARE_MAX

    def _age(self, now: float) -> None:
        self.margin_s *= 0.5 ** ((now - self._aged) / _HALF_LIFE_S)
        self._aged = now
        if now - self._window_began >= _WINDOW_S:
            self._window_began, self._arrived, self._refused = now, 0, 0


@dataclass(slots=True)
class Shedding:
    """Decides whether a request that is predicted to be late is refused.

    Attributes:
        mode: ``off``, ``observe`` (count, do not refuse) or ``on``.
        cap: largest share of a window's arrivals of a class that is refused in mode ``on``.
        refused_share_max: the cap in force; 0 if nothing is refused.
        interactive, background: the shedding state of each class.
    """

    mode: str = "observe"
    cap: float = 0.99
    refused_share_max: float = field(init=False)
    interactive: ClassShedding = field(default_factory=ClassShedding)
    background: ClassShedding = field(default_factory=ClassShedding)

    def __post_init__(self) -> None:
        self.refused_share_max = self.cap if self.mode == "on" else 0.0

    @property
    def late(self) -> int:
        """Number of requests predicted to be late, refused or not."""
        return self.interactive.late + self.background.late
