"""Refusing early what would be answered too late, carefully.

An early refusal costs a caller a moment; a late answer costs it the deadline and others a seat.
But a predictor can be wrong: in mode ``dark`` what would be refused is counted and served. Switched
on, it refuses at most a given share of the arrivals of each window
(compare Finagle's DeadlineFilter), so that a broken predictor cannot close the function, and
enough requests pass to correct it.

What passes must be in time, not just on average: the margin that is added to every prediction
follows the errors of those that came true: it rises to meet one that is exceeded, by an execution
time at most, and falls slowly while none is, in the ratio that leaves about the wanted share of
batches within it. What it had to rise to is forgotten in seconds, however few batches there are:
after a noisy spell or an overload it must not go on refusing requests at low load.

Interactive and background requests are judged apart: the background waits for seats that others
leave empty, so how wrong its predictions are says nothing about the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.core.request import Request

__all__ = ["Judgement", "Shedding"]

_WINDOW_S = 10.0
_HALF_LIFE_S = 5.0  # of the margin; many batches even so, where there is overload
_STEP_S = 0.1
_MOST = 1 / 8  # of the time that a request may take
_RUN = 10  # batches: errors come in runs about as long as the queue, which a change must pass


@dataclass(slots=True)
class Judgement:
    """What is known of one class of requests, and how many of them were refused.

    Attributes:
        quantile: share of batches that should be answered within prediction and margin.
        margin_s: added to predictions.
        late: how many were predicted to be late, refused or not.
    """

    quantile: float = 0.99
    margin_s: float = 0.0
    late: int = 0
    _began: float = 0.0
    _arrived: int = 0
    _refused: int = 0
    _aged: float = 0.0

    def refuses(self, request: Request, most: float, now: float) -> bool:
        """Count an arrival; True if it is promised to be late, and the share ``most`` allows it."""
        if now - self._aged >= _STEP_S:
            self._age(now)
        self._arrived += 1
        deadline = request.deadline
        if request.promised + self.margin_s <= deadline:  # nearly all of them
            return False
        if request.promised + self._margin(deadline - request.arrived) <= deadline:
            return False
        return self._may_refuse(most)

    def refuses_late(self, most: float, now: float) -> bool:
        """The same for an arrival that is known to be late."""
        if now - self._aged >= _STEP_S:
            self._age(now)
        self._arrived += 1
        return self._may_refuse(most)

    def margin(self, budget_s: float, now: float) -> float:
        """Seconds to add to the prediction for a request that may take ``budget_s`` in all.

        A small part of that at most: what is refused could have been in time, and what is taken in
        and turns out to be late is given up in the queue for those behind it.
        """
        if now - self._aged >= _STEP_S:
            self._age(now)
        return self._margin(budget_s)

    def learn(self, error_s: float, exec_s: float, budget_s: float) -> None:
        """Learn that the last of a batch was answered ``error_s`` later than predicted.

        Args:
            error_s: seconds; negative if it was earlier, ``inf`` if it never was.
            exec_s: what a batch takes, the scale of things.
            budget_s: how long they may take; they can raise the margin to a part of that.
        """
        if error_s > self.margin_s:
            raised_s = min(error_s, self.margin_s + exec_s, _MOST * budget_s)
            self.margin_s = max(self.margin_s, raised_s)
        else:
            self.margin_s = max(0.0, self.margin_s - (1 - self.quantile) * exec_s / _RUN)

    def _may_refuse(self, most: float) -> bool:
        self.late += 1
        refused = self._refused < most * self._arrived
        self._refused += refused
        return refused

    def _margin(self, budget_s: float) -> float:
        return min(self.margin_s, _MOST * budget_s)

    def _age(self, now: float) -> None:
        self.margin_s *= 0.5 ** ((now - self._aged) / _HALF_LIFE_S)
        self._aged = now
        if now - self._began >= _WINDOW_S:
            self._began, self._arrived, self._refused = now, 0, 0


@dataclass(slots=True)
class Shedding:
    """Decides whether a request that is predicted to be late is refused.

    Attributes:
        mode: ``off``, ``dark`` (count, do not refuse) or ``on``.
        cap: largest share of a window's arrivals of a class that is refused, with ``on``.
        most: the same in any mode.
        interactive, background: the classes.
    """

    mode: str = "dark"
    cap: float = 0.99
    most: float = field(init=False)
    interactive: Judgement = field(default_factory=Judgement)
    background: Judgement = field(default_factory=Judgement)

    def __post_init__(self) -> None:
        self.most = self.cap if self.mode == "on" else 0.0

    @property
    def late(self) -> int:
        """How many were predicted to be late, refused or not."""
        return self.interactive.late + self.background.late
