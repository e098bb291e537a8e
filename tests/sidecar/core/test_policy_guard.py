"""Replacement of a batch policy that fails."""

from __future__ import annotations

import re

import pytest

from sidecar.core.policy import Decision
from sidecar.core.policy_guard import PolicyGuard
from sidecar.core.request import State
from sidecar.policies.fixed import FixedWindow
from sidecar.policies.none import NoBatching
from sidecar.testing import Arrival, Drive, ScriptedFunction

NONE = NoBatching(NoBatching.Params())


class Faulty(NoBatching):
    """Policy that fails in one method after a few good calls."""

    def __init__(self, method: str, result: object) -> None:
        self.method, self.result, self.calls = method, result, 0

    def _fails(self, method: str) -> bool:
        self.calls += method == self.method
        if method != self.method or self.calls < 4:
            return False
        if isinstance(self.result, BaseException):
            raise self.result
        return True

    def depart(self, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        return self.result if self._fails("depart") else NONE.depart(request)

    def decide(self, waiting):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        return self.result if self._fails("decide") else NONE.decide(waiting)

    def observe(self, executed: object) -> None:
        del executed
        self._fails("observe")


FAULTS = [
    ("depart", ValueError("no")),
    ("depart", float("nan")),
    ("depart", "soon"),
    ("decide", KeyError("x")),
    ("decide", None),
    ("decide", Decision(1.5)),  # type: ignore[arg-type]
    ("observe", ZeroDivisionError()),
    ("decide", SystemExit(7)),
]


@pytest.mark.parametrize(("method", "result"), FAULTS, ids=[f"{m}-{r!r}" for m, r in FAULTS])
def test_failing_policy_is_replaced_once_without_losing_requests(
    method: str, result: object
) -> None:
    """When the policy fails, all requests are still answered and the reason is reported once."""
    reasons: list[str] = []
    fallback = FixedWindow(FixedWindow.Params(wait_s=0.0))
    policy = PolicyGuard(Faulty(method, result), fallback, reasons.append)
    drive = Drive(policy, ScriptedFunction(lambda _: 0.01))
    ends = drive.run([Arrival(0.001 * i) for i in range(50)])
    assert [State.DONE] * 50 == [end.state for end in ends]
    assert [policy.failure] == reasons
    assert policy.failure


def test_reason_names_the_line_of_the_policy() -> None:
    """The reason has the type, message and place of an error, as that of a scaling policy."""
    policy = PolicyGuard(Faulty("decide", KeyError("x")), NONE, lambda _: None)
    Drive(policy, ScriptedFunction(lambda _: 0.01)).run([Arrival(0.001 * i) for i in range(50)])
    assert re.fullmatch(r"KeyError: 'x' \(test_policy_guard\.py:\d+\)", policy.failure)
