"""Everything is killed at random under load; every request still gets an answer."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faas_stack.test_up import carpool, descendants
from tests.live.stack import BACKGROUND, Stack, load, stack, write_function
from tests.live.test_live import until_planned
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.live.stack import Outcome

_DURATION_S = float(os.environ.get("chaos_seconds", "60"))
_RATE_RPS = 80
_PAUSE_S = 3.0
_VICTIMS = ("carpool scaler run", "watchdog_plugin", "-m sidecar")


def kill_at_random(running: Stack, until: threading.Event, draw: random.Random) -> list[str]:
    """Until it is over, some process of the stack dies every now and then."""
    killed = []
    while not until.wait(_PAUSE_S * draw.uniform(0.5, 1.5)):
        victim = draw.choice(_VICTIMS)
        found = running.processes(victim)
        if found and running.kill_one(draw.choice(found)):
            killed.append(victim)
    return killed


@pytest.mark.slow
@pytest.mark.timeout(_DURATION_S + 240)
def test_whatever_dies_requests_are_answered_and_nothing_is_left(tmp_path: Path) -> None:
    """Scaler, sidecars and handlers die at random: an answer each, or a break at a killed hop."""
    seed = int(os.environ.get("chaos_seed", time.time_ns() % 10**6))
    write_function(tmp_path, **{"scale.min": "2"})
    with stack(tmp_path) as running:
        asyncio.run(load(running.url, 20, 3, BACKGROUND))
        until_planned(running)
        until, killed = threading.Event(), list[str]()
        killer = threading.Thread(
            target=lambda: killed.extend(kill_at_random(running, until, random.Random(seed)))
        )
        killer.start()
        outcome = asyncio.run(load(running.url, _RATE_RPS, _DURATION_S, BACKGROUND))
        until.set()
        killer.join()
        _judge(outcome, killed, seed)
        wait_until(lambda: running.explain().get("ready", 0) >= 2, 60, "two instances again")
        wait_until(lambda: running.explain().get("notes") == [], 90, "all is well again")
        wait_until(lambda: list(running.replicas().values()) == [2], 30, "two replicas")
        wait_until(lambda: 2 == len(running.processes("watchdog_plugin")), 30, "no orphan")
        after = asyncio.run(load(running.url, 20, 2, BACKGROUND))
        assert {200: 40} == dict(after.statuses)


def _judge(outcome: Outcome, killed: list[str], seed: int) -> None:
    """A break at the provider would be a lost answer; who was with a killed front gets a 502."""
    told = f"seed {seed}, killed {killed}, {outcome.statuses}, {outcome.broken[:3]}"
    assert ([], []) == (outcome.broken, outcome.wrong), told
    assert _RATE_RPS * _DURATION_S == outcome.answered, told
    assert {200} <= set(outcome.statuses) <= {200, 429, 502, 503}, told
    fronts = killed.count("-m sidecar")
    assert outcome.statuses[200] >= outcome.answered - 150 * (fronts + 1), told


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_killed_provider_takes_everything_with_it_and_starts_again(tmp_path: Path) -> None:
    """SIGKILL to the provider leaves no process; the next scaler knows what the last one knew."""
    write_function(tmp_path)
    arguments = ("up", "--port", "0", "--scaler-port", "0", "--json", "--no-watchdog")
    with carpool(tmp_path, *arguments) as up:
        running = Stack(up, tmp_path)
        asyncio.run(load(running.url, 20, 3, BACKGROUND))
        until_planned(running)
        known = running.explain()["plan"]["version"]
        started = descendants(up.process.pid)
        assert len(started) >= 4
        up.process.kill()
        up.ended()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), 20)
    with stack(tmp_path) as running:
        assert running.explain()["plan"]["policy"] == "infless"
        assert running.explain()["plan"]["version"] >= known
        assert {200: 40} == dict(asyncio.run(load(running.url, 20, 2, BACKGROUND)).statuses)
