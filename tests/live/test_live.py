"""The scaler on the embedded stack with real processes: plans take effect, no request is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from carpool.http.client import Pool
from tests.gate import Gate
from tests.live.load import BACKGROUND, INTERACTIVE, Outcome, Steady, all_are_answered, load
from tests.live.stack import HANDLER, stack, write_function
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.live.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


GATED_HANDLER = f"""\
import fcntl, os

with open(os.environ["gate"]) as file:
    fcntl.flock(file, fcntl.LOCK_SH)

{HANDLER}"""


def until_planned(running: Stack, policy: str = "infless") -> Outcome:
    """Measure the function under a low load, and wait until the policy plans for it.

    Returns:
        The outcome of the load.
    """
    outcome = asyncio.run(load(running.url, 20, 3, BACKGROUND))
    wait_until(
        lambda: (running.explain().get("plan") or {}).get("policy") == policy,
        what=f"a plan of {policy}",
    )
    wait_until(lambda: [] == running.troubles(), what="no trouble")
    return outcome


def test_instances_follow_load_step_without_lost_requests(tmp_path: Path) -> None:
    """Instances increase and decrease with the load, and every request is answered, in batches."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        token = tmp_path / ".secrets" / "carpool-scaler-token"
        said = f"its page {running.scaler}/ asks for the token in {token}"
        wait_until(lambda: said in "".join(running.up.said), what="where the page is")
        all_are_answered(until_planned(running))
        assert "echo" in running.functions()
        running.only_class()
        burst = Steady(running.url, 400)
        wait_until(lambda: running.ready() >= 2, what="a second instance")
        wait_until(lambda: burst.outcome.batches[8], what="a full batch")
        all_are_answered(burst.over())
        assert max(burst.outcome.batches) == 8
        wait_until(lambda: [1] == list(running.replicas().values()), what="one instance again")
        wait_until(lambda: 1 == len(running.processes("watchdog_plugin")), what="no orphan")


def test_killed_scaler_loses_no_request_and_successor_continues(tmp_path: Path) -> None:
    """Killing the scaler under load loses no request; its successor continues from the store."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        until_planned(running)
        name = running.only_class()
        burst = Steady(running.url, 150)
        # Three times as many as before: it has heard of the new load.
        wait_until(lambda: (running.explain().get("rate_rps") or 0) > 60, what="the load")
        before = running.explain()["plan"]
        created = {each: running.functions()[each]["createdAt"] for each in ("echo", name)}
        assert running.kill("carpool scaler run")
        wait_until(lambda: "scaler: ended with SIGKILL" in "".join(running.up.said), what="its end")
        wait_until(lambda: running.explain().get("fronts") == 1, what="the front is back")
        answered = burst.outcome.answered
        wait_until(lambda: burst.outcome.answered > answered + 150, what="more answers")
        all_are_answered(burst.over())
        assert running.explain()["plan"]["version"] >= before["version"]
        assert (
            created.items()
            <= {each: found["createdAt"] for each, found in running.functions().items()}.items()
        )
        wait_until(lambda: [] == running.troubles(), what="no trouble")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Yield an open gate that every start of `write_sleeper`'s function has to pass."""
    made = Gate(tmp_path / "gate")
    made.open()
    yield made
    made.remove()


def write_sleeper(folder: Path, gate: Gate, **labels: str) -> None:
    """Write the function ``echo``, which scales to zero, and whose starts wait at the gate."""
    write_function(folder, {"gate": str(gate.path)}, **{"scale.min": "0", **labels})
    (folder / "echo" / "handler.py").write_text(GATED_HANDLER)


def until_asleep(running: Stack) -> None:
    """Wait until the function has no instance."""
    wait_until(lambda: not any(running.replicas().values()), what="no instance")
    wait_until(lambda: not running.processes("watchdog_plugin"), what="no process")


HASTY = ("x-timeout", "100ms")
SLEEPY = "--prewarm fixed --prewarm-params '{\"keep_alive_s\": 1}'"
AT_ONCE_RPS = 1e5


def test_requests_for_idle_function_wait_and_leave_in_a_batch(tmp_path: Path, gate: Gate) -> None:
    """Requests for an idle function wait for an instance, up to the cap, and leave in a batch."""
    write_sleeper(tmp_path, gate, **{"queue.max": "10"})
    with stack(tmp_path, SLEEPY) as running:
        until_planned(running)
        for _ in range(2):
            until_asleep(running)
            gate.close()
            waking = Steady(running.url, AT_ONCE_RPS, at_most=25)
            wait_until(lambda w=waking: w.outcome.answered == 15, what="the refusals")  # type: ignore[misc]
            gate.open()
            wait_until(lambda w=waking: w.outcome.answered == 25, what="the answers")  # type: ignore[misc]
            outcome = waking.over()
            assert {200: 10, 429: 15} == dict(outcome.statuses)
            assert max(outcome.batches) >= 2
        metrics = running.ask_scaler("/metrics").text
        assert 'scaler_requests_total{function_name="echo",state="done"}' in metrics
        assert "scaler_syncs_refused_total" not in metrics or 'reason="form"' not in metrics


def test_cold_start_request_is_late_rather_than_refused(tmp_path: Path, gate: Gate) -> None:
    """A cold start exceeds any objective, so only the caller's own limit ends the wait."""
    write_sleeper(tmp_path, gate, slo="200ms")
    with stack(tmp_path, SLEEPY) as running:
        until_planned(running)
        until_asleep(running)
        late = running.counted("late")
        gate.close()
        waking = Steady(running.url, AT_ONCE_RPS, INTERACTIVE, at_most=8)
        wait_until(lambda: running.processes("watchdog_plugin"), what="a start")
        wait_until(lambda: waking.outcome.pending == 8, what="eight waiting requests")
        threading.Event().wait(0.2)  # they are late from now on
        gate.open()
        wait_until(lambda: waking.outcome.answered == 8, what="eight answers")
        assert {200: 8} == dict(waking.over().statuses)
        wait_until(lambda: running.counted("late") == late + 8, what="eight late answers")
        until_asleep(running)
        gate.close()
        impatient = asyncio.run(load(running.url, AT_ONCE_RPS, 5 / AT_ONCE_RPS, HASTY))
        gate.open()
        # A request that has spent that much on the way is refused on arrival.
        assert 5 == sum(impatient.statuses[status] for status in (503, 504))


def test_scaling_by_others_is_reported_and_removal_leaves_nothing(tmp_path: Path) -> None:
    """Scaling by others than the scaler is reported and corrected."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        until_planned(running)
        name = running.only_class()
        running.system(
            "POST", f"/system/scale-function/{name}", {"serviceName": name, "replicas": 3}
        )
        named = f"something else has set {name} to 3 replicas"
        wait_until(
            lambda: named in str(running.explain().get("decisions")), what="the competitor named"
        )
        wait_until(lambda: {name: 1} == running.replicas(), what="one instance again")
        removed = {"functionName": "echo"}
        running.system("DELETE", "/system/functions", removed)
        wait_until(lambda: {} == running.functions(), what="no class is left behind")


@pytest.mark.parametrize("policy", ["openfaas", "batch", "harmonybatch", "infaas"])
def test_every_policy_runs_live(tmp_path: Path, policy: str) -> None:
    """Policies that simulate scenarios also plan for a running stack."""
    write_function(tmp_path)
    with stack(tmp_path, f"--policy {policy}") as running:
        until_planned(running, policy)
        burst = Steady(running.url, 100)
        wait_until(lambda: burst.outcome.answered >= 400, what="answers")
        all_are_answered(burst.over())
        wait_until(lambda: [] == running.troubles(), what="no trouble")


def test_several_fronts_share_the_instances(tmp_path: Path) -> None:
    """Each front forms its own batches for the same instances; the scaler adds up their reports."""
    write_function(tmp_path)
    with stack(tmp_path) as running:
        before = until_planned(running).sent
        scale = "/system/scale-function/echo"
        running.system("POST", scale, {"serviceName": "echo", "replicas": 2})
        wait_until(lambda: running.explain().get("fronts") == 2, what="two fronts")
        burst = Steady(running.url, 120)
        wait_until(lambda: all(map(done, running.fronts().values())), what="answers of both")
        wait_until(lambda: burst.outcome.answered >= 480, what="answers")
        outcome = burst.over()
        all_are_answered(outcome)
        wait_until(lambda: running.counted() == before + outcome.sent, what="the sum of both")


def done(front: str) -> float:
    """Return the number of requests that a front has answered, by its own metrics."""
    found = [
        line.rpartition(" ")[2]
        for line in metrics_of(front).splitlines()
        if line.startswith('batch_requests_total{state="done"')
    ]
    return sum(map(float, found))


def metrics_of(front: str) -> str:
    """Return a front's metrics."""

    async def ask() -> str:
        pool = Pool(front)
        try:
            return (await pool.request("GET", "/metrics", timeout_s=HANG_S)).body.decode()
        finally:
            pool.close()

    return asyncio.run(ask())
