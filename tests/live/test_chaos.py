"""Kill or stop all parts at random under load; every request still ends in exactly one way.

A run takes a minute, or ten with ``chaos_seconds=600 pytest -m slow tests/live/test_chaos.py``.
`tests.live.weapons` has the faults.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faas_stack.test_up import carpool, descendants
from tests.live.kept_up import KeptUp, kept_up
from tests.live.left import leaves_nothing
from tests.live.stack import BACKGROUND, Outcome, Stack, load, stack, write_function
from tests.live.test_live import until_planned
from tests.live.weapons import PROVIDER, RATE_RPS, Blow, Weapons, small_disk
from tests.waiting import wait_until

_DURATION_S = float(os.environ.get("chaos_seconds", "60"))
_PARTS = ("carpool scaler run", "watchdog_plugin", "-m sidecar")
_GRACE_S = 1.5  # after the provider is back: connected clients notice it
_EXEC_TIMEOUT = {"exec_timeout": "5s"}  # a stopped handler is replaced after that


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.timeout(_DURATION_S + 600)
def test_only_requests_at_killed_hops_fail_and_nothing_is_left(tmp_path: Path) -> None:
    """Kill scaler, sidecars and handlers: each request is answered, or fails at a killed hop."""
    seed = int(os.environ.get("chaos_seed", time.time_ns() % 10**6))
    write_function(tmp_path, _EXEC_TIMEOUT, **{"scale.min": "2"})
    disk = small_disk(tmp_path / ".carpool")
    with leaves_nothing(tmp_path) as ports, disk, stack(tmp_path) as running:
        ports.extend(running.ports)
        outcome, told = _under_fire(running, seed, *_PARTS)
        assert [] == outcome.broken, told
        _all_is_well(running)


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.timeout(_DURATION_S + 600)
def test_killed_provider_keeps_state_and_fails_only_calls_meanwhile(tmp_path: Path) -> None:
    """A restart leaves the provider's state unchanged; only calls while it is down fail."""
    seed = int(os.environ.get("chaos_seed", time.time_ns() % 10**6))
    write_function(tmp_path, _EXEC_TIMEOUT, **{"scale.min": "2"})
    disk = small_disk(tmp_path / ".carpool")
    with leaves_nothing(tmp_path) as ports, disk, kept_up(tmp_path) as running:
        ports.extend(running.ports)
        outcome, told = _under_fire(running, seed, *_PARTS, *_PARTS, PROVIDER)
        for at_s in outcome.broken_s:
            assert running.was_away(at_s, _GRACE_S), (
                f"{told}, broken at {at_s}, away {running.away}"
            )
        _all_is_well(running)
        database = sqlite3.connect(tmp_path / ".carpool" / "scaler.db")
        assert [("ok",)] == database.execute("PRAGMA integrity_check").fetchall()
        database.close()


def _under_fire(running: Stack, seed: int, *parts: str) -> tuple[Outcome, str]:
    """Run the load while the parts are struck; return its outcome, also in words."""
    until_planned(running)
    outcome, over = Outcome(), threading.Event()
    weapons = Weapons(running, outcome, random.Random(seed), *parts)
    with ThreadPoolExecutor(1) as threads:
        striking = threads.submit(weapons.strike_until, over)
        try:
            asyncio.run(load(running.url, RATE_RPS, _DURATION_S, BACKGROUND, outcome=outcome))
        finally:
            over.set()
    striking.result()
    if isinstance(running, KeptUp):
        wait_until(lambda: running.is_back, 180, "the provider again")
    blows = Counter(f"{blow.weapon} {blow.victim}" for blow in weapons.blows)
    told = f"seed {seed}, {dict(blows)}, {dict(outcome.statuses)}, {outcome.broken[:3]}"
    sys.stderr.write(f"{told}\n")
    _judge(running, outcome, weapons.blows, told)
    return outcome, told


def _all_is_well(running: Stack) -> None:
    """Check that exactly the planned instances exist, and that the next requests are answered."""
    wait_until(lambda: running.explain().get("ready", 0) >= 2, what="two instances again")
    wait_until(lambda: running.troubles() == [], 150, "all is well again")
    wait_until(lambda: list(running.replicas().values()) == [2], what="two replicas")
    wait_until(lambda: 2 == len(running.processes("watchdog_plugin")), what="no orphan")
    after = asyncio.run(load(running.url, 20, 2, BACKGROUND))
    assert {200: 40} == dict(after.statuses)


def _judge(running: Stack, outcome: Outcome, blows: list[Blow], told: str) -> None:
    """Check that each refusal or broken connection coincides with a fault.

    A request that came while the provider was away is refused when it listens again.
    """
    assert [] == outcome.wrong, told
    assert RATE_RPS * _DURATION_S == outcome.answered + len(outcome.broken), told
    assert {200} <= set(outcome.statuses) <= {200, 404, 429, 502, 503, 504}, told
    kept = running if isinstance(running, KeptUp) else None
    refused = [t for t in outcome.refused_s if not (kept and kept.was_away(t, _GRACE_S))]
    assert len(refused) <= sum(blow.taken for blow in blows), told


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.timeout(600)
def test_killed_provider_leaves_no_process_and_keeps_scaler_state(tmp_path: Path) -> None:
    """A killed provider leaves no process, and the next scaler has the state of the last one."""
    write_function(tmp_path)
    arguments = ("up", "--port", "0", "--scaler-port", "0", "--json", "--no-watchdog")
    with carpool(tmp_path, *arguments) as up:
        running = Stack(up, tmp_path)
        until_planned(running)
        known = running.explain()["plan"]["version"]
        started = descendants(up.process.pid)
        assert len(started) >= 4
        up.process.kill()
        up.ended()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    with stack(tmp_path) as running:
        plan = running.explain()["plan"]
        assert "infless" == plan["policy"]
        assert known <= plan["version"]
        assert {200: 40} == dict(asyncio.run(load(running.url, 20, 2, BACKGROUND)).statuses)
