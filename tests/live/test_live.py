"""The scaler on the embedded stack, with real processes: plans in, instances out, nothing lost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from tests.live.stack import BACKGROUND, Outcome, load, stack, write_function
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.live.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Running:
    """Load in the background."""

    def __init__(self, url: str, rate_rps: float, duration_s: float) -> None:
        self.outcome = Outcome()
        self._thread = threading.Thread(target=self._run, args=(url, rate_rps, duration_s))
        self._thread.start()

    def _run(self, url: str, rate_rps: float, duration_s: float) -> None:
        self.outcome = asyncio.run(load(url, rate_rps, duration_s, BACKGROUND))

    def over(self) -> Outcome:
        """Wait for its end."""
        self._thread.join()
        return self.outcome


def until_planned(running: Stack) -> None:
    """Wait until the function has been measured, and the policy plans for it."""
    wait_until(lambda: (running.explain().get("plan") or {}).get("policy") == "infless")
    wait_until(lambda: not running.explain().get("notes", True))


def test_instances_follow_a_step_and_nothing_is_lost(tmp_path: Path) -> None:
    """More load, more instances; less load, fewer; every request is answered, in batches."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        token = tmp_path / ".secrets" / "carpool-scaler-token"
        said = f"its page is {running.scaler}/, and asks for the token in {token}"
        assert said in "".join(running.up.said)
        first = Running(running.url, 20, 3).over()
        assert {200: 60} == dict(first.statuses)
        until_planned(running)
        wait_until(lambda: ["echo", "echo--b8-c1"] == sorted(running.functions()), 20)
        burst = Running(running.url, 400, 10)
        wait_until(lambda: running.ready() >= 2, what="a second instance")
        outcome = burst.over()
        assert ({200: 4000}, [], []) == (dict(outcome.statuses), outcome.broken, outcome.wrong)
        assert max(outcome.batches) == 8
        wait_until(lambda: {"echo--b8-c1": 1} == running.replicas(), what="one instance again")
        wait_until(lambda: 1 == len(running.processes("watchdog_plugin")), what="no orphan")


def test_a_killed_scaler_is_not_missed_and_goes_on(tmp_path: Path) -> None:
    """Under load, SIGKILL to the scaler loses nothing; its successor goes on from the store."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        Running(running.url, 20, 3).over()
        until_planned(running)
        burst = Running(running.url, 150, 8)
        wait_until(lambda: (running.explain().get("rate_rps") or 0) > 100)
        before = running.explain()["plan"]
        versions = {f["createdAt"] for f in running.functions().values()}
        assert running.kill("carpool scaler run")
        wait_until(lambda: "scaler: ended with -9" in "".join(running.up.said))
        wait_until(lambda: running.explain().get("fronts") == 1, what="the front is back")
        outcome = burst.over()
        assert ({200: 1200}, [], []) == (dict(outcome.statuses), outcome.broken, outcome.wrong)
        after = running.explain()["plan"]
        assert after["version"] >= before["version"]
        assert versions == {f["createdAt"] for f in running.functions().values()}
        wait_until(lambda: running.explain()["notes"] == [])


def test_a_function_sleeps_and_holds_who_wakes_it(tmp_path: Path) -> None:
    """Idle, it has no instance; who comes waits for one, up to the cap, and leaves in a batch."""
    write_function(tmp_path, **{"scale.min": "0", "queue.max": "10"})
    options = "--prewarm fixed --prewarm-params '{\"keep_alive_s\": 1}'"
    with stack(tmp_path, options) as running:
        Running(running.url, 20, 3).over()
        until_planned(running)
        for _ in range(2):
            wait_until(lambda: not any(running.replicas().values()), what="no instance")
            wait_until(lambda: not running.processes("watchdog_plugin"), what="no process")
            outcome = asyncio.run(load(running.url, 1000, 0.025, BACKGROUND))
            assert {200: 10, 429: 15} == dict(outcome.statuses)
            assert max(outcome.batches) >= 2
        metrics = running.ask_scaler("/metrics").text
        assert 'scaler_requests_total{function_name="echo",state="done"}' in metrics
        assert "scaler_syncs_refused_total" not in metrics or 'reason="form"' not in metrics


def test_who_wakes_a_function_is_answered_late_rather_than_refused(tmp_path: Path) -> None:
    """No objective is as long as a start; only what the caller says himself ends his wait."""
    write_function(tmp_path, **{"scale.min": "0", "slo": "200ms"})
    options = "--prewarm fixed --prewarm-params '{\"keep_alive_s\": 1}'"
    with stack(tmp_path, options) as running:
        Running(running.url, 20, 3).over()
        until_planned(running)
        wait_until(lambda: not any(running.replicas().values()), what="no instance")
        wait_until(lambda: not running.processes("watchdog_plugin"), what="no process")
        before = late(running)
        waking = asyncio.run(load(running.url, 1000, 0.008))
        assert {200: 8} == dict(waking.statuses)
        wait_until(lambda: late(running) == before + 8, what="eight late answers")
        wait_until(lambda: not any(running.replicas().values()), what="no instance again")
        wait_until(lambda: not running.processes("watchdog_plugin"), what="no process again")
        impatient = asyncio.run(load(running.url, 100, 0.05, ("x-timeout", "100ms")))
        assert {504: 5} == dict(impatient.statuses)


def late(running: Stack) -> int:
    """Answers that came after they were due, as the scaler has heard."""
    metrics = running.ask_scaler("/metrics").text
    name = 'scaler_requests_total{function_name="echo",state="late"} '
    return sum(int(float(line.rpartition(" ")[2])) for line in metrics.splitlines() if name in line)


def test_a_competitor_is_named_and_a_removed_function_leaves_nothing(tmp_path: Path) -> None:
    """Somebody who scales behind the scaler's back is named and outdone."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        Running(running.url, 20, 3).over()
        until_planned(running)
        scale = "/system/scale-function/echo--b8-c1"
        running.system("POST", scale, {"serviceName": "echo--b8-c1", "replicas": 3})
        named = "somebody else has set echo--b8-c1 to 3 replicas"
        wait_until(
            lambda: named in str(running.explain().get("notes")), what="the competitor named"
        )
        wait_until(lambda: {"echo--b8-c1": 1} == running.replicas(), what="one instance again")
        removed = {"functionName": "echo"}
        running.system("DELETE", "/system/functions", removed)
        wait_until(lambda: {} == running.functions(), what="no class is left behind")


@pytest.mark.parametrize("policy", ["openfaas", "batch", "harmonybatch", "infaas"])
def test_every_policy_runs_live(tmp_path: Path, policy: str) -> None:
    """The policies that a scenario is simulated with plan for a running stack, too."""
    write_function(tmp_path)
    with stack(tmp_path, f"--policy {policy}") as running:
        Running(running.url, 20, 3).over()
        wait_until(lambda: (running.explain().get("plan") or {}).get("policy") == policy)
        outcome = Running(running.url, 100, 4).over()
        assert ({200: 400}, [], []) == (dict(outcome.statuses), outcome.broken, outcome.wrong)
        assert [] == running.explain()["notes"]


def test_several_fronts_share_the_instances(tmp_path: Path) -> None:
    """Each front forms its own batches for the same instances; the scaler adds up what they say."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        Running(running.url, 20, 3).over()
        until_planned(running)
        scale = "/system/scale-function/echo"
        running.system("POST", scale, {"serviceName": "echo", "replicas": 2})
        wait_until(lambda: running.explain().get("fronts") == 2, what="two fronts")
        burst = Running(running.url, 120, 6)
        wait_until(lambda: (running.explain().get("rate_rps") or 0) > 100, what="the sum of both")
        outcome = burst.over()
        assert ({200: 720}, [], []) == (dict(outcome.statuses), outcome.broken, outcome.wrong)
