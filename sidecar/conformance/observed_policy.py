"""A batch policy wrapper that records all calls and detects requests the policy retains."""

from __future__ import annotations

import gc
import math
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from carpool.policy_errors import Broken, raised
from sidecar.conformance.promises import FORGETS, READS, SAME, SANE
from sidecar.core.policy import Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.policy import BatchPolicy, Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["ObservedPolicy"]


class _Call(NamedTuple):
    method: str
    about: str
    answer: object

    def __str__(self) -> str:
        return f"{self.method}({self.about}) -> {self.answer}"


class _Payload:
    """Payload that lives as long as its request."""

    __slots__ = ("__weakref__",)


class ObservedPolicy:
    """Passes the batcher's calls on to a policy, and checks what it returns.

    Raises:
        Broken: from any method, if the policy raises, returns an invalid value or changes a
            request.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._calls: list[_Call] = []
        self._payloads: list[weakref.ref[_Payload]] = []

    def depart(self, request: Request) -> float:
        """Return the latest departure time of ``request``."""
        request.payload = payload = _Payload()
        self._payloads.append(weakref.ref(payload))
        about = repr(request)
        depart = self._asked("depart", about, self._policy.depart, request, [request])
        if not isinstance(depart, (int, float)) or math.isnan(depart):
            raise Broken(
                SANE, f"depart({about}) returned {depart!r}, which is not a time in seconds"
            )
        self._calls.append(_Call("depart", about, depart))
        return depart

    def decide(self, waiting: Waiting) -> Decision:
        """Return how many items may leave now."""
        about = f"now={waiting.now}, count={waiting.count}, limit={waiting.limit}"
        requests = waiting.first(waiting.count)
        answer = self._asked("decide", about, self._policy.decide, waiting, requests)
        decision = _decision(answer)
        if decision is None:
            expected = "a Decision of two ints: items, at least 1, and how many to give up"
            raise Broken(SANE, f"decide({about}) returned {answer!r}: expected {expected}")
        self._calls.append(_Call("decide", about, decision))
        return decision

    def observe(self, executed: Executed) -> None:
        """Learn from a batch that ran."""
        self._asked("observe", repr(executed), self._policy.observe, executed, [])

    def check_same(self, other: ObservedPolicy) -> None:
        """Check that both policies, driven through one scenario, had the same calls and results."""
        for mine, others in zip(self._calls, other._calls, strict=False):
            if mine != others:
                raise Broken(SAME, f"one called {mine}, the other {others}")
        if len(self._calls) != len(other._calls):
            counts = f"{len(self._calls)} and {len(other._calls)}"
            raise Broken(SAME, f"they were asked {counts} times")

    def check_forgotten(self) -> None:
        """Check that the policy keeps no reference to a request, as all requests have ended."""
        if any(payload() for payload in self._payloads):
            gc.collect()  # they may be part of a cycle
        kept = sum(payload() is not None for payload in self._payloads)
        if kept:
            raise Broken(
                FORGETS, f"{kept} of {len(self._payloads)} requests are still referenced by it"
            )

    def _asked(
        self,
        method: str,
        about: str,
        ask: Callable[[Any], object],
        question: object,
        requests: list[Request],
    ) -> Any:  # noqa: ANN401 - whatever a policy answers
        before = [_properties(request) for request in requests]
        try:
            answer = ask(question)
        except (Exception, SystemExit) as error:
            raise Broken(SANE, f"{method}({about}) raised {raised(error)}") from error
        if [_properties(request) for request in requests] != before:
            raise Broken(READS, f"{method}({about}) changed one")
        return answer


def _properties(request: Request) -> list[object]:
    return [getattr(request, name) for name in request.__slots__]


def _decision(answer: Any) -> Decision | None:  # noqa: ANN401 - whatever a policy answers
    try:
        size, late = answer
    except (TypeError, ValueError):
        return None
    sane = isinstance(size, int) and isinstance(late, int) and size >= 1 and late >= 0
    return Decision(size, late) if sane else None
