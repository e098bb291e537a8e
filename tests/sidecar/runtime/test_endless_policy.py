"""A batch policy that does not return is interrupted, and replaced."""

from __future__ import annotations

import asyncio
import re
import signal
from typing import TYPE_CHECKING

import pytest

from sidecar.core.policy_guard import PolicyGuard
from sidecar.policies.none import NoBatching
from sidecar.runtime.endless_policy import LIMIT_S, EndlessPolicy
from sidecar.testing import Arrival, Drive, ScriptedFunction
from tests.sidecar.runtime.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sidecar.core.policy import Decision, Waiting
    from tests.sidecar.runtime.conftest import Start

NONE = NoBatching(NoBatching.Params())
POLICY = """
import time
from sidecar.policies.none import NoBatching

class Endless(NoBatching):
    def {method}(self, _):
        {body}
"""


class Alarmed(NoBatching):
    """Policy during whose first decision some seconds pass."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def decide(self, waiting: Waiting) -> Decision:
        """Decide as ``none`` does, once the seconds have passed."""
        while self._seconds:
            self._seconds -= 1
            signal.raise_signal(signal.SIGALRM)
        return NONE.decide(waiting)


@pytest.fixture
def watched() -> Iterator[None]:
    """Watch for endless policies, but without the timer: tests raise its signals themselves."""
    before = signal.getsignal(signal.SIGALRM)

    async def watch() -> None:
        EndlessPolicy().watch()
        signal.setitimer(signal.ITIMER_REAL, 0)

    asyncio.run(watch())
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("seconds", [LIMIT_S - 1, LIMIT_S])
def test_a_policy_is_interrupted_after_the_limit(seconds: int) -> None:
    """It then fails as one that raises, with the line that it was at; no request is lost."""
    policy = PolicyGuard(Alarmed(seconds), NONE, lambda _: None)
    ends = Drive(policy, ScriptedFunction(lambda _: 0.01)).run([Arrival(0.0), Arrival(0.1)])
    assert ["done"] * 2 == [end.state.name.lower() for end in ends]
    expected = r"TimeoutError: the policy has not returned for 5 s \(test_endless_policy\.py:\d+\)"
    assert re.fullmatch(expected if seconds == LIMIT_S else "", policy.failure)


@pytest.mark.usefixtures("watched")
def test_other_code_is_not_interrupted() -> None:
    """A sidecar that is slow for another reason continues, with its policy."""
    for _ in range(2 * LIMIT_S):
        signal.raise_signal(signal.SIGALRM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("depart", "time.sleep(1e6)"),
        ("decide", "while True: pass"),
        ("observe", "while True: pass"),
    ],
)
def test_requests_are_answered_in_spite_of_an_endless_policy(
    method: str, body: str, sidecar: Start, tmp_path: Path
) -> None:
    """The sidecar continues with the fallback, and counts it."""
    (tmp_path / "mine.py").write_text(POLICY.format(method=method, body=body))

    async def run() -> None:
        path = f"{ROOT}:{tmp_path}"
        async with sidecar(PYTHONPATH=path, carpool_batch_policy="mine:Endless") as running:
            assert [200] * 3 == [(await running.ask("x")).status for _ in range(3)]
            assert 1 == await running.metric("batch_policy_fallback_total")

    asyncio.run(run())
