"""Measure how a request that no model can process affects the others in the same burst.

Each round sends a different offender, so that a server cannot know it, at a different place in the
burst. The same burst without an offender goes first: it shows how many requests share a batch, and
that all would have been answered correctly.
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
    """Effect of one kind of offender.

    Attributes:
        median: correct responses among the neighbours, over the rounds.
        worst: the fewest in a round.
        offender: number of offenders by response status; 0 is no response.
    """

    median: float
    worst: int
    rounds: int
    offender: dict[str, int]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Effect on the neighbours.

    Attributes:
        control: correct responses in the worst burst without an offender.
        mean_batch: of those bursts; None if unknown.
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
    """Return the seconds until a burst without an offender succeeds, or None if none does."""
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
    """Return the status and body of each response, with status 0 for none."""
    with contextlib.ExitStack() as stack:
        pairs = [(_connected(port, stack), request) for request in requests]
        for connection, request in pairs:
            with contextlib.suppress(OSError):
                connection.sendall(request)
        end_s = time.monotonic() + _ANSWER_S
        return [_answer(connection, end_s) for connection, _ in pairs]


def _connected(port: int, stack: contextlib.ExitStack) -> socket.socket:
    """Return a connected socket, or an unconnected one, on which all else fails, if refused."""
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
