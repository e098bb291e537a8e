"""Batch policies that each break one promise of a policy; not collected as tests."""

from __future__ import annotations

import math
import random
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sidecar.core.policy import Decision
from sidecar.core.request import State, advance
from tests.effort import scaled

if TYPE_CHECKING:
    from sidecar.core.policy import Executed, Waiting
    from sidecar.core.request import Request


class Sound:
    """Policy that sends all waiting requests at once; each other policy spoils one method of it."""

    @dataclass(frozen=True)
    class Params:
        """Parameters."""

        answer: object = None

    def __init__(self, params: Params) -> None:
        self.answer: Any = params.answer

    def depart(self, request: Request) -> float:
        return request.arrived

    def decide(self, waiting: Waiting) -> Decision:
        return Decision(waiting.limit)

    def observe(self, executed: Executed) -> None:
        del executed


class Raising(Sound):
    """Divides by the number of waiting requests minus one."""

    def decide(self, waiting: Waiting) -> Decision:
        return Decision(1 + 1 // (waiting.count - 1))


class Tiring(Sound):
    """Fails at its three-hundredth question."""

    asked = 0

    def decide(self, waiting: Waiting) -> Decision:
        self.asked += 1
        if self.asked == 300:
            msg = "tired"
            raise RuntimeError(msg)
        return super().decide(waiting)


class Exiting(Sound):
    """Ends the process."""

    def decide(self, waiting: Waiting) -> Decision:
        sys.exit(7 if waiting.count else 8)


class Departing(Sound):
    """Returns the configured answer from ``depart``."""

    def depart(self, request: Request) -> float:
        del request
        return self.answer  # type: ignore[no-any-return]


class Deciding(Sound):
    """Returns the configured answer from ``decide``."""

    def decide(self, waiting: Waiting) -> Decision:
        del waiting
        return self.answer  # type: ignore[no-any-return]


class Unlearned(Sound):
    """Lacks the method ``observe``."""

    observe: Any = None


class Hoarding(Sound):
    """Holds all requests until the batch is full."""

    def depart(self, request: Request) -> float:
        del request
        return math.inf


class Dawdling(Sound):
    """Keeps all requests for two hours."""

    def depart(self, request: Request) -> float:
        return request.arrived + 7200.0


class Counting(Sound):
    """Waits for all requests that it has counted, and misses those that were cancelled or fail."""

    def __init__(self, params: Sound.Params) -> None:
        super().__init__(params)
        self.waiting = 0

    def depart(self, request: Request) -> float:
        self.waiting += request.item_count
        return math.inf

    def decide(self, waiting: Waiting) -> Decision:
        del waiting
        return Decision(max(1, self.waiting))

    def observe(self, executed: Executed) -> None:
        self.waiting -= executed.size


class Postponing(Sound):
    """Extends the deadlines of its requests."""

    def depart(self, request: Request) -> float:
        request.deadline = math.inf
        return request.arrived


class Cancelling(Sound):
    """Cancels the last request of the queue itself."""

    def decide(self, waiting: Waiting) -> Decision:
        if waiting.count > 2:
            advance(waiting.first(waiting.count)[-1], State.CANCELLED)
        return Decision(waiting.limit)


class Gambling(Sound):
    """Chooses batch sizes at random."""

    def decide(self, waiting: Waiting) -> Decision:
        return Decision(random.randint(1, waiting.limit))


class Sharing(Sound):
    """Shares what it learns among all its instances."""

    batches: ClassVar[list[int]] = [0]

    def depart(self, request: Request) -> float:
        return request.arrived + 0.001 * (self.batches[0] % 7)

    def observe(self, executed: Executed) -> None:
        del executed
        self.batches[0] += 1


class Remembering(Sound):
    """Keeps references to the last requests."""

    def __init__(self, params: Sound.Params) -> None:
        super().__init__(params)
        self.last: deque[Request] = deque(maxlen=3)

    def depart(self, request: Request) -> float:
        self.last.append(request)
        return request.arrived


class Logging(Sound):
    """Logs the size of every batch."""

    def __init__(self, params: Sound.Params) -> None:
        super().__init__(params)
        self.sizes: list[int] = []

    def observe(self, executed: Executed) -> None:
        self.sizes.append(executed.size)


class Sorting(Sound):
    """Keeps an entry for every key that it has seen."""

    def __init__(self, params: Sound.Params) -> None:
        super().__init__(params)
        self.seen: dict[object, int] = {}

    def depart(self, request: Request) -> float:
        self.seen[request.key] = self.seen.get(request.key, 0) + 1
        return request.arrived


class Windowed(Sound):
    """Keeps a bounded window of execution times."""

    def __init__(self, params: Sound.Params) -> None:
        super().__init__(params)
        self.exec_s: deque[float] = deque(maxlen=scaled(1000))

    def observe(self, executed: Executed) -> None:
        self.exec_s.append(executed.exec_s)
