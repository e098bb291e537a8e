"""A burst of requests, one of which no model can answer: what do the others get?

Each round sends another offender, so that nobody can know it, and at another place in the burst.
The same burst without an offender goes first: it tells how many of them ride together,
and that all would have been answered rightly.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.cases import Case
    from benchmarks.launch import Running

__all__ = ["Harm", "Neighbours", "all_right_after_s", "visit"]

_CONTROLS = 5
_ANSWER_S = 5.0
_LONGEST_S = 20.0  # of the rounds with one kind of offender, and of a recovery
_OK = 200


@dataclass(frozen=True, slots=True)
class Harm:
    """What one kind of offender did.

    Attributes:
        median: right answers among the neighbours, over the rounds.
        worst: the fewest in a round.
        offender: how often the offender got which status; 0 is no answer.
    """

    median: float
    worst: int
    rounds: int
    offender: dict[str, int]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What became of the neighbours.

    Attributes:
        control: right answers in the worst burst without an offender.
        mean_batch: of those bursts; None where unknown.
        harm: by what was wrong with the offender.
    """

    control: int
    mean_batch: float | None
    harm: dict[str, Harm]


def visit(running: Running, case: Case, rounds: int = 20) -> Neighbours:
    """Send the bursts, first without an offender and then with one of each kind."""
    before = running.batches()
    requests = running.requests[: case.burst]
    controls = [sum(_right(case, _burst(running.port, requests))) for _ in range(_CONTROLS)]
    mean_batch = running.mean_batch(before)
    kinds = case.misfits(running.data, 0)
    return Neighbours(
        min(controls), mean_batch, {kind: _harm(running, case, kind, rounds) for kind in kinds}
    )


def all_right_after_s(running: Running, case: Case) -> float | None:
    """How long it takes until a burst without an offender goes well; None if it never does."""
    start_s = time.monotonic()
    while time.monotonic() < start_s + _LONGEST_S:
        if all(_right(case, _burst(running.port, running.requests[: case.burst]))):
            return round(time.monotonic() - start_s, 3)
    return None


def _harm(running: Running, case: Case, kind: str, rounds: int) -> Harm:
    right, offender = [], Counter[str]()
    end_s = time.monotonic() + _LONGEST_S
    for turn in range(rounds):
        requests = running.requests[: case.burst]
        place = turn % len(requests)
        requests[place] = running.request(case.misfits(running.data, turn + 1)[kind])
        answers = _burst(running.port, requests)
        offender[str(answers[place][0])] += 1
        good = _right(case, answers)
        right.append(sum(good) - good[place])
        if time.monotonic() > end_s:
            break
    return Harm(statistics.median(right), min(right), len(right), dict(offender))


def _burst(port: int, requests: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Status and body of each; status 0 where no answer came."""
    with contextlib.ExitStack() as stack:
        pairs = [(_connected(port, stack), request) for request in requests]
        for connection, request in pairs:
            with contextlib.suppress(OSError):
                connection.sendall(request)
        end_s = time.monotonic() + _ANSWER_S
        return [_answer(connection, end_s) for connection, _ in pairs]


def _connected(port: int, stack: contextlib.ExitStack) -> socket.socket:
    """A connection; an unconnected socket, on which all else fails, where there is none."""
    connection = stack.enter_context(socket.socket())
    connection.settimeout(_ANSWER_S)
    with contextlib.suppress(OSError):
        connection.connect(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _answer(connection: socket.socket, end_s: float) -> tuple[int, bytes]:
    connection.settimeout(max(0.01, end_s - time.monotonic()))
    response = http.client.HTTPResponse(connection, method="POST")
    try:
        response.begin()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        response.close()


def _right(case: Case, answers: list[tuple[int, bytes]]) -> list[bool]:
    return [status == _OK and case.is_right(body, i) for i, (status, body) in enumerate(answers)]
