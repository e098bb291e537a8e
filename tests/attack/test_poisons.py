"""One poison among sixteen requests of a batch does not change the answers of the other fifteen.

They go through a real sidecar and its handler. The poison itself may get any answer, and the
function continues to serve after each.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sidecar.runtime.conftest import on_loop, sidecar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.http.client import Response
    from tests.attack.effort import Effort
    from tests.sidecar.runtime.conftest import Sidecar, Start

__all__ = ["sidecar"]  # a fixture

FOLDER = Path(__file__).parent / "poisoned"
_spec = importlib.util.spec_from_file_location("poisoned_handler", FOLDER / "handler.py")
assert _spec
assert _spec.loader
function = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(function)

NEIGHBOURS = 15
ENV = {
    "fprocess": f"{sys.executable} -m watchdog_plugin",
    "function_dir": str(FOLDER),
    "carpool_batch_policy": "fixed",
    "carpool_batch_max": str(NEIGHBOURS + 1),
    "carpool_batch_wait": "20s",  # they leave together, when the batch is full
    "carpool_slo": "100s",
}


async def beside(running: Sidecar, poison: str, place: int) -> dict[str, object]:
    """Send a batch with one poison; return what is wrong with the answers of the others."""
    bodies = [f"{poison} {number}" for number in range(NEIGHBOURS)]
    bodies.insert(place, f"poison {poison}")
    answers: list[Response | BaseException] = await asyncio.gather(
        *map(running.ask, bodies), return_exceptions=True
    )
    poisoned = answers.pop(place)
    bodies.pop(place)
    wrong: dict[str, object] = {}
    for body, answer in zip(bodies, answers, strict=True):
        if isinstance(answer, BaseException):
            wrong[body] = repr(answer)
        elif (answer.status, answer.body) != (200, body.encode()):
            wrong[body] = (answer.status, answer.body[:200])
        elif answer.header(b"x-injected") is not None:
            wrong[body] = answer.headers
    if isinstance(poisoned, BaseException):
        wrong["the poison"] = repr(poisoned)
    elif poisoned.header(b"x-injected") is not None:
        wrong["the poison"] = poisoned.headers
    return wrong


async def tried(running: Sidecar, poisons: Iterable[str]) -> dict[str, dict[str, object]]:
    """Return what was wrong beside each of ``poisons``, one batch after the other."""
    wrong = {}
    for number, poison in enumerate(poisons):
        if found := await beside(running, poison, number * 7 % (NEIGHBOURS + 1)):
            wrong[poison] = found
        if await running.ready() != 200:
            await running.until_ready()
    return wrong


@pytest.mark.parametrize(
    "kinds", [("RAISING", "WRONG", "STRANGE"), pytest.param(("DEADLY",), marks=pytest.mark.slow)]
)
@on_loop
async def test_poison_does_not_affect_other_requests(
    sidecar: Start, effort: Effort, kinds: tuple[str, ...]
) -> None:
    """They get their answers whatever it raises, returns, does to its process, or dies of."""
    sent = 0
    async with sidecar(**ENV) as running:
        for kind in kinds:
            table = getattr(function, kind)
            poisons = effort.some(table, 2 if kind == "DEADLY" else len(table))  # seconds each
            assert {} == await tried(running, poisons)
            sent += len(poisons)
            assert await running.metric('batch_closed_total{reason="full"}') >= sent
            effort.count(f"poisons, {kind.lower()}, with 15 neighbours each", len(poisons))


def test_there_are_many_kinds_of_poison() -> None:
    """There are many kinds of poison."""
    assert len(function.POISONS) >= 56
